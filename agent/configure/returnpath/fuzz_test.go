//go:build linux

package returnpath

import (
	"testing"

	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
)

// FuzzParseBits: what is taken does not belong to kube-proxy, is read again as it is written, and has values of its own
// for its gateways.
func FuzzParseBits(f *testing.F) {
	for _, text := range []string{"0xf0", "4096", "0b11", "0o17", "0x_f0", "0xffffffff", "0", "", "-1", "0x100000000"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		b, err := ParseBits(text)
		if err != nil {
			if b != 0 {
				t.Errorf("%q is refused, and is %s", text, b)
			}
			return
		}
		if again, err := ParseBits(b.String()); again != b || err != nil || b&kubeProxy != 0 || b.Count() < 1 {
			t.Errorf("%q is %s with %d values, read again as %s (%v)", text, b, b.Count(), again, err)
		}
		seen := map[uint32]bool{}
		for i := range min(b.Count(), 64) {
			v := b.Value(i)
			if v == 0 || v&^uint32(b) != 0 || seen[v] {
				t.Errorf("%s: value %d is %#x", b, i, v)
			}
			seen[v] = true
		}
	})
}

// foreignRule makes a rule as another program may have written it: each expression of a kind, a register and a length.
func foreignRule(raw []byte) []expr.Any {
	var exprs []expr.Any
	take := func(n int) []byte {
		taken := raw[:min(n, len(raw))]
		raw = raw[len(taken):]
		return taken
	}
	for len(raw) >= 3 {
		head := take(3)
		register := uint32(head[1] % 8)
		data := take(int(head[2] % 20))
		switch head[0] % 8 {
		case 0:
			exprs = append(exprs, &expr.Immediate{Register: register, Data: data})
		case 1:
			exprs = append(exprs, &expr.Bitwise{SourceRegister: register, DestRegister: uint32(head[2] % 8), Mask: data,
				Xor: take(4)})
		case 2:
			exprs = append(exprs, &expr.Meta{Key: expr.MetaKey(head[1] % 5), Register: register,
				SourceRegister: head[2]%2 == 0})
		case 3:
			exprs = append(exprs, &expr.Ct{Key: expr.CtKey(head[1] % 5), Register: register,
				SourceRegister: head[2]%2 == 0})
		case 4:
			info := xt.Unknown(data)
			exprs = append(exprs, &expr.Target{Name: []string{"MARK", "CONNMARK", "DNAT"}[head[1]%3], Info: &info})
		case 5:
			exprs = append(exprs, &expr.Target{Name: "MARK"})
		case 6:
			exprs = append(exprs, &expr.Verdict{Kind: expr.VerdictKind(head[1])})
		default:
			exprs = append(exprs, &expr.Cmp{Register: register, Data: data})
		}
	}
	return exprs
}

// FuzzForeignRule: no rule of another program stops the search for the agent's bits, or makes the agent compare its own
// table wrongly: the same rule is written alike.
func FuzzForeignRule(f *testing.F) {
	f.Add([]byte{0, 1, 4, 0xf0, 0, 0, 0, 2, 3, 0})
	f.Add([]byte{4, 0, 8, 0, 0x20, 0, 0, 0xff, 0xff, 0, 0})
	f.Add([]byte{4, 1, 16, 0, 0, 0, 0, 0xff, 0, 0, 0, 0xff, 0, 0, 0, 2})
	f.Add([]byte{4, 1, 3, 1, 2, 3, 5, 0, 0, 6, 0, 0, 7, 2, 1})
	f.Fuzz(func(t *testing.T, raw []byte) {
		exprs := foreignRule(raw)
		if first, again := marked(exprs), marked(foreignRule(raw)); first != again {
			t.Errorf("marks %#x, then %#x", first, again)
		}
		if first, again := line(exprs), line(exprs); first != again {
			t.Errorf("written %q, then %q", first, again)
		}
	})
}

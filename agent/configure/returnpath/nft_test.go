//go:build linux

package returnpath

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

func words(numbers ...uint32) *xt.Unknown {
	var raw xt.Unknown
	for _, n := range numbers {
		raw = binary.NativeEndian.AppendUint32(raw, n)
	}
	return &raw
}

func TestMarked(t *testing.T) {
	load := &expr.Meta{Key: expr.MetaKeyMARK, Register: 1}
	store := &expr.Meta{Key: expr.MetaKeyMARK, Register: 1, SourceRegister: true}
	loadConnection := &expr.Ct{Key: expr.CtKeyMARK, Register: 1}
	value := &expr.Immediate{Register: 1, Data: binary.NativeEndian.AppendUint32(nil, 0x2010)}
	target := func(name string, info xt.InfoAny) *expr.Target { return &expr.Target{Name: name, Rev: 2, Info: info} }
	for name, tc := range map[string]struct {
		exprs []expr.Any
		want  uint32
	}{
		"mark set mark or 0x4000":    {[]expr.Any{load, bitwise(^uint32(0x4000), 0x4000), store}, 0x4000},
		"mark set 0x2010":            {[]expr.Any{value, store}, 0x2010},
		"mark set ct mark":           {[]expr.Any{loadConnection, store}, allBits},
		"mark set ct mark and 0xf00": {[]expr.Any{loadConnection, bitwise(0xf00, 0), store}, 0xf00},
		"mark and 0xf0 == 0x10":      {[]expr.Any{load, bitwise(0xf0, 0), &expr.Cmp{Register: 1}}, 0},
		"a register that was used before": {[]expr.Any{value, &expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
			store}, 0},
		"MARK --set-xmark 0x2000/0x2000": {[]expr.Any{target("MARK", words(0x2000, 0x2000))}, 0x2000},
		"CONNMARK --set-mark 0x20": {[]expr.Any{target("CONNMARK",
			words(0x20, 0xff, 0xffffffff, connmarkSet))}, 0x20},
		"CONNMARK --restore-mark": {[]expr.Any{target("CONNMARK",
			words(0, 0xffffffff, 0xffffffff, connmarkRestore))}, allBits},
		"CONNMARK --restore-mark, masked": {[]expr.Any{target("CONNMARK",
			words(0, 0xff00, 0xff00, connmarkRestore))}, 0xff00},
		"CONNMARK --save-mark":               {[]expr.Any{target("CONNMARK", words(0, 0xffffffff, 0xffffffff, 1))}, 0},
		"a target that is cut short":         {[]expr.Any{target("CONNMARK", words())}, 0},
		"a target that the library can read": {[]expr.Any{target("DNAT", &xt.NatRange2{})}, 0},
	} {
		if got := marked(tc.exprs); got != tc.want {
			t.Errorf("%s: %#x, want %#x", name, got, tc.want)
		}
	}
}

// message is a kernel message about a table, or about something in it.
func message(family byte, attributes ...*nl.RtAttr) []byte {
	raw := []byte{family, 0, 0, 0}
	for _, a := range attributes {
		raw = append(raw, a.Serialize()...)
	}
	return raw
}

func named(kind int, name string) *nl.RtAttr { return nl.NewRtAttr(kind, nl.ZeroTerminated(name)) }

const deletedRule = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_DELRULE

func TestConcerns(t *testing.T) {
	for name, tc := range map[string]struct {
		kind uint16
		data []byte
		want bool
	}{
		"a rule of ours": {deletedRule,
			message(unix.NFPROTO_IPV4, named(nameOfTable, nftTable), named(2, "output")), true},
		"the table after others": {deletedRule,
			message(unix.NFPROTO_IPV4, named(2, "output"), named(nameOfTable, nftTable)), true},
		"a rule of kube-proxy": {deletedRule, message(unix.NFPROTO_IPV4, named(nameOfTable, "kube-proxy")),
			false},
		"our name in another family": {deletedRule, message(unix.NFPROTO_INET, named(nameOfTable, nftTable)), false},
		"a chain of that name": {deletedRule,
			message(unix.NFPROTO_IPV4, named(nameOfTable, "x"), named(2, nftTable)), false},
		"a message of another system": {unix.NFT_MSG_DELRULE, message(unix.NFPROTO_IPV4, named(nameOfTable, nftTable)),
			false},
		"a message without attributes": {deletedRule, message(unix.NFPROTO_IPV4), false},
		"an empty message":             {deletedRule, nil, false},
	} {
		if got := concerns(tc.kind, tc.data); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}

// FuzzConcerns: no message on the socket stops the agent.
func FuzzConcerns(f *testing.F) {
	whole := message(unix.NFPROTO_IPV4, named(nameOfTable, nftTable), named(2, "output"))
	for i := range len(whole) + 1 {
		f.Add(uint16(deletedRule), slices.Clone(whole[:i]))
	}
	f.Fuzz(func(_ *testing.T, kind uint16, data []byte) { concerns(kind, data) })
}

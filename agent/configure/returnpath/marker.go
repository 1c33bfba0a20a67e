//go:build linux

package returnpath

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
)

// Modes of the target CONNMARK (include/uapi/linux/netfilter/xt_connmark.h).
const (
	connmarkSet     = 0
	connmarkRestore = 2
)

// allBits represent an unknown value.
const allBits = ^uint32(0)

// marked are the bits that a rule may set in the mark of packets or connections; bits that were there before do not
// count.
func marked(exprs []expr.Any) uint32 {
	var bits uint32
	registers := map[uint32]uint32{}
	for _, e := range exprs {
		switch e := e.(type) {
		case *expr.Immediate:
			registers[e.Register] = number(e.Data)
		case *expr.Bitwise:
			registers[e.DestRegister] = registers[e.SourceRegister]&number(e.Mask) | number(e.Xor)
		case *expr.Meta:
			if e.Key == expr.MetaKeyMARK && e.SourceRegister {
				bits |= registers[e.Register]
			} else if !e.SourceRegister {
				registers[e.Register] = 0
			}
		case *expr.Ct:
			// The library does not report whether a connection's mark is read or set; a register of 0 means set.
			if e.Key == expr.CtKeyMARK && e.Register != 0 {
				registers[e.Register] = allBits
			}
		case *expr.Target:
			bits |= markedByTarget(e)
		}
	}
	return bits
}

// markedByTarget reads the targets of iptables: MARK (struct xt_mark_tginfo2) and CONNMARK (struct
// xt_connmark_tginfo1).
func markedByTarget(t *expr.Target) uint32 {
	info, ok := t.Info.(*xt.Unknown)
	if !ok {
		return 0
	}
	word := func(n int) uint32 {
		if len(*info) < 4*n+4 {
			return 0
		}
		return binary.NativeEndian.Uint32((*info)[4*n:])
	}
	switch {
	case t.Name == "MARK":
		return word(0)
	case t.Name == "CONNMARK" && word(3)&0xff == connmarkSet:
		return word(0)
	case t.Name == "CONNMARK" && word(3)&0xff == connmarkRestore:
		return word(1) & word(2)
	default:
		return 0
	}
}

// number reads a register's value in the byte order of the machine; wider values are no marks.
func number(data []byte) uint32 {
	if len(data) != 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(data)
}

// readMarker searches the rules of nftables, including those of iptables-nft, for one that uses the bits, and returns
// its chain. Chains of kube-proxy are skipped: there may be thousands, and its bits are known. Unreadable chains are
// skipped, too: the search proves nothing.
func readMarker(bits Bits) (string, error) {
	conn, err := nftables.New()
	if err != nil {
		return "", fmt.Errorf("open nftables: %w", err)
	}
	chains, err := conn.ListChains()
	if err != nil {
		return "", fmt.Errorf("list the chains of nftables: %w", err)
	}
	for _, c := range chains {
		if c.Table.Name == nftTable && c.Table.Family == nftables.TableFamilyIPv4 ||
			c.Table.Name == "kube-proxy" || strings.HasPrefix(c.Name, "KUBE-") {
			continue
		}
		rules, err := conn.GetRules(c.Table, c)
		if err != nil {
			continue
		}
		for _, r := range rules {
			if marked(r.Exprs)&uint32(bits) != 0 {
				return fmt.Sprintf("a rule of the chain %s in the nftables table %s", c.Name, c.Table.Name), nil
			}
		}
	}
	return "", nil
}

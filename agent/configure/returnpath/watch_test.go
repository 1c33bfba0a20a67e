//go:build linux

package returnpath

import (
	"slices"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

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

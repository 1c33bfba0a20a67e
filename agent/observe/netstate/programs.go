//go:build linux

package netstate

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

// maxProgramName bounds the name of a filter, which its owner chooses; known ones are shorter.
const maxProgramName = 48

// hooks are where tc runs programs (qdisc clsact, or ingress), and what findings call it.
var hooks = []struct {
	parent uint32
	name   string
}{{netlink.HANDLE_MIN_INGRESS, "tc ingress"}, {netlink.HANDLE_MIN_EGRESS, "tc egress"}}

// listPrograms lists the eBPF programs of tc filters on VLAN interfaces and the links below them. A kernel that cannot
// list filters has none. netlink.FilterList reads filters of all kinds, so that one of another program that it cannot
// read would hide the others.
func listPrograms(links []check.Link) []check.Program {
	var programs []check.Program
	for _, index := range carriers(links) {
		for _, hook := range hooks {
			request := nl.NewNetlinkRequest(unix.RTM_GETTFILTER, unix.NLM_F_DUMP)
			request.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL, Parent: hook.parent,
				Ifindex: int32(index)}) //nolint:gosec // the kernel's numbers are of that size
			messages, _ := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWTFILTER)
			for _, m := range messages {
				if name, ok := programOf(m); ok {
					programs = append(programs, check.Program{LinkIndex: index, Hook: hook.name, Name: name})
				}
			}
		}
	}
	slices.SortFunc(programs, func(a, b check.Program) int {
		return cmp.Or(a.LinkIndex-b.LinkIndex, cmp.Compare(a.Hook, b.Hook), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(programs)
}

// carriers are the indexes of VLAN interfaces, the links below them and the members of those.
func carriers(links []check.Link) []int {
	below := map[int]bool{}
	for _, l := range links {
		if l.VLAN != nil {
			below[l.Parent] = true
		}
	}
	var indexes []int
	for _, l := range links {
		if l.VLAN != nil || below[l.Index] || l.Slave != nil && below[l.Master] {
			indexes = append(indexes, l.Index)
		}
	}
	return indexes
}

// programOf returns the name of a filter that is an eBPF program; the kernel also has filters of other kinds, and
// classic BPF.
func programOf(message []byte) (name string, ok bool) {
	if len(message) < nl.SizeofTcMsg {
		return "", false
	}
	attributes := message[nl.SizeofTcMsg:]
	if kind := nested(attributes, nl.TCA_KIND); string(bytes.TrimRight(kind, "\x00")) != "bpf" {
		return "", false
	}
	raw := bytes.TrimRight(nested(attributes, nl.TCA_OPTIONS, nl.TCA_BPF_NAME), "\x00")
	hasID := len(nested(attributes, nl.TCA_OPTIONS, nl.TCA_BPF_ID)) > 0
	return string(raw[:min(len(raw), maxProgramName)]), len(raw) > 0 || hasID
}

// Package vlan makes and keeps a node's VLAN interface of the public network, and undoes only what it did.
package vlan

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/ownership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

const (
	// publicMTU is what passes on the way to the Internet, in bytes.
	publicMTU = 1500
	// maxName is the longest name of an interface (IFNAMSIZ less the final zero).
	maxName = 15
)

// want is what the node must have. The zero value means that the agent owns nothing there.
type want struct {
	// ID is the VLAN ID, 0 when no interface is wanted.
	ID int
	// Uplink is the index of the link that carries it.
	Uplink int
	// Name is that of the interface when it must be made; Fixed is set when no other name is accepted.
	Name  string
	Fixed bool

	Addresses []netip.Prefix
	// Fallback is for an interface without any other: the kernel does ARP properly only where there is an address.
	Fallback netip.Prefix
	// NoBlock are addresses of the membership that are in no assigned block, so that their prefix length is unknown.
	NoBlock []netip.Addr
	// Virtual are addresses of Services.
	Virtual []netip.Addr
	// Others are the VLAN IDs of other networks of the Node, whose interfaces are kept by others.
	Others []int
}

// wanted returns what the node, whose uplink has that index and name, must have.
func wanted(e check.Expected, uplink check.Link) *want {
	w := &want{ID: e.Network.VLAN, Uplink: uplink.Index, Fixed: e.Interface != "", Virtual: e.Virtual,
		Others: e.Others}
	w.Name = cmp.Or(e.Interface, nameFor(uplink.Name, w.ID))
	for i, ip := range e.Network.IPs {
		at := slices.IndexFunc(e.Network.Blocks, func(b contract.NetworkBlock) bool { return b.CIDR.Contains(ip) })
		switch {
		case !ip.Is4() || slices.Contains(e.Network.IPs[:i], ip):
		case at < 0:
			w.NoBlock = append(w.NoBlock, ip)
		default:
			w.Addresses = append(w.Addresses, netip.PrefixFrom(ip, e.Network.Blocks[at].CIDR.Bits()))
		}
	}
	if len(w.Addresses) == 0 {
		w.Fallback = netip.PrefixFrom(LinkLocal(e.Network.ServerID), 32)
	}
	return w
}

// nameFor is the customary name of a VLAN interface, if it is short enough.
func nameFor(uplink string, id int) string {
	if name := fmt.Sprintf("%s.%d", uplink, id); len(name) <= maxName {
		return name
	}
	return fmt.Sprintf("vlan%d", id)
}

// LinkLocal is the address that the VLAN interface of a server without an address of its own carries, with prefix
// length 32 and scope link: one of 169.254.1.0 to 169.254.254.255 (RFC 3927, section 2.1) that follows from the ID.
func LinkLocal(serverID string) netip.Addr {
	sum := sha256.Sum256([]byte(serverID))
	return netip.AddrFrom4([4]byte{169, 254, 1 + sum[0]%254, sum[1]})
}

// settingsFor are the settings that an interface with these settings must have. kube-proxy's strictARP sets arp_ignore.
func settingsFor(has ownership.Settings) ownership.Settings {
	settings := ownership.Settings{
		ownership.RPFilter: 2, ownership.ARPIgnore: 1, ownership.ARPFilter: 0, ownership.ARPAnnounce: 2,
		ownership.ProxyARP: 0, ownership.AcceptLocal: 0, ownership.PromoteSecondaries: 1,
	}
	if has[ownership.ARPIgnore] == 0 {
		settings[ownership.ARPIgnore] = 0
	}
	return settings
}

// plan returns the actions, in order, that bring w about on the node, and the problems that prevent it in part. It
// changes only what the agent owns, and adds to an interface that a person made what is missing there.
func plan(w want, s Observed) (actions []action, problems []string) {
	target := w.target(s)
	for _, l := range s.Links {
		if l.Ours && (target == nil || l.Index != target.Index) && !w.isOfOther(l) {
			undo, problem := release(l, s)
			actions = append(actions, undo...)
			if problem != "" {
				problems = append(problems, problem)
			}
		}
	}
	if w.ID == 0 {
		return actions, problems
	}
	if target == nil {
		if blocked := w.blockedReasons(s); len(blocked) > 0 {
			return actions, append(problems, blocked...)
		}
		target = w.planned(s)
		actions = append(actions, w.make(target.MTU))
	}
	switch {
	case target.Unreadable != "":
		return actions, append(problems, target.Unreadable)
	case target.Settings == nil && !target.Record.Made:
		return actions, append(problems, fmt.Sprintf("%s has no IPv4 (MTU %d): fix it", target.Name, target.MTU))
	}
	more, reasons := w.keep(*target, s)
	return append(actions, more...), append(problems, reasons...)
}

// isOfOther reports whether an interface is that of another network of the Node.
func (w want) isOfOther(l Link) bool { return l.VLAN != nil && slices.Contains(w.Others, l.VLAN.ID) }

// target returns the interface that serves w: the one with the VLAN ID on the uplink, of which the kernel allows one.
func (w want) target(s Observed) *Link {
	if w.ID == 0 {
		return nil
	}
	return s.find(func(l Link) bool {
		return l.VLAN != nil && l.VLAN.ID == w.ID && l.VLAN.Protocol == "802.1q" && l.Parent == w.Uplink &&
			(!w.Fixed || l.Name == w.Name)
	})
}

// make makes the interface.
func (w want) make(mtu int) action {
	return action{text: fmt.Sprintf("created %s with VLAN ID %d", w.Name, w.ID),
		do: func(_ context.Context, r *run) (err error) {
			r.made, err = r.kernel.Make(w.Name, w.Uplink, w.ID, mtu)
			return err
		}}
}

// planned is the interface as it will be when it is made.
func (w want) planned(s Observed) *Link {
	l := &Link{Link: check.Link{Name: w.Name, MTU: w.mtu(s)}, Ours: true, Record: ownership.Record{Made: true}}
	if parent := s.indexed(w.Uplink); parent != nil {
		l.MAC = parent.MAC
	}
	return l
}

// mtu is what the interface must have: no more than the uplink carries.
func (w want) mtu(s Observed) int {
	if parent := s.indexed(w.Uplink); parent != nil && parent.MTU > 0 {
		return min(publicMTU, parent.MTU)
	}
	return publicMTU
}

// blockedReasons are why the interface cannot be made beside what a person made.
func (w want) blockedReasons(s Observed) []string {
	var problems []string
	for _, l := range s.Links {
		if l.Ours && l.Record.Made {
			continue
		}
		switch {
		case l.Name == w.Name:
			problems = append(problems, fmt.Sprintf(
				"%s exists and is not a VLAN interface with ID %d on the uplink: delete or fix it", l.Name, w.ID))
		case l.VLAN != nil && l.VLAN.ID == w.ID && l.Parent == w.Uplink:
			problems = append(problems, fmt.Sprintf(
				"%s already has the VLAN ID %d on the uplink, with another name or protocol: rename or delete it",
				l.Name, w.ID))
		case l.Index == w.Uplink && l.VLANAware:
			problems = append(problems, fmt.Sprintf("%s is a bridge that filters VLANs, and its ports are not the "+
				"agent's: make %s where %s is configured", l.Name, w.Name, l.Name))
		case l.VLAN != nil && l.VLAN.ID == w.ID && s.memberOf(l.Parent, w.Uplink):
			problems = append(problems,
				fmt.Sprintf("%s takes the frames of VLAN %d from a member of the uplink: delete it", l.Name, w.ID))
		}
	}
	for _, p := range w.Addresses {
		if problem := occupied(p.Addr(), 0, s); problem != "" {
			problems = append(problems, problem)
		}
	}
	return problems
}

// memberOf reports whether a link is a member of another one, such as a bond, or of a member of it.
func (o Observed) memberOf(index, master int) bool {
	for range 2 {
		l := o.indexed(index)
		if l == nil || l.Master == 0 {
			return false
		}
		if l.Master == master {
			return true
		}
		index = l.Master
	}
	return false
}

// occupied returns the problem that a person gave ip to an interface other than index; empty when there is none.
func occupied(ip netip.Addr, index int, s Observed) string {
	for _, a := range s.Addresses {
		l := s.indexed(a.LinkIndex)
		if a.Prefix.Addr() == ip && l != nil && l.Index != index &&
			(!l.Ours || !l.Record.Made && !l.Record.Owns(a.Prefix)) {
			return fmt.Sprintf("%s is on %s: remove it there", ip, l.Name)
		}
	}
	return ""
}

// keep corrects an interface: first the record notes what will change, last it drops what is no longer there.
func (w want) keep(l Link, s Observed) (actions []action, problems []string) {
	add, problems := w.missing(l, s)
	actions = append(w.firstRecord(l, s, add), w.repairLink(l, s)...)
	for _, p := range add {
		actions = append(actions, l.addAddress(p))
	}
	stale := w.stale(l)
	for _, p := range stale {
		if s.has(l.Index, p) {
			actions = append(actions, l.deleteAddress(p))
		}
	}
	if len(stale) > 0 {
		actions = append(actions, l.update("recorded on "+l.Name+" what was undone", func(record *ownership.Record) {
			record.Forget(stale)
		}))
	}
	return actions, problems
}

// missing are the addresses to add.
func (w want) missing(l Link, s Observed) (add []netip.Prefix, problems []string) {
	for _, ip := range w.NoBlock {
		problems = append(problems, fmt.Sprintf("%s is in no block that is assigned to the network: assign its "+
			"block to it, or give the server another address, in the phoenixNAP portal", ip))
	}
	for _, p := range w.Addresses {
		switch problem := occupied(p.Addr(), l.Index, s); {
		case s.has(l.Index, p):
		case problem != "":
			problems = append(problems, problem)
		case w.otherLength(p, l, s):
			problems = append(problems,
				fmt.Sprintf("%s is on %s with a prefix length other than %d: fix it", p.Addr(), l.Name, p.Bits()))
		default:
			add = append(add, p)
		}
	}
	if w.Fallback.IsValid() && !s.has(l.Index, w.Fallback) && !w.addressed(l, s) {
		add = append(add, w.Fallback)
	}
	return add, problems
}

// otherLength reports whether a person gave the interface the same address with another prefix length.
func (w want) otherLength(p netip.Prefix, l Link, s Observed) bool {
	return s.anyOn(l.Index, func(a check.Address) bool {
		return a.Prefix.Addr() == p.Addr() && a.Prefix != p && !l.Record.Made && !l.Record.Owns(a.Prefix)
	})
}

// addressed reports whether the interface has a permanent address. Addresses of Services come and go.
func (w want) addressed(l Link, s Observed) bool {
	stale := w.stale(l)
	return s.anyOn(l.Index, func(a check.Address) bool {
		virtual := slices.Contains(w.Virtual, a.Prefix.Addr()) || a.Deprecated && a.Prefix.IsSingleIP()
		return !virtual && !slices.Contains(stale, a.Prefix)
	})
}

// stale are recorded addresses that are no longer wanted. While blocks are unknown, existing addresses stay.
func (w want) stale(l Link) []netip.Prefix {
	var stale []netip.Prefix
	for _, p := range l.Record.Addresses {
		if p != w.Fallback && !slices.Contains(w.Addresses, p) &&
			!slices.Contains(w.NoBlock, p.Addr()) && !slices.Contains(stale, p) {
			stale = append(stale, p)
		}
	}
	return stale
}

// firstRecord records what is about to be changed, unless that is recorded already.
func (w want) firstRecord(l Link, s Observed, add []netip.Prefix) []action {
	notRecorded := func(p netip.Prefix) bool { return !l.Record.Owns(p) }
	down := !l.Record.Made && w.needsUp(l, s) && !l.Record.Down
	before := ownership.Settings{}
	if !l.Record.Made {
		for key := range l.Settings.Missing(settingsFor(l.Settings)) {
			if _, noted := l.Record.Before[key]; !noted {
				before[key] = l.Settings[key]
			}
		}
	}
	born := l.Record.Made && l.Alias == ""
	if !slices.ContainsFunc(add, notRecorded) && len(before) == 0 && !down && !born {
		return nil
	}
	return []action{l.update("recorded on "+l.Name+" what changes", func(record *ownership.Record) {
		record.Made = l.Record.Made
		record.Down = record.Down || down
		record.Changes(before)
		for _, p := range add {
			if !record.Owns(p) {
				record.Addresses = append(record.Addresses, p)
			}
		}
	})}
}

// needsUp reports whether the interface must be brought up, and can be: the kernel refuses while the uplink is down.
func (w want) needsUp(l Link, s Observed) bool {
	parent := s.indexed(w.Uplink)
	return !l.Up && parent != nil && parent.Up
}

// repairLink corrects the interface itself. Findings report a wrong MTU or MAC of one that a person made.
func (w want) repairLink(l Link, s Observed) []action {
	var actions []action
	if mtu := w.mtu(s); l.Record.Made && l.MTU != mtu {
		actions = append(actions, l.action(fmt.Sprintf("set MTU %d of %s", mtu, l.Name),
			func(k Kernel, index int) error { return k.SetMTU(index, mtu) }))
	}
	parent := s.indexed(w.Uplink)
	if l.Record.Made && parent != nil && parent.MAC != "" && !strings.EqualFold(l.MAC, parent.MAC) {
		actions = append(actions, l.action("set the hardware address of "+l.Name+" to that of its uplink",
			func(k Kernel, index int) error { return k.SetMAC(index, parent.MAC) }))
	}
	if missing := l.Settings.Missing(settingsFor(l.Settings)); len(missing) > 0 {
		actions = append(actions, l.setSettings(missing))
	}
	if w.needsUp(l, s) {
		actions = append(actions, l.setUp("brought up", true))
	}
	return actions
}

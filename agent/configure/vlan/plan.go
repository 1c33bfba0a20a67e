// Package vlan makes and keeps the VLAN interface of the public network on a node: the interface, its address and its
// settings. It undoes only what it did.
package vlan

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/configure/ownership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
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
	// Addresses with their prefix lengths.
	Addresses []netip.Prefix
	// Fallback is an address for an interface without any other: the kernel neither sends nor answers ARP requests
	// properly on an interface without an address.
	Fallback netip.Prefix
	// NoBlock are addresses of the membership that are in no assigned block, so that their prefix length is unknown.
	NoBlock []netip.Addr
	// Virtual are addresses of Services.
	Virtual []netip.Addr
}

// wanted returns what the node, whose uplink has that index and name, must have.
func wanted(e check.Expected, uplink check.Link) want {
	w := want{ID: e.Network.VLAN, Uplink: uplink.Index, Name: e.Interface, Fixed: e.Interface != "", Virtual: e.Virtual}
	if w.Name == "" {
		w.Name = nameFor(uplink.Name, w.ID)
	}
	for i, ip := range e.Network.IPs {
		if !ip.Is4() || slices.Contains(e.Network.IPs[:i], ip) {
			continue
		}
		if bits, known := prefixLength(e, ip); known {
			w.Addresses = append(w.Addresses, netip.PrefixFrom(ip, bits))
		} else {
			w.NoBlock = append(w.NoBlock, ip)
		}
	}
	if len(w.Addresses) == 0 {
		w.Fallback = netip.PrefixFrom(LinkLocal(e.Network.ServerID), 32)
	}
	return w
}

func prefixLength(e check.Expected, ip netip.Addr) (bits int, known bool) {
	for _, b := range e.Network.Blocks {
		if b.CIDR.Contains(ip) {
			return b.CIDR.Bits(), true
		}
	}
	return 0, false
}

// nameFor is the customary name of a VLAN interface, if it is short enough.
func nameFor(uplink string, id int) string {
	if name := fmt.Sprintf("%s.%d", uplink, id); len(name) <= maxName {
		return name
	}
	return fmt.Sprintf("vlan%d", id)
}

// LinkLocal is the address that the VLAN interface of a server without an address of its own carries, with prefix
// length 32 and scope link. It lies in 169.254.1.0 to 169.254.254.255 (RFC 3927, section 2.1) and follows from the
// server's ID.
func LinkLocal(serverID string) netip.Addr {
	sum := sha256.Sum256([]byte(serverID))
	return netip.AddrFrom4([4]byte{169, 254, 1 + sum[0]%254, sum[1]})
}

// settingsFor are the settings that an interface with these settings must have. arp_ignore may be 1, as kube-proxy's
// strictARP sets it.
func settingsFor(has ownership.Settings) ownership.Settings {
	settings := ownership.Settings{
		ownership.RPFilter: 2, ownership.ARPIgnore: has[ownership.ARPIgnore], ownership.ARPFilter: 0,
		ownership.ARPAnnounce: 2,
		ownership.ProxyARP:    0, ownership.AcceptLocal: 0, ownership.PromoteSecondaries: 1,
	}
	if settings[ownership.ARPIgnore] > 1 || settings[ownership.ARPIgnore] < 0 {
		settings[ownership.ARPIgnore] = 1
	}
	return settings
}

// plan returns the actions, in order, that bring w about on the node, and the problems that prevent it in part. It
// changes only what the agent owns, and adds to an interface that a person made what is missing there.
func plan(w want, s Observed) (actions []action, problems []string) {
	target := w.target(s)
	for _, l := range s.Links {
		if l.Ours && (target == nil || l.Index != target.Index) {
			actions = append(actions, release(l, s)...)
		}
	}
	if w.ID == 0 {
		return actions, nil
	}
	if target == nil {
		if problems = w.blockedReasons(s); len(problems) > 0 {
			return actions, problems
		}
		made := w.planned(s)
		target, actions = &made, append(actions, makeLink{name: w.Name, parent: w.Uplink, id: w.ID, mtu: made.MTU})
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

// planned is the interface as it will be when it is made.
func (w want) planned(s Observed) Link {
	l := Link{
		Link:   check.Link{Name: w.Name, MTU: w.mtu(s), Parent: w.Uplink},
		Ours:   true,
		Record: ownership.Record{Made: true},
	}
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
			problems = append(problems,
				fmt.Sprintf("%s exists and is not a VLAN interface with ID %d on the uplink: delete or fix it", l.Name,
					w.ID))
		case l.VLAN != nil && l.VLAN.ID == w.ID && l.Parent == w.Uplink:
			problems = append(problems, fmt.Sprintf(
				"%s already has the VLAN ID %d on the uplink, with another name or protocol: rename or delete it",
				l.Name, w.ID))
		case l.VLAN != nil && l.VLAN.ID == w.ID && s.enslaved(l.Parent, w.Uplink):
			problems = append(problems,
				fmt.Sprintf("%s takes the frames of VLAN %d from a member of the uplink: delete it", l.Name, w.ID))
		}
	}
	for _, p := range w.Addresses {
		if holder := w.otherHolder(p.Addr(), 0, s); holder != "" {
			problems = append(problems, occupied(p.Addr(), holder))
		}
	}
	return problems
}

func (s Observed) enslaved(index, master int) bool {
	l := s.indexed(index)
	return l != nil && l.Master == master
}

// otherHolder returns an interface other than index to which a person gave ip.
func (w want) otherHolder(ip netip.Addr, index int, s Observed) string {
	for _, a := range s.Addresses {
		l := s.indexed(a.LinkIndex)
		if a.Prefix.Addr() != ip || l == nil || l.Index == index || l.Ours &&
			(l.Record.Made || l.Record.Owns(a.Prefix)) {
			continue
		}
		return l.Name
	}
	return ""
}

func occupied(ip netip.Addr, holder string) string {
	return fmt.Sprintf("%s is on %s: remove it there", ip, holder)
}

// keep corrects an interface: the record first notes what will be changed, then it is changed, then the record drops
// what is no longer there.
func (w want) keep(l Link, s Observed) (actions []action, problems []string) {
	add, problems := w.missing(l, s)
	drop := w.surplus(l, s)
	if a := w.firstRecord(l, s, add); a != nil {
		actions = append(actions, *a)
	}
	actions = append(actions, w.repairLink(l, s)...)
	for _, p := range add {
		actions = append(actions, addAddress{on{l.Index, l.Name}, p})
	}
	for _, p := range drop {
		actions = append(actions, deleteAddress{on{l.Index, l.Name}, p})
	}
	if stale := w.stale(l); len(stale) > 0 {
		actions = append(actions, forget{on: on{l.Index, l.Name}, addresses: stale})
	}
	return actions, problems
}

// missing are the addresses to add.
func (w want) missing(l Link, s Observed) (add []netip.Prefix, problems []string) {
	for _, ip := range w.NoBlock {
		problems = append(problems, fmt.Sprintf("%s is in no block that is assigned to the network", ip))
	}
	for _, p := range w.Addresses {
		switch holder := w.otherHolder(p.Addr(), l.Index, s); {
		case s.has(l.Index, p):
		case holder != "":
			problems = append(problems, occupied(p.Addr(), holder))
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
	return slices.ContainsFunc(s.on(l.Index), func(a check.Address) bool {
		return a.Prefix.Addr() == p.Addr() && a.Prefix != p && !l.Record.Made && !l.Record.Owns(a.Prefix)
	})
}

// addressed reports whether the interface has a permanent address. Addresses of Services come and go.
func (w want) addressed(l Link, s Observed) bool {
	stale := w.stale(l)
	return slices.ContainsFunc(s.on(l.Index), func(a check.Address) bool {
		virtual := slices.Contains(w.Virtual, a.Prefix.Addr()) || a.Deprecated && a.Prefix.IsSingleIP()
		return !virtual && !slices.Contains(stale, a.Prefix)
	})
}

// surplus are addresses of the agent that are no longer wanted.
func (w want) surplus(l Link, s Observed) []netip.Prefix {
	var drop []netip.Prefix
	for _, p := range w.stale(l) {
		if s.has(l.Index, p) {
			drop = append(drop, p)
		}
	}
	return drop
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

// firstRecord returns the action that records what is about to be changed, nil when that is recorded already.
func (w want) firstRecord(l Link, s Observed, add []netip.Prefix) *note {
	n := note{on: on{l.Index, l.Name}, made: l.Record.Made}
	for _, p := range add {
		if !l.Record.Owns(p) {
			n.addresses = append(n.addresses, p)
		}
	}
	if !l.Record.Made {
		n.before = l.before()
		n.down = w.needsUp(l, s) && !l.Record.Down
	}
	born := l.Record.Made && l.Alias == ""
	if len(n.addresses) == 0 && len(n.before) == 0 && !n.down && !born {
		return nil
	}
	return &n
}

// before are the present values of settings that will be changed and are not recorded yet.
func (l Link) before() ownership.Settings {
	before := ownership.Settings{}
	for key := range l.Settings.Missing(settingsFor(l.Settings)) {
		if _, noted := l.Record.Before[key]; !noted {
			before[key] = l.Settings[key]
		}
	}
	return before
}

// needsUp reports whether the interface must be brought up, and can be: the kernel refuses while the uplink is down.
func (w want) needsUp(l Link, s Observed) bool {
	parent := s.indexed(w.Uplink)
	return !l.Up && parent != nil && parent.Up
}

// repairLink corrects the interface itself. The MTU and the hardware address of an interface that a person made are
// left as they are; findings report them.
func (w want) repairLink(l Link, s Observed) []action {
	var actions []action
	if mtu := w.mtu(s); l.Record.Made && l.MTU != mtu {
		actions = append(actions, setMTU{on{l.Index, l.Name}, mtu})
	}
	parent := s.indexed(w.Uplink)
	if l.Record.Made && parent != nil && parent.MAC != "" && !strings.EqualFold(l.MAC, parent.MAC) {
		actions = append(actions, setMAC{on{l.Index, l.Name}, parent.MAC})
	}
	if missing := l.Settings.Missing(settingsFor(l.Settings)); len(missing) > 0 {
		actions = append(actions, setSettings{on{l.Index, l.Name}, missing})
	}
	if w.needsUp(l, s) {
		actions = append(actions, setUp{on{l.Index, l.Name}, true})
	}
	return actions
}

// release undoes what was done to a link.
func release(l Link, s Observed) []action {
	if l.Unreadable != "" {
		return nil
	}
	if l.Record.Made {
		return []action{deleteLink{on{l.Index, l.Name}}}
	}
	var actions []action
	for _, p := range l.Record.Addresses {
		if s.has(l.Index, p) {
			actions = append(actions, deleteAddress{on{l.Index, l.Name}, p})
		}
	}
	if back := l.Settings.Missing(l.Record.Before); len(back) > 0 {
		actions = append(actions, setSettings{on{l.Index, l.Name}, back})
	}
	if l.Record.Down && l.Up {
		actions = append(actions, setUp{on{l.Index, l.Name}, false})
	}
	return append(actions, forget{on: on{l.Index, l.Name}, all: true})
}

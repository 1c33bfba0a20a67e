package check

import (
	"net/netip"
	"slices"
	"strings"
)

// A trunk is what leads to the switch of the server, and carries several VLANs: a bond, or a network card that belongs
// to none. Its links are the members of the bond, the trunk itself, and a bridge that has it as its port, as
// hypervisors make one. VLAN interfaces of the network sit on the trunk or on that bridge, which are its carriers: the
// kernel gives a frame to a VLAN interface of the bond before the bridge sees it, and all others to the bridge.

// trunkTypes are the types of links that may lead to a switch. A veth is a network card in a container, and an
// interface of Open vSwitch one whose ports netlink does not show.
var trunkTypes = []string{"", "device", "bond", "team", "veth", "bridge", "openvswitch"}

// bonding reports whether a link has members that together are one trunk.
func (l Link) bonding() bool { return l.Type == "bond" || l.Type == "team" }

// trunkOf returns the trunk that a link belongs to; nil for one that belongs to none, such as a VLAN interface, or a
// bridge that has no such port.
func (s Snapshot) trunkOf(l *Link) *Link {
	if l == nil || l.VLAN != nil || l.Name == "lo" || !slices.Contains(trunkTypes, l.Type) {
		return nil
	}
	if l.Type == "bridge" {
		return s.trunkOfBridge(l)
	}
	if master := s.LinkIndexed(l.Master); l.Master != 0 && master != nil && master.bonding() {
		return master
	}
	return l
}

// trunkOfBridge is the only port that leads to a switch. With several, the bridge itself is what they have in common.
func (s Snapshot) trunkOfBridge(bridge *Link) *Link {
	var ports []*Link
	for i := range s.Links {
		l := &s.Links[i]
		if l.Master == bridge.Index && (l.bonding() || l.Type == "" || l.Type == "device") {
			ports = append(ports, l)
		}
	}
	switch len(ports) {
	case 0:
		return nil
	case 1:
		return ports[0]
	default:
		return bridge
	}
}

// maxLayers bounds how many links may be on top of each other.
const maxLayers = 8

// under returns the trunk that a link is on, through any VLAN interface, bridge or other link between them.
func (s Snapshot) under(l *Link) *Link {
	for range maxLayers {
		if trunk := s.trunkOf(l); trunk != nil || l == nil {
			return trunk
		}
		if l.Type == "bridge" {
			l = s.onlyPort(l)
		} else {
			l = s.LinkIndexed(l.Parent)
		}
	}
	return nil
}

// onlyPort returns the VLAN interface that is a port of a bridge; nil when there is none, or more than one.
func (s Snapshot) onlyPort(bridge *Link) *Link {
	var port *Link
	for i := range s.Links {
		if l := &s.Links[i]; l.Master == bridge.Index && l.VLAN != nil {
			if port != nil {
				return nil
			}
			port = l
		}
	}
	return port
}

// carriesVLANs reports whether VLAN interfaces of a trunk may sit on a link: the trunk or the bridge over it.
func (s Snapshot) carriesVLANs(l, trunk *Link) bool {
	own := s.trunkOf(l)
	return own != nil && trunk != nil && own.Index == trunk.Index && (l.Index == trunk.Index || l.Type == "bridge")
}

// uplink is the link that carries the VLANs of the server, and the trunk that it belongs to, which may be the same.
type uplink struct {
	link, trunk *Link
	// meant are the links of which one has to be named, because nothing shows which one leads to the network.
	meant []string
}

// findUplink finds the trunk that leads to the network, and the carrier that the VLAN interface is on or has to be on.
// A VLAN ID by itself shows nothing: it counts for one switch, and a server may be connected to another one, too.
func findUplink(e Expected, s Snapshot) uplink {
	if e.Uplink != "" {
		named := s.LinkNamed(e.Uplink)
		if trunk := s.trunkOf(named); trunk != nil {
			return uplink{link: e.carrier(s, trunk, named), trunk: trunk}
		}
		return uplink{link: named, trunk: named}
	}
	for _, evidence := range []struct {
		trunks func(Expected, Snapshot) []*Link
		proves bool
	}{
		{trunksByInterface, true}, {trunksByAddress, true}, {trunksByDefaultRoute, true}, {trunksByNodeAddress, true},
		{trunksByKind, false}, {trunksByVLAN, false},
	} {
		found := distinct(evidence.trunks(e, s))
		switch {
		case len(found) == 1 && (evidence.proves || !e.inAnotherNetwork(s, found[0])):
			return uplink{link: e.carrier(s, found[0], nil), trunk: found[0]}
		case len(found) > 0:
			return uplink{meant: names(found)}
		}
	}
	return uplink{}
}

func names(links []*Link) []string {
	list := make([]string, len(links))
	for i, l := range links {
		list[i] = l.Name
	}
	return list
}

// inAnotherNetwork reports that a trunk, which nothing proves to be the network's, has an interface with its VLAN ID
// and only addresses of another network, while the machine has further bonds or network cards.
func (e Expected) inAnotherNetwork(s Snapshot, trunk *Link) bool {
	vlan := e.vlanOn(s, trunk)
	if vlan == nil || len(s.hostPrefixes(*vlan)) == 0 || e.addressed(s, vlan) {
		return false
	}
	return slices.ContainsFunc(s.Links, func(l Link) bool {
		other := s.trunkOf(&l)
		return other != nil && other.Index != trunk.Index && (l.Type == "device" || l.bonding())
	})
}

// distinct sorts links by name, and drops nil and those that are there twice.
func distinct(links []*Link) []*Link {
	links = slices.DeleteFunc(links, func(l *Link) bool { return l == nil })
	slices.SortFunc(links, func(a, b *Link) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(links, func(a, b *Link) bool { return a.Index == b.Index })
}

// trunksByInterface: a person who names the VLAN interface names its trunk.
func trunksByInterface(e Expected, s Snapshot) []*Link {
	if l := s.LinkNamed(e.Interface); e.Interface != "" && l != nil && e.isVLAN(*l) {
		return []*Link{s.under(l)}
	}
	return nil
}

// trunksByAddress: the VLAN interface, or a bridge over it, has the server's address in the network, or one of a block.
func trunksByAddress(e Expected, s Snapshot) []*Link {
	var member, block []*Link
	for _, a := range s.Addresses {
		l := s.LinkIndexed(a.LinkIndex)
		if l != nil && l.Type == "bridge" && s.trunkOf(l) == nil {
			l = s.onlyPort(l)
		}
		if l == nil || !e.isVLAN(*l) || e.isVirtual(a) || e.isGateway(a.Prefix.Addr()) {
			continue
		}
		if slices.Contains(e.Network.IPs, a.Prefix.Addr()) {
			member = append(member, s.under(l))
		} else if _, known := e.block(a.Prefix.Addr()); known {
			block = append(block, s.under(l))
		}
	}
	if len(member) > 0 {
		return member
	}
	return block
}

// trunksByDefaultRoute: the networks of phoenixNAP are on the trunk by which the server reaches the Internet.
func trunksByDefaultRoute(_ Expected, s Snapshot) []*Link {
	var trunks []*Link
	least := 0
	for _, r := range s.Tables[TableMain] {
		trunk := s.under(s.LinkIndexed(r.LinkIndex))
		if r.Destination.Bits() != 0 || trunk == nil || len(trunks) > 0 && r.Metric > least {
			continue
		}
		if r.Metric < least {
			trunks = nil
		}
		least = r.Metric
		trunks = append(trunks, trunk)
	}
	return s.orBonds(trunks)
}

// trunksByNodeAddress: without a default route, the trunk by which the other nodes are reached.
func trunksByNodeAddress(e Expected, s Snapshot) []*Link {
	var trunks []*Link
	for _, a := range s.Addresses {
		if slices.Contains(e.NodeAddresses, a.Prefix.Addr()) && !e.isVirtual(a) {
			trunks = append(trunks, s.under(s.LinkIndexed(a.LinkIndex)))
		}
	}
	return s.orBonds(distinct(trunks))
}

// orBonds adds the bonds where the route or address is on none of them: a phoenixNAP server has its networks on a bond,
// so either may be meant.
func (s Snapshot) orBonds(trunks []*Link) []*Link {
	if len(trunks) == 0 || slices.ContainsFunc(trunks, func(l *Link) bool { return !s.physical(l) || l.bonding() }) {
		return trunks
	}
	return append(trunks, s.links(func(l Link) bool { return l.bonding() })...)
}

// physical reports whether a trunk is a network card or a bond, not something of which netlink does not show what is
// below it.
func (s Snapshot) physical(l *Link) bool {
	return l.bonding() || slices.Contains([]string{"", "device", "veth"}, l.Type)
}

// trunksByKind: a phoenixNAP server has its networks on a bond, which its images call bond0.
func trunksByKind(_ Expected, s Snapshot) []*Link {
	if bonds := s.links(func(l Link) bool { return l.bonding() }); len(bonds) > 0 {
		return bonds
	}
	return s.links(func(l Link) bool { return l.Name == "bond0" })
}

// trunksByVLAN: what has VLAN interfaces, the network's before others.
func trunksByVLAN(e Expected, s Snapshot) []*Link {
	var ours, all []*Link
	for i := range s.Links {
		l := &s.Links[i]
		if parent := s.LinkIndexed(l.Parent); l.VLAN != nil && parent != nil && parent.Master == 0 {
			all = append(all, s.trunkOf(parent))
			if e.isVLAN(*l) {
				ours = append(ours, s.trunkOf(parent))
			}
		}
	}
	if ours = distinct(ours); len(ours) > 0 {
		return ours
	}
	return all
}

// links returns the links that match.
func (s Snapshot) links(match func(Link) bool) []*Link {
	var found []*Link
	for i := range s.Links {
		if match(s.Links[i]) {
			found = append(found, &s.Links[i])
		}
	}
	return found
}

// carrier is the link of a trunk that the VLAN interface is on. Without one it is what a person named, else the bridge
// over the trunk, whose other ports keep the VLAN then.
func (e Expected) carrier(s Snapshot, trunk, named *Link) *Link {
	if vlan := e.vlanOn(s, trunk); vlan != nil {
		if parent := s.LinkIndexed(vlan.Parent); s.carriesVLANs(parent, trunk) {
			return parent
		}
	}
	if named != nil && s.carriesVLANs(named, trunk) {
		return named
	}
	if bridge := s.LinkIndexed(trunk.Master); trunk.Master != 0 && bridge != nil && s.carriesVLANs(bridge, trunk) {
		return bridge
	}
	return trunk
}

// vlanOn finds the interface of a trunk with the network's VLAN ID: the best by vlanRank, then by name.
func (e Expected) vlanOn(s Snapshot, trunk *Link) *Link {
	var best *Link
	least := 0
	for i := range s.Links {
		l := &s.Links[i]
		rank, ours := e.vlanRank(s, l, trunk)
		if ours && (best == nil || rank < least || rank == least && l.Name < best.Name) {
			best = l
			least = rank
		}
	}
	return best
}

// vlanRank orders the interfaces with the network's VLAN ID on a trunk. One with another between it and the trunk, such
// as an inner VLAN, counts only with an address of the network: its ID is one of another network.
func (e Expected) vlanRank(s Snapshot, l, trunk *Link) (rank int, ours bool) {
	below := s.under(l)
	if !e.isVLAN(*l) || trunk == nil || below == nil || below.Index != trunk.Index {
		return 0, false
	}
	parent := s.LinkIndexed(l.Parent)
	addressed := e.addressed(s, l)
	switch {
	case s.carriesVLANs(parent, trunk) && l.VLAN.Protocol == protocol8021Q && addressed:
		return 0, true
	case s.carriesVLANs(parent, trunk) && l.VLAN.Protocol == protocol8021Q && parent.Index == trunk.Index:
		return 1, true
	case s.carriesVLANs(parent, trunk) && l.VLAN.Protocol == protocol8021Q:
		return 2, true
	case s.trunkOf(parent) != nil && addressed:
		return 3, true
	case s.trunkOf(parent) != nil:
		return 4, true
	default:
		return 5, addressed
	}
}

// addressed reports whether a link has an address of the network that does not move.
func (e Expected) addressed(s Snapshot, l *Link) bool {
	return slices.ContainsFunc(s.Addresses, func(a Address) bool {
		_, inBlock := e.block(a.Prefix.Addr())
		return a.LinkIndex == l.Index && !e.isVirtual(a) && !e.isGateway(a.Prefix.Addr()) &&
			(inBlock || slices.Contains(e.Network.IPs, a.Prefix.Addr()))
	})
}

// onTrunk reports whether a VLAN interface is directly on a link of the trunk: a carrier or a member.
func (v view) onTrunk(l Link) bool {
	parent := v.trunkOf(v.LinkIndexed(l.Parent))
	return l.VLAN != nil && parent != nil && v.trunk != nil && parent.Index == v.trunk.Index
}

// keeps returns why no fix may delete a link: what else would be lost with it. Empty when nothing would but addresses
// that are in expendable.
func (v view) keeps(l Link, expendable ...netip.Addr) string {
	if !v.onTrunk(l) {
		return l.Name + " is not on " + v.trunk.Name
	}
	if master := v.LinkIndexed(l.Master); l.Master != 0 && master != nil {
		return l.Name + " is a port of " + master.Name
	}
	if above := v.link(func(o Link) bool { return o.Parent == l.Index }); above != nil {
		return above.Name + " is on " + l.Name
	}
	var own []string
	for _, a := range v.Addresses {
		addr := a.Prefix.Addr()
		if a.LinkIndex == l.Index && !addr.IsLinkLocalUnicast() && !v.isVirtual(a) &&
			!slices.Contains(expendable, addr) {
			own = append(own, a.Prefix.String())
		}
	}
	if len(own) > 0 {
		return l.Name + " has the address " + strings.Join(sorted(own), " and ")
	}
	return ""
}

// defaultsOver returns the default routes over a link, the preferred first.
func (s Snapshot) defaultsOver(index int) []Route {
	var routes []Route
	for _, r := range s.Tables[TableMain] {
		if r.LinkIndex == index && r.Destination.Bits() == 0 && r.Gateway.IsValid() {
			routes = append(routes, r)
		}
	}
	slices.SortFunc(routes, func(a, b Route) int {
		if a.Metric != b.Metric {
			return a.Metric - b.Metric
		}
		return a.Gateway.Compare(b.Gateway)
	})
	return routes
}

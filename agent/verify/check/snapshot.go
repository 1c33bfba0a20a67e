package check

import (
	"net/netip"
	"slices"
	"time"
)

// Snapshot is the state of one node at one moment: values only, no handles.
type Snapshot struct {
	// Hostname as the kernel knows it.
	Hostname string
	// Links are all network interfaces of the node's network namespace, Addresses all their addresses.
	Links     []Link
	Addresses []Address
	// Settings are the IPv4 settings under net/ipv4/conf, by interface name and for "all". Only "all", VLAN interfaces
	// and the links below them are read.
	Settings map[string]Settings
	// IPForward is net.ipv4.ip_forward.
	IPForward bool
	// IPVSReroute is net.ipv4.vs.snat_reroute, see checkIPVSReplies. False where IPVS is not loaded.
	IPVSReroute bool
	// Rules are the IPv4 routing rules.
	Rules []Rule
	// Tables are the IPv4 routes by table: of "main" (254) and of every table that a rule names. Of main only default
	// routes, those over VLAN links, and the way to a pod or two are kept.
	Tables map[int][]Route
	// Programs are the eBPF programs of tc filters on VLAN interfaces and the links below them.
	Programs []Program
	// Machine is what the firmware and cloud-init report about the machine.
	Machine Machine
	// ARP and Routes hold the answers to what Questions asked for.
	ARP    []ARPAnswer
	Routes []RouteAnswer
	// Renderer is the tool that seems to configure the node's network; empty when none was recognised.
	Renderer Tool
	// Unread names what could not be read, and why: "net/ipv4/ip_forward: permission denied".
	Unread []string
}

// Link is a network interface.
type Link struct {
	Index int
	Name  string
	// Type is the kernel's word for the kind of link: "device", "bond", "vlan", "veth", "bridge" …
	Type string
	// MAC in lower case, empty when the link has none; MTU in bytes.
	MAC string
	MTU int
	// Up is the administrative state (IFF_UP); LowerUp reports whether the layer below has a carrier (IFF_LOWER_UP).
	Up, LowerUp bool
	// OperState is the operational state of RFC 2863 in the kernel's words: "up", "down", "lower-layer-down" …
	OperState string
	// Parent is the index of the link below a VLAN, MACVLAN, IPVLAN or VXLAN link, Master that of its bond or bridge; 0
	// when there is none here.
	Parent, Master int
	// VLANAware reports that the link is a bridge that filters VLANs, so that it has to be given each of them.
	VLANAware bool
	// NoARP reports that the link neither asks nor answers by ARP (IFF_NOARP).
	NoARP bool
	// XDP reports that an XDP program is attached to the link.
	XDP bool
	// Alias is the free text of the link (IFLA_IFALIAS); the managing agent marks its own links with it.
	Alias string
	// VLAN is set for a VLAN link, Bond for a bond, Slave for a member of a bond.
	VLAN  *VLAN
	Bond  *Bond
	Slave *Slave
}

// VLAN is what makes a link a VLAN link: an ID from 1 to 4094, and the protocol "802.1q" or "802.1ad".
type VLAN struct {
	ID       int
	Protocol string
}

// Bond is the state of a bond.
type Bond struct {
	// Mode in the kernel's words: "802.3ad", "active-backup" …
	Mode string
	// PartnerMAC is the address of the LACP partner, empty when there is none or the mode has none.
	PartnerMAC string
	// MinLinks is how many members must have a carrier before the bond has one (mode 802.3ad).
	MinLinks int
	// Aggregator is the ID of the active aggregator (IEEE 802.1AX), 0 when the mode has none.
	Aggregator int
}

// Slave is the state of a link as a member of a bond.
type Slave struct {
	// Up reports whether the bond's own monitor considers the member up (IFLA_BOND_SLAVE_MII_STATUS).
	Up bool
	// Aggregator is the ID of the aggregator that the member belongs to, 0 when the mode has none.
	Aggregator int
	// NoPartner reports that the member has no LACP partner (IEEE 802.1AX, state Defaulted).
	NoPartner bool
	// PermanentMAC is the hardware address that the member had before it joined, in lower case.
	PermanentMAC string
}

// Tables of every Linux machine (rtnetlink(7)).
const (
	TableDefault = 253
	TableMain    = 254
	TableLocal   = 255
)

// Rule is an IPv4 routing rule (ip-rule(8)). Selectors that the checks do not know are not kept, so a rule may be
// narrower than it looks.
type Rule struct {
	Priority int
	// Source and Destination are the zero Prefix where the rule asks for none.
	Source, Destination netip.Prefix
	// Mark and Mask select packets whose mark, masked, equals Mark; Mask is 0 where the rule asks for none.
	Mark, Mask uint32
	// Iif and Oif are names of interfaces, empty where the rule asks for none.
	Iif, Oif string
	// Invert reports that the rule selects what does not match.
	Invert bool
	// Table is where the rule looks a route up; 0 when it does something else.
	Table int
	// Protocol is who made the rule (FRA_PROTOCOL).
	Protocol int
}

// Route is one next hop of an IPv4 route.
type Route struct {
	// Destination is 0.0.0.0/0 for a default route.
	Destination netip.Prefix
	// Gateway is the zero Addr when the destination is on the link.
	Gateway netip.Addr
	// LinkIndex is the index of the interface, 0 for a route that refuses.
	LinkIndex int
	// Type in the words of ip-route(8): "unicast", "local", "blackhole", "unreachable", "prohibit", "throw" …
	Type string
	// Metric is the priority; the smallest wins. Protocol is who made the route (RTA_PROTOCOL).
	Metric, Protocol int
}

// Machine is what a machine knows of itself besides its network. Empty values could not be read or do not exist.
type Machine struct {
	// ServerID is the phoenixNAP server ID: 24 hexadecimal digits found in the place that ServerIDFrom names.
	ServerID, ServerIDFrom string
	// Product, Serial and UUID are those of the firmware (DMI).
	Product, Serial, UUID string
	// InstanceID and LocalHostname are those of cloud-init.
	InstanceID, LocalHostname string
}

// Address is an address of an interface, with its prefix length.
type Address struct {
	LinkIndex int
	Prefix    netip.Prefix
	// Deprecated reports that the preferred lifetime is over (IFA_F_DEPRECATED): kube-vip adds its addresses so.
	Deprecated bool
}

// ARPAnswer is what was received after an ARP request.
type ARPAnswer struct {
	// Target is the address that was asked for; Source the sender of the request (0.0.0.0 for a probe of RFC 5227).
	Target, Source netip.Addr
	// MACs are the hardware addresses that claimed Target, sorted, in lower case.
	MACs []string
	// Replied reports whether at least one claim was a reply to the request.
	Replied bool
	// RTT is the round trip of the first reply, Within the longest that it can have been if requests were repeated.
	RTT, Within time.Duration
	// Error is why the request could not be sent; empty when it was.
	Error string
}

// RouteAnswer is the kernel's answer to a route look-up (RTM_GETROUTE).
type RouteAnswer struct {
	RouteQuestion
	// By is the interface that the packet came in by, where the question left it to be found; else empty.
	By string
	// Interface is the name of the interface by which it leaves; empty when there is no route.
	Interface string
	// Gateway is the next hop, the zero Addr when the destination is on the link.
	Gateway netip.Addr
	// Local reports that the packet is for this machine.
	Local bool
	// Pinned is the hardware address of a manual entry in the neighbour table for a destination on the link (state
	// permanent); the kernel does not ask for it by ARP. Empty when there is none.
	Pinned string
	// Error is the kernel's error, empty when there is a route.
	Error string
}

func (s Snapshot) link(match func(Link) bool) *Link {
	var found *Link
	for i := range s.Links {
		// The smallest name wins, so that the order of the dump does not matter.
		if match(s.Links[i]) && (found == nil || s.Links[i].Name < found.Name) {
			found = &s.Links[i]
		}
	}
	return found
}

// LinkNamed returns the link of that name, or nil.
func (s Snapshot) LinkNamed(name string) *Link {
	return firstLink(s.Links, func(l *Link) bool { return l.Name == name })
}

// LinkIndexed returns the link with that index, or nil.
func (s Snapshot) LinkIndexed(index int) *Link {
	return firstLink(s.Links, func(l *Link) bool { return l.Index == index })
}

// firstLink copies nothing: a node may have hundreds of pod interfaces.
func firstLink(links []Link, match func(*Link) bool) *Link {
	for i := range links {
		if match(&links[i]) {
			return &links[i]
		}
	}
	return nil
}

// Holds returns the names of the interfaces that carry addr, sorted.
func (s Snapshot) Holds(addr netip.Addr) []string {
	var names []string
	for _, a := range s.Addresses {
		if a.Prefix.Addr() == addr {
			if l := s.LinkIndexed(a.LinkIndex); l != nil {
				names = append(names, l.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}

func (s Snapshot) arp(target netip.Addr) (ARPAnswer, bool) {
	return first(s.ARP, func(a ARPAnswer) bool { return a.Target == target })
}

// route returns the answer to a question.
func (s Snapshot) route(q RouteQuestion) (RouteAnswer, bool) {
	return first(s.Routes, func(r RouteAnswer) bool { return r.RouteQuestion == q })
}

// first returns the first value that matches.
func first[T any](values []T, match func(T) bool) (found T, ok bool) {
	for _, value := range values {
		if match(value) {
			return value, true
		}
	}
	return found, false
}

package check

import (
	"net/netip"
	"time"
)

// Snapshot is what was seen on one node at one moment: values only, no handles.
type Snapshot struct {
	// Hostname as the kernel knows it.
	Hostname string
	// Links are all network interfaces of the node's network namespace.
	Links []Link
	// Addresses are all addresses of those interfaces.
	Addresses []Address
	// Settings are the IPv4 settings under net/ipv4/conf, by interface name and for "all". Only "all" and VLAN
	// interfaces are read.
	Settings map[string]Settings
	// IPForward is net.ipv4.ip_forward.
	IPForward bool
	// ARP holds the answers to the questions that Questions asked for.
	ARP []ARPAnswer
	// Routes holds the route look-ups that Questions asked for.
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
	// MAC in lower case, empty when the link has none.
	MAC string
	// MTU in bytes.
	MTU int
	// Up is the administrative state (IFF_UP).
	Up bool
	// LowerUp tells whether the layer below has a carrier (IFF_LOWER_UP).
	LowerUp bool
	// OperState is the operational state of RFC 2863 in the kernel's words: "up", "down", "lower-layer-down" …
	OperState string
	// Parent is the index of the link below a VLAN link, 0 when there is none in this namespace.
	Parent int
	// Master is the index of the bond or bridge that the link is enslaved to, 0 when there is none.
	Master int
	// VLAN is set for a VLAN link.
	VLAN *VLAN
	// Bond is set for a bond.
	Bond *Bond
}

// VLAN is what makes a link a VLAN link.
type VLAN struct {
	// ID is the VLAN ID, 1 to 4094.
	ID int
	// Protocol is "802.1q" or "802.1ad".
	Protocol string
}

// Bond is the state of a bond.
type Bond struct {
	// Mode in the kernel's words: "802.3ad", "active-backup" …
	Mode string
	// PartnerMAC is the address of the LACP partner, empty when there is none or the mode has none.
	PartnerMAC string
}

// Address is an address of an interface.
type Address struct {
	// LinkIndex is the index of the interface.
	LinkIndex int
	// Prefix is the address with its prefix length.
	Prefix netip.Prefix
	// Deprecated tells that the preferred lifetime is over (IFA_F_DEPRECATED): kube-vip adds its addresses so.
	Deprecated bool
}

// Settings are the settings of net/ipv4/conf/<interface> that decide about traffic of the public network
// (Documentation/networking/ip-sysctl.rst of the Linux kernel).
type Settings struct {
	RPFilter    int
	ARPIgnore   int
	ARPAnnounce int
	ARPFilter   int
	ProxyARP    int
}

// ARPAnswer is what was heard after an ARP request.
type ARPAnswer struct {
	// Target is the address that was asked for; Source the sender address of the request (0.0.0.0 for a
	// probe of RFC 5227).
	Target, Source netip.Addr
	// MACs are the hardware addresses that claimed Target, sorted, in lower case.
	MACs []string
	// Replied tells whether at least one claim was a reply to the request.
	Replied bool
	// RTT is the time to the first reply.
	RTT time.Duration
	// Error says why the question could not be put; empty when it was.
	Error string
}

// RouteAnswer is the kernel's answer to a route look-up (RTM_GETROUTE).
type RouteAnswer struct {
	// Destination and Source of the packet looked up; Source is the zero Addr when the kernel may choose.
	Destination, Source netip.Addr
	// Interface is the name of the interface by which it leaves; empty when there is no route.
	Interface string
	// Gateway is the next hop, the zero Addr when the destination is on the link.
	Gateway netip.Addr
	// Error is the kernel's refusal, empty when there is a route.
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
	return s.link(func(l Link) bool { return l.Name == name })
}

// LinkIndexed returns the link with that index, or nil.
func (s Snapshot) LinkIndexed(index int) *Link {
	return s.link(func(l Link) bool { return l.Index == index })
}

// Holds returns the names of the interfaces that carry addr, in the order of the addresses.
func (s Snapshot) Holds(addr netip.Addr) []string {
	var names []string
	for _, a := range s.Addresses {
		if a.Prefix.Addr() != addr {
			continue
		}
		if l := s.LinkIndexed(a.LinkIndex); l != nil {
			names = append(names, l.Name)
		}
	}
	return names
}

func (s Snapshot) arp(target netip.Addr) (ARPAnswer, bool) {
	for _, a := range s.ARP {
		if a.Target == target {
			return a, true
		}
	}
	return ARPAnswer{}, false
}

func (s Snapshot) route(destination, source netip.Addr) (RouteAnswer, bool) {
	for _, r := range s.Routes {
		if r.Destination == destination && r.Source == source {
			return r, true
		}
	}
	return RouteAnswer{}, false
}

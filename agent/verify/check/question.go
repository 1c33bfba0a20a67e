package check

import (
	"net/netip"
)

// Question is an ARP request to put on the VLAN interface.
type Question struct {
	Target netip.Addr
	// Source is the sender address; 0.0.0.0 makes it a probe (RFC 5227, section 2.1.1).
	Source netip.Addr
}

// RouteQuestion is a route look-up to make (RTM_GETROUTE). The zero values of all but Destination ask what the kernel
// would do with a packet of its own.
type RouteQuestion struct {
	// Destination and Source of the packet; Source is the zero Addr when the kernel may choose.
	Destination, Source netip.Addr
	// Iif is the name of the interface that the packet comes in by; empty for a packet of this machine.
	Iif string
	// Forwarded asks for a packet that comes in by the interface that leads to Source, as a pod's does.
	Forwarded bool
	// Mark is the packet's mark.
	Mark uint32
}

// Questions returns what else must be asked before a snapshot of links and addresses can be evaluated.
func Questions(expected Expected, snapshot Snapshot) (link string, asks []Question, routes []RouteQuestion) {
	v := look(expected, snapshot)
	if v.vlan == nil {
		return "", nil, nil
	}
	routes = v.routeQuestions()
	if !v.vlan.Up || !v.vlan.LowerUp {
		return v.vlan.Name, nil, routes
	}
	for _, p := range v.own {
		asks = append(asks, Question{Target: p.Addr(), Source: netip.IPv4Unspecified()})
	}
	for _, b := range v.blocks4() {
		if source, found := v.sourceFor(b.Gateway); found {
			asks = append(asks, Question{Target: b.Gateway, Source: source})
		}
	}
	return v.vlan.Name, asks, routes
}

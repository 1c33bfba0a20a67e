package check

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// becauseOf stands before the check that is to blame for a skipped one.
const becauseOf = "because of "

func ok(observed string) Finding       { return Finding{Status: OK, Observed: observed} }
func notApplicable(why string) Finding { return Finding{Status: Skip, Because: why} }

func undetermined(reason, cause string, fixes ...Fix) Finding {
	return Finding{Status: Unknown, Reason: reason, Cause: cause, Fixes: fixes}
}

// view is a snapshot seen with the expectation in mind.
type view struct {
	Expected
	Snapshot
	// uplink is the link that the VLAN interface is on or has to be on, trunk what that leads through, see findUplink;
	// meant are the links of which one has to be named.
	uplink *Link
	trunk  *Link
	meant  []string
	vlan   *Link
	// own are the node's own IPv4 addresses on the VLAN interface, sorted.
	own []netip.Prefix
}

// Evaluate checks a snapshot. It is a pure function, and the order of the values in the snapshot does not matter.
func Evaluate(expected Expected, snapshot Snapshot) Report {
	v := look(expected, snapshot)
	report := Report{Server: expected.Network.ServerID}
	if v.vlan != nil {
		report.Interface = v.vlan.Name
	}
	if v.uplink != nil {
		report.Uplink = v.uplink.Name
	}
	if source, found := v.source(); found {
		report.Source = source.String()
	}
	// deeper holds, for each check that did not pass, the check that is to blame.
	deeper := map[ID]ID{}
	for _, c := range Catalogue() {
		f := Finding{Status: Skip}
		i := slices.IndexFunc(c.DependsOn, func(id ID) bool { return deeper[id] != "" })
		if i >= 0 {
			deeper[c.ID] = deeper[c.DependsOn[i]]
			f.Because = becauseOf + string(deeper[c.ID])
		} else if f = c.evaluate(v); f.Status == Fail || f.Status == Unknown {
			deeper[c.ID] = c.ID
		}
		report.Findings = append(report.Findings, c.declare(f))
	}
	return report
}

func look(expected Expected, snapshot Snapshot) view {
	v := view{Expected: expected, Snapshot: snapshot}
	if !expected.Published {
		return v
	}
	up := findUplink(expected, snapshot)
	v.uplink = up.link
	v.trunk = up.trunk
	v.meant = up.meant
	v.vlan = findVLAN(expected, snapshot, up.trunk)
	v.own = ownAddresses(expected, snapshot, v.vlan)
	return v
}

// findVLAN finds the VLAN interface that a person named, else the one with the VLAN ID on the trunk of the uplink,
// whatever its name. Without an uplink, no interface is known to be the network's.
func findVLAN(e Expected, s Snapshot, trunk *Link) *Link {
	if e.Interface != "" {
		return s.LinkNamed(e.Interface)
	}
	return e.vlanOn(s, trunk)
}

// ownAddresses leaves out gateways, and addresses of Services, which their announcer adds as a deprecated /32.
func ownAddresses(e Expected, s Snapshot, vlan *Link) []netip.Prefix {
	if vlan == nil {
		return nil
	}
	var own []netip.Prefix
	for _, a := range s.Addresses {
		if a.LinkIndex == vlan.Index && a.Prefix.Addr().Is4() && !e.isVirtual(a) && !e.isGateway(a.Prefix.Addr()) {
			own = append(own, a.Prefix)
		}
	}
	slices.SortFunc(own, func(a, b netip.Prefix) int {
		// An interface may have one address with two prefix lengths.
		return cmp.Or(strings.Compare(a.Addr().StringExpanded(), b.Addr().StringExpanded()),
			cmp.Compare(a.Bits(), b.Bits()))
	})
	return own
}

// isVLAN reports whether a link has the VLAN ID of the network.
func (e Expected) isVLAN(l Link) bool { return l.VLAN != nil && l.VLAN.ID == e.Network.VLAN }

func (e Expected) isVirtual(a Address) bool {
	return slices.Contains(e.Virtual, a.Prefix.Addr()) || a.Deprecated && a.Prefix.IsSingleIP()
}

func (e Expected) isGateway(addr netip.Addr) bool {
	b, known := e.block(addr)
	return known && b.Gateway == addr
}

// sourceFor is the sender address of a request for target: the node's own address in target's block, else any of
// its own addresses. With the address of a Service, it would rewrite the ARP entry of every machine (RFC 826).
func (v view) sourceFor(target netip.Addr) (netip.Addr, bool) {
	block, known := v.block(target)
	for _, p := range v.own {
		if known && block.CIDR.Contains(p.Addr()) {
			return p.Addr(), true
		}
	}
	return v.source()
}

func (v view) source() (netip.Addr, bool) {
	for _, p := range v.own {
		if _, inBlock := v.block(p.Addr()); inBlock {
			return p.Addr(), true
		}
	}
	p, found := first(v.own, netip.Prefix.IsValid)
	return p.Addr(), found
}

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

// maxNames keeps evidence readable on a node with hundreds of pod interfaces.
const maxNames = 8

// sortedNames writes the texts of the links that have one, sorted, or "none".
func sortedNames(links []Link, text func(Link) (string, bool)) string {
	var names []string
	for _, l := range links {
		if name, has := text(l); has {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if len(names) > maxNames {
		names = append(names[:maxNames], "…")
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}

// sorted sorts values and drops those that are there twice.
func sorted[T cmp.Ordered](values []T) []T {
	slices.Sort(values)
	return slices.Compact(values)
}

//go:build linux

package netstate

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

const (
	// maxRoutes bounds how many routes of one table are kept.
	maxRoutes = 256
	// maxPodRoutes is how many host routes to pods are kept of the main table: one is enough to look up how a reply
	// of a pod would leave.
	maxPodRoutes = 2
)

// readRouting reads the rules and the tables that they reference.
func readRouting(ctx context.Context, links []check.Link) (rules []check.Rule, routes map[int][]check.Route,
	err error) {
	listed, err := Dump(ctx, func() ([]netlink.Rule, error) { return netlink.RuleList(netlink.FAMILY_V4) })
	if err != nil {
		return nil, nil, fmt.Errorf("list routing rules: %w", err)
	}
	wanted := map[int]bool{check.TableMain: true}
	for _, r := range listed {
		rules = append(rules, ruleOf(r))
		wanted[r.Table] = true
	}
	for _, table := range []int{0, check.TableLocal, check.TableDefault} {
		delete(wanted, table)
	}
	routes, err = Dump(ctx, func() (map[int][]check.Route, error) { return readRoutes(links, wanted) })
	if err != nil {
		return nil, nil, fmt.Errorf("list routes: %w", err)
	}
	return rules, routes, nil
}

// readRoutes goes through all routes once and keeps those that can matter.
func readRoutes(links []check.Link, wanted map[int]bool) (map[int][]check.Route, error) {
	tables := map[int][]check.Route{}
	for table := range wanted {
		tables[table] = nil
	}
	choice := choice{links: make(map[int]check.Link, len(links))}
	for _, l := range links {
		choice.links[l.Index] = l
	}
	all := &netlink.Route{Table: unix.RT_TABLE_UNSPEC}
	err := netlink.RouteListFilteredIter(netlink.FAMILY_V4, all, netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
		if !wanted[r.Table] || len(tables[r.Table]) >= maxRoutes {
			return true
		}
		for _, route := range routesOf(r) {
			if r.Table != check.TableMain || choice.keeps(route) {
				tables[r.Table] = append(tables[r.Table], route)
			}
		}
		return true
	})
	return tables, err
}

// DefaultRoutes lists the IPv4 default routes of the main table.
func DefaultRoutes(ctx context.Context) ([]check.Route, error) {
	// In a filter, this destination stands for a default route.
	filter := &netlink.Route{Table: unix.RT_TABLE_MAIN, Dst: nil}
	listed, err := Dump(ctx, func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_V4, filter, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_DST)
	})
	if err != nil {
		return nil, fmt.Errorf("list default routes: %w", err)
	}
	var routes []check.Route
	for _, r := range listed {
		routes = append(routes, routesOf(r)...)
	}
	return routes, nil
}

// choice decides which routes of the main table are kept.
type choice struct {
	links map[int]check.Link
	pods  int
}

func (c *choice) keeps(r check.Route) bool {
	l := c.links[r.LinkIndex]
	switch {
	case r.Destination.Bits() <= 1, l.VLAN != nil, l.Bond != nil:
		return true
	case r.Destination.IsSingleIP() && !r.Gateway.IsValid() && l.Type == "veth" && c.pods < maxPodRoutes:
		c.pods++
		return true
	default:
		return false
	}
}

func ruleOf(r netlink.Rule) check.Rule {
	rule := check.Rule{
		Priority: r.Priority, Source: prefixOf(r.Src), Destination: prefixOf(r.Dst), Iif: r.IifName, Oif: r.OifName,
		Invert: r.Invert, Table: r.Table, Protocol: int(r.Protocol), Mark: r.Mark,
	}
	if r.Mask != nil {
		rule.Mask = *r.Mask
	}
	return rule
}

// routesOf turns netlink's route into one value for each next hop.
func routesOf(r netlink.Route) []check.Route {
	route := check.Route{
		Destination: prefixOf(r.Dst), LinkIndex: r.LinkIndex, Type: routeType(r.Type),
		Metric: r.Priority, Protocol: int(r.Protocol),
	}
	if r.Dst == nil {
		route.Destination = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	if len(r.MultiPath) == 0 {
		route.Gateway = addrOf(r.Gw)
		return []check.Route{route}
	}
	routes := make([]check.Route, len(r.MultiPath))
	for i, hop := range r.MultiPath {
		routes[i] = route
		routes[i].LinkIndex = hop.LinkIndex
		routes[i].Gateway = addrOf(hop.Gw)
	}
	return routes
}

// routeTypes are the types of routes by their names in iproute2.
var routeTypes = map[int]string{
	unix.RTN_UNICAST: "unicast", unix.RTN_LOCAL: "local", unix.RTN_BLACKHOLE: "blackhole",
	unix.RTN_UNREACHABLE: "unreachable", unix.RTN_PROHIBIT: "prohibit", unix.RTN_THROW: "throw",
}

func routeType(number int) string {
	if name, ok := routeTypes[number]; ok {
		return name
	}
	return fmt.Sprintf("type %d", number)
}

func prefixOf(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(addrOf(n.IP), bits)
}

// addrOf converts an address; the zero Addr where there is none.
func addrOf(ip net.IP) netip.Addr {
	addr, _ := netip.AddrFromSlice(ip)
	return addr.Unmap()
}

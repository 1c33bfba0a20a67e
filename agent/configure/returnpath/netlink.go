//go:build linux

package returnpath

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/ownership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/netstate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

// machine is the running kernel, in the network namespace of the process.
type machine struct{ journal *ownership.Journal }

// observe reads the state of the kernel.
func (m machine) observe(ctx context.Context, networks []check.Expected) (observed, error) {
	o := observed{vlans: map[int]*link{}}
	links, err := netstate.Links(ctx)
	if err != nil {
		return observed{}, err
	}
	for _, l := range links {
		o.links = append(o.links, l.Name)
	}
	for _, e := range networks {
		l, err := m.find(links, e)
		if err != nil {
			return observed{}, err
		}
		if l != nil {
			o.vlans[e.Network.VLAN] = l
		}
	}
	rules, err := netstate.Dump(ctx, func() ([]netlink.Rule, error) { return netlink.RuleList(netlink.FAMILY_V4) })
	if err != nil {
		return observed{}, fmt.Errorf("list routing rules: %w", err)
	}
	for _, r := range rules {
		o.rules = append(o.rules, ruleOf(r))
	}
	routes, err := netstate.Dump(ctx, readRoutes)
	if err != nil {
		return observed{}, fmt.Errorf("list routes: %w", err)
	}
	o.takeRoutes(routes)
	o.ruleset, err = readRuleset()
	return o, err
}

// find returns the VLAN interface or nil: the configured one, else one with the VLAN ID above no bond member.
func (m machine) find(links []netstate.Link, e check.Expected) (*link, error) {
	var found *netstate.Link
	for i, l := range links {
		if matches(links, l, e) && (found == nil || l.Name < found.Name) {
			found = &links[i]
		}
	}
	if found == nil {
		return nil, nil
	}
	strict, err := m.strict(found.Index)
	switch {
	case ownership.Gone(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &link{index: found.Index, name: found.Name, up: found.Up, strict: strict}, nil
}

func matches(links []netstate.Link, l netstate.Link, e check.Expected) bool {
	if e.Interface != "" || l.VLAN == nil {
		return e.Interface != "" && l.Name == e.Interface
	}
	return l.VLAN.ID == e.Network.VLAN && slices.ContainsFunc(links, func(below netstate.Link) bool {
		return below.Index == l.Parent && below.Master == 0 && (e.Uplink == "" || e.Uplink == below.Name)
	})
}

// strict reports whether the filter is strict: the greater value of the interface and of "all" is 1 (ip-sysctl.rst).
func (m machine) strict(index int) (bool, error) {
	own, err := ownership.ReadSettings(index)
	if err != nil {
		return false, err
	}
	const path = "/proc/sys/net/ipv4/conf/all/rp_filter"
	raw, err := os.ReadFile(path)
	if err != nil {
		return false, fmt.Errorf("read rp_filter: %w", err)
	}
	all, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return false, fmt.Errorf("read rp_filter from %s: %w", path, err)
	}
	return max(all, own[ownership.RPFilter]) == 1, nil
}

func ruleOf(r netlink.Rule) kernelRule {
	s := kernelRule{
		rule: rule{priority: r.Priority, source: prefixOf(r.Src), mark: r.Mark, table: r.Table,
			noDefault: r.SuppressPrefixlen == 0},
		protocol: int(r.Protocol), raw: r,
	}
	if r.Mask != nil {
		s.mask = *r.Mask
	}
	s.hasExtras = r.Dst != nil || r.IifName != "" || r.OifName != "" || r.Tos != 0 || r.Invert || r.TunID != 0 ||
		r.Goto >= 0 || r.Dport != nil || r.Sport != nil || r.IPProto != 0 || r.UIDRange != nil || r.Flow >= 0 ||
		r.SuppressIfgroup >= 0 || r.SuppressPrefixlen > 0
	return s
}

// readRoutes lists the routes outside the tables that every machine has, and the default routes of the main table.
func readRoutes() ([]netlink.Route, error) {
	var routes []netlink.Route
	err := netlink.RouteListFilteredIter(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_UNSPEC},
		netlink.RT_FILTER_TABLE,
		func(r netlink.Route) bool {
			isDefault := r.Table == check.TableMain && routeOf(r).destination.Bits() == 0
			if isDefault || r.Table != check.TableMain && r.Table != check.TableLocal && r.Table != check.TableDefault {
				routes = append(routes, r)
			}
			return true
		})
	return routes, err
}

// takeRoutes keeps the routes of readRoutes.
func (o *observed) takeRoutes(routes []netlink.Route) {
	for _, r := range routes {
		if r.Table != check.TableMain {
			o.routes = append(o.routes, routeOf(r))
			continue
		}
		o.defaults = append(o.defaults, r.LinkIndex) // 0 where there are several next hops, and for blackholes
		for _, hop := range r.MultiPath {
			o.defaults = append(o.defaults, hop.LinkIndex)
		}
	}
}

func routeOf(r netlink.Route) kernelRoute {
	s := kernelRoute{
		route:    route{table: r.Table, destination: prefixOf(r.Dst), link: r.LinkIndex, metric: r.Priority},
		protocol: int(r.Protocol),
		raw:      r,
	}
	if r.Dst == nil {
		s.destination = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	if gateway, valid := netip.AddrFromSlice(r.Gw); valid {
		s.gateway = gateway.Unmap()
	}
	s.hasExtras = r.Type != unix.RTN_UNICAST || len(r.MultiPath) > 0 || r.Tos != 0 ||
		r.Src != nil || r.Encap != nil || r.Via != nil
	return s
}

func prefixOf(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	addr, valid := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	if !valid {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(addr.Unmap(), bits)
}

func netOf(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func (m machine) addRule(r rule) error {
	raw := netlink.NewRule()
	raw.Family = netlink.FAMILY_V4
	raw.Priority = r.priority
	raw.Table = r.table
	raw.Protocol = ownership.Protocol
	if r.source.IsValid() {
		raw.Src = netOf(r.source)
	}
	if r.mask != 0 {
		raw.Mark = r.mark
		raw.Mask = &r.mask
	}
	if r.noDefault {
		raw.SuppressPrefixlen = 0
	}
	if err := netlink.RuleAdd(raw); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add the routing rule %q: %w", r, err)
	}
	return nil
}

func (m machine) deleteRule(r kernelRule) error {
	if err := netlink.RuleDel(&r.raw); err != nil && !ownership.Gone(err) {
		return fmt.Errorf("delete the routing rule %q: %w", r, err)
	}
	return nil
}

func (m machine) setRoute(r route) error {
	raw := &netlink.Route{
		Table: r.table, Dst: netOf(r.destination), LinkIndex: r.link, Protocol: ownership.Protocol,
		Scope: netlink.SCOPE_LINK,
	}
	if r.gateway.IsValid() {
		raw.Gw = r.gateway.AsSlice()
		raw.Scope = netlink.SCOPE_UNIVERSE
		raw.Flags = int(netlink.FLAG_ONLINK)
	}
	if err := netlink.RouteReplace(raw); err != nil {
		return fmt.Errorf("set the route %q: %w", r, err)
	}
	return nil
}

func (m machine) deleteRoute(r kernelRoute) error {
	if err := netlink.RouteDel(&r.raw); err != nil && !ownership.Gone(err) {
		return fmt.Errorf("delete the route %q: %w", r, err)
	}
	return nil
}

func (m machine) loosen(l link) error {
	if _, err := m.journal.Keep(l.index, ownership.Settings{ownership.RPFilter: looseFilter}); err != nil {
		return fmt.Errorf("make the reverse path filter of %s loose: %w", l.name, err)
	}
	return nil
}

// restoreFilters gives the reverse path filters that the agent made loose their previous values.
func (m machine) restoreFilters(ctx context.Context) error {
	links, err := netstate.Links(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range links {
		if _, recorded, _ := ownership.ParseRecord(l.Alias); !recorded {
			continue
		}
		if err := m.journal.Restore(l.Index, ownership.RPFilter); err != nil && !ownership.Gone(err) {
			errs = append(errs, fmt.Errorf("restore the reverse path filter of %s: %w", l.Name, err))
		}
	}
	return errors.Join(errs...)
}

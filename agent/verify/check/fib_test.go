package check

import (
	"net/netip"
	"slices"
)

// askRoutes puts the questions about routes to a small model of the kernel: rules, tables, connected routes and the
// reverse path filter. What was pinned in the neighbour table before stays so.
func askRoutes(e Expected, s *Snapshot) {
	_, _, questions := Questions(e, *s)
	pinned := map[RouteQuestion]string{}
	for _, r := range s.Routes {
		if r.Pinned != "" {
			pinned[r.RouteQuestion] = r.Pinned
		}
	}
	s.Routes = nil
	for _, q := range questions {
		a := fib{*s}.answer(q)
		a.Pinned = pinned[q]
		s.Routes = append(s.Routes, a)
	}
}

type fib struct{ s Snapshot }

func (f fib) answer(q RouteQuestion) RouteAnswer {
	a := RouteAnswer{RouteQuestion: q}
	from := q.Iif
	if q.Forwarded {
		way, found := f.lookUp(q.Source, netip.Addr{}, 0)
		if !found {
			a.Error = "no interface leads to " + q.Source.String()
			return a
		}
		from = way.Interface
		a.By = way.Interface
	}
	if from != "" && f.drops(q, from) {
		a.Error = "EINVAL: invalid argument"
		return a
	}
	if f.s.Holds(q.Destination) != nil {
		a.Local = true
		a.Interface = "lo"
		return a
	}
	way, found := f.lookUp(q.Destination, q.Source, q.Mark)
	switch {
	case !found:
		a.Error = "ENETUNREACH: network is unreachable"
	case from != "" && (!f.s.IPForward || f.s.Settings[from].forwardingOff()):
		a.Error = "EHOSTUNREACH: no route to host"
	default:
		a.Interface = way.Interface
		a.Gateway = way.Gateway
	}
	return a
}

// drops is the reverse path filter: the way back to the source, without a mark.
func (f fib) drops(q RouteQuestion, from string) bool {
	back, found := f.lookUp(q.Source, q.Destination, 0)
	switch max(f.s.Settings["all"]["rp_filter"], f.s.Settings[from]["rp_filter"]) {
	case 1:
		return !found || back.Interface != from
	case 2:
		return !found
	default:
		return false
	}
}

// lookUp follows the rules in the order of their priority.
func (f fib) lookUp(destination, source netip.Addr, mark uint32) (RouteAnswer, bool) {
	rules := slices.Clone(f.s.Rules)
	slices.SortFunc(rules, compareRules)
	for _, r := range rules {
		bySource := !r.Source.IsValid() || source.IsValid() && r.Source.Contains(source)
		to := !r.Destination.IsValid() || r.Destination.Contains(destination)
		if !bySource || !to || r.Mask != 0 && mark&r.Mask != r.Mark {
			continue
		}
		if r.Table == 0 {
			return RouteAnswer{}, false
		}
		if route, found := f.longest(r.Table, destination); found {
			l := f.s.LinkIndexed(route.LinkIndex)
			return RouteAnswer{Interface: l.Name, Gateway: route.Gateway}, true
		}
	}
	return RouteAnswer{}, false
}

// longest finds the route with the longest prefix; of equals the first one wins.
func (f fib) longest(table int, destination netip.Addr) (best Route, found bool) {
	routes := slices.Clone(f.s.Tables[table])
	if table == TableMain {
		routes = append(f.connected(), routes...)
	}
	for _, r := range routes {
		l := f.s.LinkIndexed(r.LinkIndex)
		if l == nil || !l.Up || !r.Destination.Contains(destination) {
			continue
		}
		if !found || r.Destination.Bits() > best.Destination.Bits() {
			best = r
			found = true
		}
	}
	return best, found
}

// connected are the routes that the kernel makes of addresses, sorted, so that the order of the addresses decides
// nothing.
func (f fib) connected() []Route {
	var routes []Route
	for _, a := range f.s.Addresses {
		if !a.Prefix.IsSingleIP() {
			routes = append(routes, Route{Destination: a.Prefix.Masked(), LinkIndex: a.LinkIndex, Type: "unicast"})
		}
	}
	slices.SortFunc(routes, func(a, b Route) int {
		if c := a.LinkIndex - b.LinkIndex; c != 0 {
			return c
		}
		return a.Destination.Addr().Compare(b.Destination.Addr())
	})
	return routes
}

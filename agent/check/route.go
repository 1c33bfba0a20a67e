package check

import (
	"fmt"
	"net/netip"
)

// outside stands for any client on the Internet: TEST-NET-2 (RFC 5737), never assigned to anybody.
var outside = netip.AddrFrom4([4]byte{198, 51, 100, 1})

// Outside is the address of no client in particular, for route look-ups.
func Outside() netip.Addr { return outside }

func (v view) routeQuestions() []RouteQuestion {
	questions := []RouteQuestion{{Destination: outside}}
	for _, p := range v.own {
		if _, inBlock := v.block(p.Addr()); inBlock {
			questions = append(questions, RouteQuestion{Destination: outside, Source: p.Addr()})
		}
	}
	for _, b := range v.blocks4() {
		questions = append(questions, RouteQuestion{Destination: b.Gateway})
	}
	return questions
}

// judgeReturnPath judges what the kernel would do with a reply from the node's own address to a client outside: it must
// leave by the VLAN interface, or phoenixNAP's filters drop it. It says nothing of replies that kube-proxy translates.
func judgeReturnPath(v view) outcome {
	asked := 0
	for _, p := range v.own {
		r, has := v.route(RouteQuestion{Destination: outside, Source: p.Addr()})
		if !has {
			continue
		}
		asked++
		if r.Interface == v.vlan.Name {
			continue
		}
		observed := "leave by " + r.Interface
		if r.Interface == "" {
			observed = "have no route (" + r.Error + ")"
		}
		return outcome{status: Warn, reason: "ReturnPathElsewhere",
			expected: fmt.Sprintf("replies from %s leave by %s", p.Addr(), v.vlan.Name), observed: "they " + observed,
			cause: fmt.Sprintf("replies from %s to clients outside %s instead of leaving by %s", p.Addr(), observed, v.vlan.Name),
			fixes: fixReturnPath(v, p.Addr())}
	}
	if asked == 0 {
		return notApplicable("the node has no address in an assigned block")
	}
	return ok(fmt.Sprintf("replies from %s to clients outside leave by %s", joined(v.own), v.vlan.Name))
}

// defaultIsVLAN tells whether traffic to the Internet leaves by the VLAN interface anyway.
func (v view) defaultIsVLAN() bool {
	r, asked := v.route(RouteQuestion{Destination: outside})
	return asked && r.Interface == v.vlan.Name
}

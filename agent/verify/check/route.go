package check

import (
	"fmt"
	"net/netip"
	"strings"
)

// outside stands for any client on the Internet: TEST-NET-2 (RFC 5737), never assigned.
var outside = netip.AddrFrom4([4]byte{198, 51, 100, 1})

// clients stand for all clients: routes may be split (0.0.0.0/1 and 128.0.0.0/1), so there is one address of each
// quarter of the address space. Nothing is ever sent to them.
var clients = []netip.Addr{
	outside, netip.AddrFrom4([4]byte{1, 1, 1, 1}), netip.AddrFrom4([4]byte{77, 1, 1, 1}),
	netip.AddrFrom4([4]byte{151, 101, 1, 1}),
}

// Outside is the address of no client in particular, for route look-ups.
func Outside() netip.Addr { return outside }

// Clients are addresses that stand for all clients on the Internet, for route look-ups.
func Clients() []netip.Addr { return append([]netip.Addr{}, clients...) }

// clientsOf asks the same of every client.
func clientsOf(q RouteQuestion) []RouteQuestion {
	questions := make([]RouteQuestion, len(clients))
	for i, client := range clients {
		questions[i] = q
		questions[i].Destination = client
	}
	return questions
}

// inbound asks whether packets of clients are let in. A packet for a Service has the address of a pod when the kernel
// routes it, and a rule by source that serves the node's own address does not serve that; so a pod's address it is,
// where one is known.
func (v view) inbound() []RouteQuestion {
	// Without an address on the interface the kernel refuses whatever the filter is set to.
	target, known := v.source()
	if !known || !v.vlan.Up || !v.vlan.LowerUp {
		return nil
	}
	if pods := v.pods(); len(pods) > 0 {
		target = pods[0]
	}
	questions := make([]RouteQuestion, len(clients))
	for i, client := range clients {
		questions[i] = RouteQuestion{Destination: target, Source: client, Iif: v.vlan.Name}
	}
	return questions
}

func (v view) routeQuestions() []RouteQuestion {
	questions := clientsOf(RouteQuestion{})
	for _, p := range v.own {
		if _, inBlock := v.block(p.Addr()); inBlock {
			questions = append(questions, clientsOf(RouteQuestion{Source: p.Addr()})...)
		}
	}
	for _, b := range v.blocks4() {
		questions = append(questions, RouteQuestion{Destination: b.Gateway})
	}
	questions = append(questions, v.inbound()...)
	for _, pod := range v.pods() {
		for _, mark := range append([]uint32{0}, v.marks()...) {
			questions = append(questions, clientsOf(RouteQuestion{Source: pod, Forwarded: true, Mark: mark})...)
		}
	}
	return questions
}

// leave sums up by which interfaces the packets of some questions leave; asked is false when one was not put.
func (v view) leave(questions []RouteQuestion) (way string, byVLAN, asked bool) {
	byVLAN = true
	var ways []string
	for _, q := range questions {
		r, has := v.route(q)
		if !has {
			return "", false, false
		}
		if r.Interface == v.vlan.Name {
			continue
		}
		byVLAN = false
		if r.Interface == "" {
			ways = append(ways, "have no route ("+r.Error+")")
		} else {
			ways = append(ways, "leave by "+r.Interface)
		}
	}
	if byVLAN {
		return "leave by " + v.vlan.Name, true, true
	}
	return strings.Join(sorted(ways), " or "), false, true
}

// checkReturnPath checks what the kernel would do with a reply from the node's own address to a client outside: it must
// leave by the VLAN interface, or phoenixNAP's filters may drop it. It does not cover replies that kube-proxy
// translates.
func checkReturnPath(v view) outcome {
	checked := 0
	for _, p := range v.own {
		way, byVLAN, asked := v.leave(clientsOf(RouteQuestion{Source: p.Addr()}))
		if !asked {
			continue
		}
		checked++
		if byVLAN {
			continue
		}
		return outcome{status: Warn, reason: "ReturnPathElsewhere",
			expected: fmt.Sprintf("replies from %s leave by %s", p.Addr(), v.vlan.Name), observed: "they " + way,
			cause: fmt.Sprintf("replies from %s to clients outside %s instead of leaving by %s", p.Addr(), way,
				v.vlan.Name),
			fixes: fixReturnPath(v, p.Addr())}
	}
	if checked == 0 {
		return notApplicable("the node has no address in an assigned block")
	}
	return ok(fmt.Sprintf("replies from %s to clients outside leave by %s", joined(v.own), v.vlan.Name))
}

// defaultIsVLAN reports whether traffic to the Internet leaves by the VLAN interface anyway.
func (v view) defaultIsVLAN() bool {
	_, byVLAN, asked := v.leave(clientsOf(RouteQuestion{}))
	return asked && byVLAN
}

// filtered reports whether the kernel would drop a packet for its source address, or for having no way back: EINVAL,
// and EXDEV before Linux 6.16.
func (r RouteAnswer) filtered() bool {
	return strings.HasPrefix(r.Error, "EINVAL") || strings.HasPrefix(r.Error, "EXDEV")
}

// accepted reports whether clients' packets pass the reverse path filter; known is false when the kernel gave no
// answer.
func (v view) accepted() (refused RouteAnswer, passes, known bool) {
	questions := v.inbound()
	for _, q := range questions {
		r, asked := v.route(q)
		switch {
		case asked && r.filtered():
			return r, false, true
		case !asked || r.Error != "":
			return RouteAnswer{}, false, false
		default:
		}
	}
	// To the node itself the way back may be another than to pods, so this proves nothing of them.
	onlySelf := len(v.pods()) == 0
	return RouteAnswer{}, true, len(questions) > 0 && !onlySelf
}

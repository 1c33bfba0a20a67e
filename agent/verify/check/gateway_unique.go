package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// slowGateway is the round trip to a machine on the same wire that deserves a look.
const slowGateway = 100 * time.Millisecond

// checkUniqueGateway: a second machine with the gateway's address draws a part of the traffic to itself.
func checkUniqueGateway(v view) outcome {
	asked := 0
	var twice *outcome
	for _, b := range v.blocks4() {
		if holders := v.Holds(b.Gateway); len(holders) > 0 {
			return outcome{status: Fail, reason: "GatewayHeldHere",
				expected: b.Gateway.String() + " only on the " +
					"gateway", observed: "on " + strings.Join(holders, ", ") + " of this node",
				cause: fmt.Sprintf("this node carries %s, which is the gateway of block %s", b.Gateway, b.CIDR),
				fixes: perTool([]string{fmt.Sprintf("ip address flush dev %s to %s/32", holders[0], b.Gateway)},
					fmt.Sprintf("give %s another address in the configuration, too", holders[0]))}
		}
		answer, has := v.arp(b.Gateway)
		if !has || len(answer.MACs) == 0 {
			continue
		}
		asked++
		if o, wrong := v.pinnedElsewhere(b.Gateway, answer); wrong {
			return o
		}
		if len(answer.MACs) > 1 {
			// Every node of the network sees this, so no other is the better one; redundant routers may even be meant
			// to.
			twice = &outcome{status: Warn, reason: "GatewayAnsweredTwice",
				expected: "one machine answers for " + b.Gateway.String(), observed: strings.Join(answer.MACs, " and "),
				cause: fmt.Sprintf("%s answer for gateway %s", strings.Join(answer.MACs, " and "), b.Gateway),
				fixes: []Fix{{Tool: AnyTool, Commands: []string{fmt.Sprintf("arping -c 3 -I %s %s", v.vlan.Name,
					b.Gateway)},
					Note: "find the machine that carries the gateway's address: compare the hardware addresses with " +
						"those that the other nodes report in the annotation phoenixnap.com/reported-identity"}}}
		}
	}
	switch {
	case twice != nil:
		return *twice
	case asked == 0:
		return notApplicable("no gateway was heard")
	}
	return ok("one machine answers for each gateway")
}

// pinnedElsewhere: a manual entry in the neighbour table stays when the router is replaced.
func (v view) pinnedElsewhere(gateway netip.Addr, answer ARPAnswer) (outcome, bool) {
	r, asked := v.route(RouteQuestion{Destination: gateway})
	if !asked || r.Pinned == "" || slices.Contains(answer.MACs, r.Pinned) {
		return outcome{}, false
	}
	return outcome{status: Fail, reason: "GatewayPinned",
		expected: fmt.Sprintf("%s at %s", gateway,
			strings.Join(answer.MACs, " and ")), observed: r.Pinned + " in the " +
			"neighbour table, permanent",
		cause: fmt.Sprintf("the neighbour table sends packets for gateway %s to %s, but another machine answers",
			gateway, r.Pinned),
		fixes: perTool([]string{fmt.Sprintf("ip neighbour delete %s dev %s", gateway, v.vlan.Name)},
			"remove the permanent neighbour from the configuration, too")}, true
}

// checkGatewayLatency: an answer that takes long is a sign of a flooded network or an overloaded machine. Only what is
// certain is held against the gateway.
func checkGatewayLatency(v view) outcome {
	var answers []string
	for _, b := range v.blocks4() {
		answer, asked := v.arp(b.Gateway)
		if !asked || !answer.Replied {
			continue
		}
		if answer.RTT > slowGateway {
			return outcome{status: Warn, reason: "GatewaySlow", expected: "less than " + milliseconds(slowGateway),
				observed: fmt.Sprintf("%s from %s", roundTrip(answer), b.Gateway),
				cause:    fmt.Sprintf("gateway %s takes more than %s to answer", b.Gateway, milliseconds(slowGateway)),
				fixes: []Fix{{Tool: AnyTool, Commands: []string{fmt.Sprintf("arping -c 10 -I %s %s", v.vlan.Name,
					b.Gateway), "ip -s link show " + v.vlan.Name},
					Note: "check for a flood of packets on the VLAN and for busy CPUs; if there is neither, contact " +
						"phoenixNAP support"}}}
		}
		answers = append(answers, fmt.Sprintf("%s %s", b.Gateway, roundTrip(answer)))
	}
	if len(answers) == 0 {
		return notApplicable("no gateway replied")
	}
	return ok(strings.Join(answers, "; "))
}

package check

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Checks about the routers of the blocks.
const (
	GatewayAnswers ID = "PN301"
	GatewayUnique  ID = "PN302"
	GatewayLatency ID = "PN303"
)

var gatewayChecks = []Check{
	{
		ID: GatewayAnswers, Title: "the gateway answers", Severity: Error, Wire: true,
		DependsOn: []ID{Membership, VLANUnique, NodeAddress}, evaluate: checkGateway,
		Meaning: "The gateway of each block answers an ARP request on the VLAN interface. A missing reply is a " +
			"failure only if the node asked with an address of the same block, and only in two samples of three " +
			"requests each; a router may ignore a sender of another block.",
		Causes: []string{"The server is not a member of the network.", "The block is not assigned to the network.",
			"The VLAN ID is wrong."},
		Remedy: "Check in phoenixNAP's portal that the server is an assigned member and that the block is assigned; " +
			"check with `tcpdump` whether frames of the VLAN arrive.",
		Reasons: []string{"GatewaySilent", "GatewayNotAsked"},
	},
	{
		ID: GatewayUnique, Title: "only one machine answers for the gateway", Severity: Error, Wire: true,
		DependsOn: []ID{Membership, NodeAddress}, evaluate: checkUniqueGateway,
		Meaning: "Exactly one machine answers for the gateway's address of each block, it is not this node, and no " +
			"permanent neighbour entry points to another machine. A second machine attracts part of the traffic.",
		Causes: []string{"The gateway's address was configured on a server.",
			"A Service was given the gateway's address by hand.",
			"The router was replaced, and a permanent neighbour entry still has the hardware address of the old one."},
		Remedy: "Find the machine by its hardware address, and remove the address from it; delete a permanent " +
			"neighbour entry.",
		Reasons: []string{"GatewayHeldHere", "GatewayAnsweredTwice", "GatewayPinned"},
	},
	{
		ID: GatewayLatency, Title: "the gateway answers quickly", Severity: Warning, Wire: true,
		DependsOn: []ID{GatewayAnswers}, evaluate: checkGatewayLatency,
		Meaning: "The gateway answers an ARP request within 100 ms; on a healthy network it takes about 1 ms.",
		Causes:  []string{"The VLAN is flooded.", "The CPUs of this node are saturated.", "The gateway is overloaded."},
		Remedy:  "Check for a flood of packets on the VLAN and for busy CPUs; otherwise contact phoenixNAP support.",
		Reasons: []string{"GatewaySlow"},
	},
}

// checkGateway checks the gateway of each block. Silence is a failure where the node asked with an address of that
// very block; a router may rightly ignore a sender of another block, so there silence is only worth a warning.
func checkGateway(v view) Finding {
	blocks := v.blocks4()
	if len(blocks) == 0 {
		return notApplicable("no IPv4 block is assigned to the network yet")
	}
	var answers []string
	var silent *Finding
	for _, b := range blocks {
		o, asked := checkOneGateway(v, b)
		switch {
		case !asked:
		case o.Status == OK:
			answers = append(answers, o.Observed)
		case silent == nil || silent.Status == Warn && o.Status != Warn:
			silent = &o
		}
	}
	switch {
	case silent != nil:
		return *silent
	case len(answers) == 0:
		return notApplicable("no ARP request was sent")
	default:
		return ok(strings.Join(answers, "; "))
	}
}

func checkOneGateway(v view, b contract.NetworkBlock) (o Finding, asked bool) {
	answer, asked := v.arp(b.Gateway)
	if !asked {
		return Finding{}, false
	}
	switch {
	case answer.Error != "":
		return undetermined("GatewayNotAsked",
			fmt.Sprintf("gateway %s could not be asked: %s", b.Gateway, answer.Error),
			fixUnasked(v, answer.Error)...), true
	case answer.Replied:
		return ok(fmt.Sprintf("%s is at %s, %s", b.Gateway, strings.Join(answer.MACs, " and "), roundTrip(answer))),
			true
	case b.CIDR.Contains(answer.Source):
		return silentGateway(v, b, answer, Fail), true
	default:
		return silentGateway(v, b, answer, Warn), true
	}
}

// fixUnasked: a packet socket is refused for lack of a right, or the interface changed at that moment.
func fixUnasked(v view, reason string) []Fix {
	if strings.Contains(reason, "not permitted") || strings.Contains(reason, "permission denied") {
		return anyTool("ARP requests need the capability NET_RAW (root has it)")
	}
	return anyTool("look again: "+v.vlan.Name+" may have changed at that moment", "ip -br link show "+v.vlan.Name)
}

func silentGateway(v view, b contract.NetworkBlock, answer ARPAnswer, status Status) Finding {
	return Finding{Status: status, Reason: "GatewaySilent",
		Expected: fmt.Sprintf("an ARP reply of gateway %s on %s", b.Gateway, v.vlan.Name),
		Observed: fmt.Sprintf("none, asked as %s", answer.Source),
		Cause:    fmt.Sprintf("gateway %s of block %s does not answer on %s", b.Gateway, b.CIDR, v.vlan.Name),
		Fixes: anyTool(fmt.Sprintf("frames of VLAN %d must arrive on %s; if there are none, check in phoenixNAP's "+
			"portal that server %s is an assigned member of network %s and that block %s is assigned to it",
			v.Network.VLAN, v.uplink.Name, v.Network.ServerID, v.Network.ID, b.CIDR),
			fmt.Sprintf("tcpdump -n -e -i %s -c 20 vlan", v.uplink.Name))}
}

// roundTrip formats how long a reply took. A lost packet and a late reply look alike when the request was repeated.
func roundTrip(answer ARPAnswer) string {
	if answer.Within <= answer.RTT {
		return milliseconds(answer.RTT)
	}
	return fmt.Sprintf("%s to %s", milliseconds(answer.RTT), milliseconds(answer.Within))
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// slowGateway is the round trip to a machine on the same wire that deserves a look.
const slowGateway = 100 * time.Millisecond

// checkUniqueGateway: a second machine with the gateway's address draws a part of the traffic to itself.
func checkUniqueGateway(v view) Finding {
	asked := 0
	var twice *Finding
	for _, b := range v.blocks4() {
		if holders := v.Holds(b.Gateway); len(holders) > 0 {
			return Finding{Status: Fail, Reason: "GatewayHeldHere",
				Expected: b.Gateway.String() + " only on the gateway",
				Observed: "on " + strings.Join(holders, ", ") + " of this node",
				Cause:    fmt.Sprintf("this node carries %s, which is the gateway of block %s", b.Gateway, b.CIDR),
				Fixes: perTool([]string{fmt.Sprintf("ip address flush dev %s to %s/32", holders[0], b.Gateway)},
					fmt.Sprintf("give %s another address in the configuration, too", holders[0]))}
		}
		answer, has := v.arp(b.Gateway)
		if !has || len(answer.MACs) == 0 {
			continue
		}
		asked++
		macs := strings.Join(answer.MACs, " and ")
		r, looked := v.route(RouteQuestion{Destination: b.Gateway})
		if looked && r.Pinned != "" && !slices.Contains(answer.MACs, r.Pinned) {
			return pinnedElsewhere(v, r, macs)
		}
		if len(answer.MACs) > 1 {
			// Every node of the network sees this, so no other is better; redundant routers may even be meant to.
			twice = &Finding{Status: Warn, Reason: "GatewayAnsweredTwice", Observed: macs,
				Expected: "one machine answers for " + b.Gateway.String(),
				Cause:    fmt.Sprintf("%s answer for gateway %s", macs, b.Gateway),
				Fixes: anyTool("find the machine that carries the gateway's address: compare the hardware addresses "+
					"with those that the other nodes report in the annotation phoenixnap.com/reported-identity, and "+
					"remove it there",
					fmt.Sprintf("arping -c 3 -I %s %s", v.vlan.Name, b.Gateway))}
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
func pinnedElsewhere(v view, r RouteAnswer, macs string) Finding {
	gateway := r.Destination
	return Finding{Status: Fail, Reason: "GatewayPinned", Expected: fmt.Sprintf("%s at %s", gateway, macs),
		Observed: r.Pinned + " in the neighbour table, permanent",
		Cause: fmt.Sprintf("the neighbour table sends packets for gateway %s to %s, but another machine answers",
			gateway, r.Pinned),
		Fixes: perTool([]string{fmt.Sprintf("ip neighbour delete %s dev %s", gateway, v.vlan.Name)},
			"remove the permanent neighbour from the configuration, too")}
}

// checkGatewayLatency: a slow answer shows a flooded network or an overloaded machine. Only what is certain counts.
func checkGatewayLatency(v view) Finding {
	var answers []string
	for _, b := range v.blocks4() {
		answer, asked := v.arp(b.Gateway)
		if !asked || !answer.Replied {
			continue
		}
		if answer.RTT > slowGateway {
			return Finding{Status: Warn, Reason: "GatewaySlow", Expected: "less than " + milliseconds(slowGateway),
				Observed: fmt.Sprintf("%s from %s", roundTrip(answer), b.Gateway),
				Cause:    fmt.Sprintf("gateway %s takes more than %s to answer", b.Gateway, milliseconds(slowGateway)),
				Fixes: anyTool("check for a flood of packets on the VLAN and for busy CPUs; if there is neither, "+
					"contact phoenixNAP support", fmt.Sprintf("arping -c 10 -I %s %s", v.vlan.Name, b.Gateway),
					"ip -s link show "+v.vlan.Name)}
		}
		answers = append(answers, fmt.Sprintf("%s %s", b.Gateway, roundTrip(answer)))
	}
	if len(answers) == 0 {
		return notApplicable("no gateway replied")
	}
	return ok(strings.Join(answers, "; "))
}

package check

import (
	"fmt"
	"strings"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// checkGateway checks the gateway of each block. Silence is a failure where the node asked with an address of that
// very block; a router may rightly ignore a sender of another block, so there silence is only worth a warning.
func checkGateway(v view) outcome {
	blocks := v.blocks4()
	if len(blocks) == 0 {
		return notApplicable("no IPv4 block is assigned to the network yet")
	}
	var answers []string
	var silent *outcome
	for _, b := range blocks {
		o, asked := checkOneGateway(v, b)
		switch {
		case !asked:
		case o.status == OK:
			answers = append(answers, o.observed)
		case silent == nil || silent.status == Warn && o.status != Warn:
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

func checkOneGateway(v view, b contract.NetworkBlock) (o outcome, asked bool) {
	answer, asked := v.arp(b.Gateway)
	if !asked {
		return outcome{}, false
	}
	sameBlock := b.CIDR.Contains(answer.Source)
	switch {
	case answer.Error != "":
		o = undetermined("GatewayNotAsked", fmt.Sprintf("gateway %s could not be asked: %s", b.Gateway, answer.Error))
		o.fixes = []Fix{{Tool: AnyTool, Note: "ARP requests need the capability NET_RAW (root has it)"}}
		return o, true
	case answer.Replied:
		return ok(fmt.Sprintf("%s is at %s, %s", b.Gateway, strings.Join(answer.MACs, " and "), roundTrip(answer))),
			true
	case sameBlock:
		return silentGateway(v, b, answer, Fail), true
	default:
		return silentGateway(v, b, answer, Warn), true
	}
}

func silentGateway(v view, b contract.NetworkBlock, answer ARPAnswer, status Status) outcome {
	return outcome{
		status: status, reason: "GatewaySilent",
		expected: fmt.Sprintf("an ARP reply of gateway %s on %s", b.Gateway, v.vlan.Name),
		observed: fmt.Sprintf("none, asked as %s", answer.Source),
		cause:    fmt.Sprintf("gateway %s of block %s does not answer on %s", b.Gateway, b.CIDR, v.vlan.Name),
		fixes: []Fix{{
			Tool:     AnyTool,
			Commands: []string{fmt.Sprintf("tcpdump -n -e -i %s -c 20 vlan", v.uplink.Name)},
			Note: fmt.Sprintf("frames of VLAN %d must arrive on %s; if there are none, check in phoenixNAP's portal "+
				"that server %s is an assigned member of network %s and that block %s is assigned to it",
				v.Network.VLAN, v.uplink.Name, v.Network.ServerID, v.Network.NetworkID, b.CIDR),
		}},
	}
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

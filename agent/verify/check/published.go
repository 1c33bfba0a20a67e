package check

import (
	"fmt"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// ReasonWaiting is the reason while the controller has not published the network.
const ReasonWaiting = "WaitingForController"

func checkPublished(v view) outcome {
	switch {
	case v.Unreached != "":
		o := undetermined("APIServerNotReached", "what the controller published is not known: "+v.Unreached)
		o.fixes = []Fix{{Tool: AnyTool,
			Note: "name a kubeconfig with --kubeconfig, or describe the network with --vlan, --network, --gateway " +
				"and --address"}}
		return o
	case v.Unreadable != "":
		o := undetermined("NetworkUnreadable", "the published network cannot be read: "+v.Unreadable)
		o.fixes = []Fix{{Tool: AnyTool, Note: "run the controller and the agent in the same version; remove the " +
			"annotation, and the controller writes it again"}}
		return o
	case !v.Published:
		o := undetermined(ReasonWaiting, "the controller has not published the public network on this Node")
		o.expected = "annotation " + contract.NodePublicNetworkID
		o.observed = "none"
		o.fixes = []Fix{{
			Tool: AnyTool, Commands: []string{"kubectl --namespace kube-system get pods --output wide"},
			Note: "check that the controller runs, that its option loadbalancer is set, and that it found the server " +
				"of this Node",
		}}
		return o
	default:
		return ok(v.name())
	}
}

func checkMembership(v view) outcome {
	switch {
	case v.Offline:
		return notApplicable("the membership is not known without the API server")
	case v.Network.Member:
		return ok(fmt.Sprintf("server %s, addresses %s", v.Network.ServerID, joined(v.Network.IPs)))
	default:
		return outcome{
			status: Fail, reason: "NotAMember",
			expected: "server " + v.Network.ServerID + " assigned to " + v.name(), observed: "no assigned membership",
			cause: fmt.Sprintf("server %s is not an assigned member of %s, so the switch does not pass its VLAN",
				v.Network.ServerID, v.name()),
			fixes: []Fix{{
				Tool: AnyTool,
				Note: fmt.Sprintf("in phoenixNAP's portal or API (POST /servers/%s/public-networks) add the server "+
					"to network %s with an address of its block, and wait until the assignment is complete",
					v.Network.ServerID, v.Network.NetworkID),
			}},
		}
	}
}

func checkBlocks(v view) outcome {
	blocks := v.blocks4()
	if len(blocks) == 0 {
		return notApplicable("no IPv4 block is assigned to the network yet")
	}
	texts := make([]string, len(blocks))
	for i, b := range blocks {
		texts[i] = fmt.Sprintf("%s (gateway %s)", b.CIDR, b.Gateway)
	}
	return ok(strings.Join(texts, ", "))
}

// joined writes values as "a, b", or "none".
func joined[T fmt.Stringer](values []T) string {
	if len(values) == 0 {
		return "none"
	}
	texts := make([]string, len(values))
	for i, value := range values {
		texts[i] = value.String()
	}
	return strings.Join(texts, ", ")
}

package check

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Checks about what the controller publishes about the network and the server.
const (
	NetworkPublished ID = "PN000"
	Membership       ID = "PN001"
	BlockAssigned    ID = "PN002"
	Identity         ID = "PN003"
)

var publishedChecks = []Check{
	{
		ID: NetworkPublished, Title: "the controller has published the public network",
		Severity: Error, evaluate: checkPublished,
		Meaning: "The controller has written the public network to the annotations of this Node. All other checks " +
			"compare with it.",
		Causes: []string{"The controller does not run, or its option `loadbalancer` is not set.",
			"The controller has not found the server of this Node.", "The agent cannot reach the API server."},
		Remedy: "Read the controller's log and the events of the Node. Without an API server, " +
			"describe the network with `--vlan`, `--network`, `--gateway` and `--address`: `diagnose` prints a " +
			"command for each VLAN interface of the machine.",
		Reasons: []string{ReasonUnreached, "NetworkUnreadable", ReasonWaiting},
	},
	{
		ID: Identity, Title: "this machine is the server that its Node names", Severity: Error,
		DependsOn: []ID{NetworkPublished}, evaluate: checkIdentity,
		Meaning: "The server ID that the machine knows (from cloud-init or its firmware, if available) is that of " +
			"the Node, and the machine carries one of the Node's addresses. All other checks compare with what the " +
			"controller published for that server.",
		Causes: []string{"Two machines joined the cluster with the same name, for example after a disk image was " +
			"cloned.", "The agent's kubeconfig or `--node-name` is that of another node.",
			"The server was replaced, and the new one took over the name of the old one."},
		Remedy: "Correct the agent's kubeconfig and `--node-name`. If two machines have the same name, give each machine " +
			"its own, delete the Node, and restart the kubelets so that both register again.",
		Reasons: []string{"OtherServer", "OtherMachine"},
	},
	{
		ID: Membership, Title: "the server is a member of the public network", Severity: Error,
		DependsOn: []ID{NetworkPublished, Identity}, evaluate: checkMembership,
		Meaning: "phoenixNAP lists the server as an assigned member of the public network; only then the switch " +
			"passes its VLAN.",
		Causes: []string{"The server was never added to the network.",
			"The assignment is still in progress, or failed."},
		Remedy: "Add the server to the network, with an address of its block, in the portal or by `POST " +
			"/servers/{id}/public-networks`, or let the controller do it with `--manage-membership`.",
		Reasons: []string{"NotAMember"},
	},
	{
		ID: BlockAssigned, Title: "an IP block is assigned to the public network", Severity: Warning,
		DependsOn: []ID{NetworkPublished}, evaluate: checkBlocks,
		Meaning: "At least one IPv4 block is assigned to the network. Without one there is no gateway to ask; that " +
			"is normal before the first Service, so the check is skipped then.",
	},
}

const (
	// ReasonWaiting is the reason while the controller has not published the network.
	ReasonWaiting = "WaitingForController"
	// ReasonUnreached is the reason while the Node has not been read.
	ReasonUnreached = "APIServerNotReached"
)

func checkPublished(v view) Finding {
	switch {
	case v.Unreached:
		f := undetermined(ReasonUnreached,
			"the API server could not be read, so the public network is not known",
			anyTool("name a kubeconfig with --kubeconfig, or describe the network with --vlan, --network, --gateway "+
				"and --address", v.byHand()...)...)
		f.Observed = v.vlansHere()
		return f
	case v.Unreadable != "":
		return undetermined("NetworkUnreadable", "the published network cannot be read: "+v.Unreadable,
			anyTool("run the controller and the agent in the same version; remove the annotation, and the controller "+
				"writes it again")...)
	case !v.Published:
		f := undetermined(ReasonWaiting, "the controller has not published the public network on this Node",
			anyTool("check that the controller runs, that its option loadbalancer is set, and that it found the "+
				"server of this Node", "kubectl --namespace kube-system get pods --output wide")...)
		f.Expected = "annotation " + contract.NodePublicNetworks
		f.Observed = "none"
		return f
	default:
		return ok(v.name())
	}
}

func checkMembership(v view) Finding {
	switch {
	case v.Offline:
		return notApplicable("the membership is not known without the API server")
	case v.Network.Member:
		return ok(fmt.Sprintf("server %s, addresses %s", v.Network.ServerID, joined(v.Network.IPs)))
	default:
		return Finding{Status: Fail, Reason: "NotAMember", Observed: "no assigned membership",
			Expected: "server " + v.Network.ServerID + " assigned to " + v.name(),
			Cause: fmt.Sprintf("server %s is not an assigned member of %s, so the switch does not pass its VLAN",
				v.Network.ServerID, v.name()),
			Fixes: anyTool(fmt.Sprintf("in phoenixNAP's portal or API (POST /servers/%s/public-networks) add the "+
				"server to network %s with an address of its block, and wait until the assignment is complete",
				v.Network.ServerID, v.Network.ID))}
	}
}

func checkBlocks(v view) Finding {
	var texts []string
	for _, b := range v.blocks4() {
		texts = append(texts, fmt.Sprintf("%s (gateway %s)", b.CIDR, b.Gateway))
	}
	if len(texts) == 0 {
		return notApplicable("no IPv4 block is assigned to the network yet")
	}
	return ok(strings.Join(texts, ", "))
}

// joined writes values as "a, b", or "none".
func joined[T fmt.Stringer](values []T) string {
	var texts []string
	for _, value := range values {
		texts = append(texts, value.String())
	}
	return cmp.Or(strings.Join(texts, ", "), "none")
}

// checkIdentity: all other checks compare with what the controller published for the server that the Node names.
func checkIdentity(v view) Finding {
	named := v.Network.ServerID
	known := v.Machine.ServerID
	if named != "" && known != "" && named != known {
		return Finding{Status: Fail, Reason: "OtherServer",
			Expected: "server " + named, Observed: fmt.Sprintf("server %s, by %s", known, v.Machine.ServerIDFrom),
			Cause: fmt.Sprintf("this machine is server %s, but its Node names server %s", known, named),
			Fixes: fixIdentity()}
	}
	carried, others := v.carried(), v.identifying()
	if stable := v.stableAddresses(); len(stable) > 0 && len(carried) == 0 && len(others) > 0 {
		return Finding{Status: Fail, Reason: "OtherMachine",
			Expected: "one of the Node's addresses " + joined(stable), Observed: "the machine has " + joined(others),
			Cause: "this machine carries none of the addresses of its Node", Fixes: fixIdentity()}
	}
	switch {
	case named != "" && known != "":
		return ok(fmt.Sprintf("server %s, by %s", known, v.Machine.ServerIDFrom))
	case len(carried) > 0:
		return ok("carries the Node's address " + joined(carried))
	default:
		return notApplicable("the machine does not know its server ID, and there are no addresses to compare")
	}
}

// carried are the Node's addresses that this machine carries, without those of Services, which move.
func (v view) carried() []netip.Addr {
	carried := slices.DeleteFunc(slices.Clone(v.NodeAddresses),
		func(ip netip.Addr) bool { return slices.Contains(v.Virtual, ip) || len(v.Holds(ip)) == 0 })
	slices.SortFunc(carried, netip.Addr.Compare)
	return carried
}

// identifying are the machine's addresses that do not move: a machine without any may still be the right one.
func (v view) identifying() []netip.Addr {
	var addresses []netip.Addr
	for _, a := range v.Addresses {
		l := v.LinkIndexed(a.LinkIndex)
		if l == nil || l.Name == "lo" || v.vlan != nil && l.Index == v.vlan.Index || v.isVirtual(a) ||
			!a.Prefix.Addr().IsGlobalUnicast() {
			continue
		}
		if slices.Contains([]string{"device", "bond", "vlan"}, l.Type) || v.uplink != nil && l.Index == v.uplink.Index {
			addresses = append(addresses, a.Prefix.Addr())
		}
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	return addresses[:min(len(addresses), maxNames)]
}

// stableAddresses are the Node's without those of the public network, which the right machine may have lost.
func (v view) stableAddresses() []netip.Addr {
	stable := slices.DeleteFunc(slices.Clone(v.NodeAddresses), func(a netip.Addr) bool {
		_, inBlock := v.block(a)
		return inBlock || slices.Contains(v.Network.IPs, a)
	})
	slices.SortFunc(stable, netip.Addr.Compare)
	return stable
}

func fixIdentity() []Fix {
	return anyTool("if the agent's kubeconfig or --node-name is another node's, correct it; if two machines have "+
		"joined with the same name, give each machine its own name, delete the Node, and restart the kubelets so "+
		"that both register again",
		"hostnamectl status", "cat /var/lib/cloud/data/instance-id")
}

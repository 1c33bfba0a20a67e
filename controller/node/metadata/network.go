package metadata

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/node/instances"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// networkAnnotations are the annotations of which the package is the only writer.
func networkAnnotations() []string {
	return append(contract.NetworkAnnotations(), contract.NodeServerMissing)
}

// describe returns the public network as published for the agent of a server. The server's own entry counts; the
// network's list of members, which may be delayed, provides values that the entry lacks.
func describe(server pnap.Server, public network.Network, blocks []contract.NetworkBlock,
	announcer string) contract.NodeNetwork {
	facts := contract.NodeNetwork{
		ServerID: server.ID, NetworkID: public.ID, VLAN: public.VLAN, Blocks: blocks, Announcer: announcer,
	}
	listed := slices.IndexFunc(public.Members, func(m network.Member) bool { return m.ServerID == server.ID })
	joined := slices.IndexFunc(server.PublicNetworks, func(m pnap.Membership) bool { return m.NetworkID == public.ID })
	if joined < 0 {
		return facts
	}
	membership := server.PublicNetworks[joined]
	facts.Member = membership.Status == pnap.MembershipAssigned || (membership.Status == "" && listed >= 0)
	facts.IPs = membership.IPs
	if len(facts.IPs) == 0 && listed >= 0 {
		facts.IPs = public.Members[listed].IPs
	}
	return facts
}

// usableBlocks returns the blocks of the network whose gateway is expected to answer. The network lists a block from
// the start of its assignment, during which it is BUSY: then only blocks count that were published before.
func usableBlocks(public network.Network, published []contract.NetworkBlock) []contract.NetworkBlock {
	blocks := []contract.NetworkBlock{}
	for _, block := range public.Blocks {
		gateway := network.Gateway(block.CIDR)
		if !gateway.IsValid() {
			continue
		}
		usable := contract.NetworkBlock{CIDR: block.CIDR, Gateway: gateway}
		if public.Status == network.StatusReady || slices.Contains(published, usable) {
			blocks = append(blocks, usable)
		}
	}
	slices.SortFunc(blocks, func(a, b contract.NetworkBlock) int {
		return cmp.Or(a.CIDR.Addr().Compare(b.CIDR.Addr()), a.CIDR.Bits()-b.CIDR.Bits())
	})
	return blocks
}

// changes returns the patch that changes current to desired, limited to the owned names.
func changes(current, desired map[string]string) map[string]*string {
	patch := map[string]*string{}
	for _, name := range networkAnnotations() {
		have, exists := current[name]
		want, wanted := desired[name]
		switch {
		case wanted && (!exists || have != want):
			patch[name] = &want
		case !wanted && exists:
			patch[name] = nil
		}
	}
	return patch
}

// labelChanges returns which labels to set. It removes none: an answer of the API may lack a property for a while.
func labelChanges(current, desired map[string]string) map[string]*string {
	patch := map[string]*string{}
	for name, want := range desired {
		if current[name] != want {
			patch[name] = &want
		}
	}
	return patch
}

// zoneChanges returns the zone labels of a Node without a zone: the framework writes them only when it initializes a
// Node, and earlier versions set no zone. An existing zone is never changed: volumes may be bound to it, and the
// framework makes the other label equal to the deprecated one.
func zoneChanges(node *corev1.Node, server pnap.Server) map[string]*string {
	zone := instances.Zone(node, server)
	patch := map[string]*string{}
	for _, name := range []string{corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaZone} {
		if _, exists := node.Labels[name]; exists || zone == "" {
			return nil
		}
		patch[name] = &zone
	}
	return patch
}

// missingMembership returns why a Node cannot carry traffic and what to do; empty if its server is or becomes a member.
func missingMembership(server pnap.Server, network network.Network) string {
	if slices.ContainsFunc(server.PublicNetworks, func(m pnap.Membership) bool { return m.NetworkID == network.ID }) {
		return ""
	}
	if network.Location != "" && server.Location != "" && !strings.EqualFold(network.Location, server.Location) {
		return fmt.Sprintf("phoenixNAP server %s is in location %s, but public network %s is in %s: "+
			"the Node cannot carry load-balancer traffic; exclude it with --service-node-selector",
			server.ID, server.Location, network.ID, network.Location)
	}
	return fmt.Sprintf("phoenixNAP server %s is not a member of public network %s: the Node cannot carry "+
		"load-balancer traffic; add the server to the network with an address of an assigned IP block, set "+
		"--manage-membership, or exclude the Node with --service-node-selector",
		server.ID, network.ID)
}

// recordMissing records an event for every Node without membership, once for each state.
func (p *NetworkPublisher) recordMissing(nodes []*corev1.Node, list instances.List) {
	if p.config.NetworkID == "" || p.config.ManagesMembership {
		return
	}
	present := map[types.UID]bool{}
	for _, node := range nodes {
		present[node.UID] = true
		server, ok := serverOf(node, list)
		if !ok {
			continue
		}
		text := ""
		if p.config.Selector.Matches(labels.Set(node.Labels)) {
			text = missingMembership(server, p.network)
		}
		if text != "" && p.reported[node.UID] != text {
			p.config.Events.Event(node, corev1.EventTypeWarning, ReasonMembershipMissing, text)
		}
		p.reported[node.UID] = text
	}
	maps.DeleteFunc(p.reported, func(uid types.UID, _ string) bool { return !present[uid] })
}

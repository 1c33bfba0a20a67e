package metadata

import (
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
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// networkAnnotations are the annotations of which the package is the only writer.
func networkAnnotations() []string {
	return append(contract.NetworkAnnotations(), contract.NodeServerMissing)
}

// describeAll returns the public networks that concern a server: the default one, and those in which it is or becomes a
// member. They are not known while one of them is not among those that were read: it would look as if the server had
// left it.
func describeAll(server pnap.Server, published []PublicNetwork, networks map[string]network.Network,
) (facts []contract.NodeNetwork, known bool) {
	for _, each := range published {
		if each.Name != v1beta1.DefaultNetwork && !joins(server, each.NetworkID) {
			continue
		}
		read, ok := networks[each.NetworkID]
		if !ok {
			return nil, false
		}
		facts = append(facts, describe(server, read, each))
	}
	return facts, true
}

// joins reports whether a server is or becomes a member of a public network.
func joins(server pnap.Server, networkID string) bool {
	return slices.ContainsFunc(server.PublicNetworks,
		func(m pnap.Membership) bool { return m.NetworkID == networkID })
}

// describe returns the public network as published for the agent of a server. The server's own entry counts; the
// network's list of members, which may be delayed, provides values that the entry lacks.
func describe(server pnap.Server, public network.Network, published PublicNetwork) contract.NodeNetwork {
	facts := contract.NodeNetwork{ServerID: server.ID, Name: published.Name, NetworkID: published.NetworkID,
		VLAN: public.VLAN, Announcer: published.Announcer}
	for _, b := range public.Blocks {
		facts.Blocks = append(facts.Blocks, contract.NetworkBlock{CIDR: b.CIDR})
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
	facts.IPs = facts.IPs[:min(len(facts.IPs), maxMembershipIPs)]
	return facts
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
	if joins(server, network.ID) {
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

// defaultNetwork returns the network of that name; ok is false where there is none, or it could not be read.
func (p *NetworkPublisher) defaultNetwork() (public network.Network, ok bool) {
	at := slices.IndexFunc(p.config.Published, func(n PublicNetwork) bool { return n.Name == v1beta1.DefaultNetwork })
	if at < 0 {
		return network.Network{}, false
	}
	public, ok = p.networks[p.config.Published[at].NetworkID]
	return public, ok
}

// recordMissing records an event for every Node without membership in the default network, once for each state.
func (p *NetworkPublisher) recordMissing(nodes []*corev1.Node, list instances.List) {
	public, ok := p.defaultNetwork()
	if !ok || p.config.ManagesMembership {
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
			text = missingMembership(server, public)
		}
		if text != "" && p.reported[node.UID] != text {
			p.config.Events.Event(node, corev1.EventTypeWarning, ReasonMembershipMissing, text)
		}
		p.reported[node.UID] = text
	}
	maps.DeleteFunc(p.reported, func(uid types.UID, _ string) bool { return !present[uid] })
}

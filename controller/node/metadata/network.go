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

// concerning returns the public networks that a Node lists: those in which its server is or becomes a member; the
// default one if it is in none. A network that is not published any more, because its object is gone or was not read
// yet, stays until the server leaves it: the Services there keep their addresses.
func concerning(node *corev1.Node, server pnap.Server, published []PublicNetwork) []PublicNetwork {
	if len(published) == 0 {
		return nil
	}
	listed, _, _ := contract.ParsePublicNetworks(node.Annotations) // an unreadable list is written again
	all := slices.Clone(published)
	for _, n := range listed {
		known := slices.ContainsFunc(published, func(p PublicNetwork) bool { return p.ID == n.ID || p.Name == n.Name })
		if !known {
			all = append(all, PublicNetwork{Named: network.Named{Name: n.Name, ID: n.ID}, Announcer: n.Announcer})
		}
	}
	all = slices.DeleteFunc(all, func(p PublicNetwork) bool { return !joins(server, p.ID) })
	if len(all) == 0 {
		return slices.DeleteFunc(slices.Clone(published), func(p PublicNetwork) bool {
			return p.Name != v1beta1.DefaultNetwork
		})
	}
	return all
}

// describeAll returns what a Node says of the public networks that concern it. That is not known while one of them is
// not among those that were read: it would look as if the server had left it.
func describeAll(node *corev1.Node, server pnap.Server, concerned []PublicNetwork, networks map[string]network.Network,
) (facts []contract.NodeNetwork, known bool) {
	for _, each := range concerned {
		read, ok := networks[each.ID]
		if !ok {
			return nil, false
		}
		if each.Selector != nil && !each.Selector.Matches(labels.Set(node.Labels)) {
			each.Announcer = contract.AnnouncerNone
		}
		facts = append(facts, describe(server, read, each))
	}
	return facts, true
}

// joins reports whether a server is or becomes a member of a public network.
func joins(server pnap.Server, networkID string) bool {
	return slices.ContainsFunc(server.PublicNetworks, func(m pnap.Membership) bool { return m.Network == networkID })
}

// describe returns the public network as published for the agent of a server. The server's own entry counts; the
// network's list of members, which may be delayed, provides values that the entry lacks.
func describe(server pnap.Server, public network.Network, published PublicNetwork) contract.NodeNetwork {
	facts := contract.NodeNetwork{ServerID: server.ID, Name: published.Name, ID: published.ID,
		VLAN: public.VLAN, Announcer: published.Announcer}
	for _, b := range public.Blocks {
		facts.Blocks = append(facts.Blocks, contract.NetworkBlock{CIDR: b.CIDR})
	}
	listed := slices.IndexFunc(public.Members, func(m network.Member) bool { return m.ServerID == server.ID })
	joined := slices.IndexFunc(server.PublicNetworks, func(m pnap.Membership) bool { return m.Network == public.ID })
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

// missingMembership returns why a Node whose server is in no public network cannot carry traffic, and what to do.
func missingMembership(server pnap.Server, network network.Network) string {
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

// nearest returns the network that a server would join: the first one in its location, else the default one; ok is
// false while that could not be read.
func (p *NetworkPublisher) nearest(server pnap.Server, published []PublicNetwork) (n PublicNetwork, ok bool) {
	at := slices.IndexFunc(published, func(n PublicNetwork) bool {
		return network.SameLocation(p.networks[n.ID].Location, server.Location)
	})
	if at < 0 {
		at = slices.IndexFunc(published, func(n PublicNetwork) bool { return n.Name == v1beta1.DefaultNetwork })
	}
	if at < 0 {
		return PublicNetwork{}, false
	}
	_, ok = p.networks[published[at].ID]
	return published[at], ok
}

// lacks returns why a Node that a selector selects cannot carry traffic; empty if its server is or becomes a member of
// a network, or the controller will add it to one. ok is false while that is not known.
func (p *NetworkPublisher) lacks(node *corev1.Node, server pnap.Server, published []PublicNetwork) (why string,
	ok bool) {
	if slices.ContainsFunc(published, func(n PublicNetwork) bool { return joins(server, n.ID) }) {
		return "", true
	}
	n, ok := p.nearest(server, published)
	switch {
	case !ok:
		return "", false
	case n.Managed || n.Selector != nil && !n.Selector.Matches(labels.Set(node.Labels)):
		return "", true
	default:
		return missingMembership(server, p.networks[n.ID]), true
	}
}

// recordMissing records an event for every Node that should be in a public network and is in none, once for each state.
func (p *NetworkPublisher) recordMissing(nodes []*corev1.Node, list instances.List, published []PublicNetwork) {
	present := map[types.UID]bool{}
	for _, node := range nodes {
		present[node.UID] = true
		server, listed := serverOf(node, list)
		if !listed {
			continue
		}
		text, ok := p.lacks(node, server, published)
		if !ok {
			continue
		}
		if text != "" && p.reported[node.UID] != text {
			p.config.Events.Event(node, corev1.EventTypeWarning, ReasonMembershipMissing, text)
		}
		p.reported[node.UID] = text
	}
	maps.DeleteFunc(p.reported, func(uid types.UID, _ string) bool { return !present[uid] })
}

package metadata

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/node/instances"
)

// missingMembership explains why a Node cannot carry load-balancer traffic and what to do; empty when its server is a
// member, or is joining.
func missingMembership(server pnap.Server, network plan.Network) string {
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

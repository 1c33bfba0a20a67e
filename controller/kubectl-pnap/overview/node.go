package overview

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// Node is a Node with its server.
type Node struct {
	Name string `json:"name"`
	// ServerID is the phoenixNAP server; empty while the controller has not found it.
	ServerID string `json:"serverID,omitempty"`
	Location string `json:"location,omitempty"`
	// Waiting reports that the Node has the taint of Nodes that no controller has initialized yet.
	Waiting bool `json:"waiting,omitempty"`
	// Member reports whether the server is a member of a public network; Membership is yes, no or, while the controller
	// has not published it, unknown. Networks are the names of those in which it is.
	Member     bool     `json:"member"`
	Membership string   `json:"membership"`
	Networks   []string `json:"networks,omitempty"`
	// VLAN and Addresses are those of the first network that the Node lists.
	VLAN      int          `json:"vlan,omitempty"`
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// Announces reports whether the node may announce addresses (label phoenixnap.com/vlan-ready).
	Announces bool `json:"announces"`
	// Obstacle is why the node may not carry load-balancer traffic; empty while it may.
	Obstacle string `json:"obstacle,omitempty"`
	// Renewed is when the agent last showed that it runs; nil when that is unknown. Outdated reports that this is so
	// long ago that what the agent has written may no longer be so.
	Renewed  *time.Time `json:"renewed,omitempty"`
	Outdated bool       `json:"outdated,omitempty"`
	// VLANReady and AnnouncementHealthy are the conditions that the agent reports.
	VLANReady           Condition `json:"vlanReady"`
	AnnouncementHealthy Condition `json:"announcementHealthy"`
}

// Values of Node.Membership.
const (
	membershipYes     = "yes"
	membershipNo      = "no"
	membershipUnknown = "unknown"
)

// taintUninitialized is the taint of a kubelet with --cloud-provider=external until a controller has initialized the
// Node (k8s.io/cloud-provider/api, which imports more).
const taintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

func nodesOf(f Facts) []Node {
	nodes := make([]Node, 0, len(f.Nodes))
	watched := slices.ContainsFunc(f.Nodes, func(n corev1.Node) bool {
		return contract.FindNodeCondition(&n, contract.ConditionVLANReady) != nil
	})
	for i := range f.Nodes {
		node := nodeOf(&f.Nodes[i])
		node.Obstacle = contract.Carriers{}.Obstacle(&f.Nodes[i], watched).Why
		node.Renewed, node.Outdated = f.lastSign(&f.Nodes[i])
		nodes = append(nodes, node)
	}
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes
}

func nodeOf(n *corev1.Node) Node {
	node := Node{
		Name: text.Clean(n.Name), ServerID: text.Clean(n.Annotations[contract.NodeServerID]),
		Location: text.Clean(n.Labels[contract.NodeLocation]),
		Waiting: slices.ContainsFunc(n.Spec.Taints,
			func(t corev1.Taint) bool { return t.Key == taintUninitialized }),
		Membership:          membershipUnknown,
		Announces:           n.Labels[contract.NodeVLANReady] == contract.TagTrue,
		VLANReady:           nodeCondition(n, contract.ConditionVLANReady),
		AnnouncementHealthy: nodeCondition(n, contract.ConditionAnnouncementHealthy),
	}
	if id, err := contract.ParseProviderID(n.Spec.ProviderID); err == nil {
		node.ServerID = id
	}
	if list, _, err := contract.ParsePublicNetworks(n.Annotations); len(list) > 0 && err == nil {
		node.inNetworks(list)
	}
	return node
}

// inNetworks notes the networks that a Node lists.
func (n *Node) inNetworks(list []contract.NodeNetwork) {
	n.VLAN = list[0].VLAN
	n.Addresses = withoutZones(list[0].IPs)
	n.Membership = membershipNo
	for _, network := range list {
		if network.Member {
			n.Member = true
			n.Membership = membershipYes
			n.Networks = append(n.Networks, text.Clean(network.Name))
		}
	}
}

// withoutZones removes the zones of addresses: a zone is arbitrary text, and an address of a membership needs none.
func withoutZones(addresses []netip.Addr) []netip.Addr {
	bare := make([]netip.Addr, len(addresses))
	for i, address := range addresses {
		bare[i] = address.WithZone("")
	}
	return bare
}

func nodeCondition(n *corev1.Node, conditionType corev1.NodeConditionType) Condition {
	c := contract.FindNodeCondition(n, conditionType)
	if c == nil {
		return Condition{}
	}
	return newCondition(string(c.Status), c.Reason, c.Message, c.LastTransitionTime.Time)
}

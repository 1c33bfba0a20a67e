package overview

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/text"
)

// Node is a Node with its server.
type Node struct {
	Name string `json:"name"`
	// ServerID is the phoenixNAP server; empty while the controller has not found it.
	ServerID string `json:"serverID,omitempty"`
	Location string `json:"location,omitempty"`
	// Member reports whether the server is a member of the public network.
	Member bool `json:"member"`
	VLAN   int  `json:"vlan,omitempty"`
	// Addresses are those of the membership.
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// Announces reports whether the node may announce addresses (label phoenixnap.com/vlan-ready).
	Announces bool `json:"announces"`
	// VLANReady and AnnouncementHealthy are the conditions that the agent reports.
	VLANReady           Condition `json:"vlanReady"`
	AnnouncementHealthy Condition `json:"announcementHealthy"`
}

func nodesOf(f Facts) []Node {
	nodes := make([]Node, 0, len(f.Nodes))
	for i := range f.Nodes {
		nodes = append(nodes, nodeOf(&f.Nodes[i]))
	}
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes
}

func nodeOf(n *corev1.Node) Node {
	node := Node{
		Name: text.Clean(n.Name), ServerID: text.Clean(n.Annotations[contract.NodeServerID]),
		Location:            text.Clean(n.Labels[contract.NodeLocation]),
		Announces:           n.Labels[contract.NodeVLANReady] == contract.TagTrue,
		VLANReady:           nodeCondition(n, contract.ConditionVLANReady),
		AnnouncementHealthy: nodeCondition(n, contract.ConditionAnnouncementHealthy),
	}
	if id, err := contract.ParseProviderID(n.Spec.ProviderID); err == nil {
		node.ServerID = id
	}
	if published, ok, err := contract.ParseNodeNetwork(n.Annotations); ok && err == nil {
		node.Member = published.Member
		node.VLAN = published.VLAN
		node.Addresses = withoutZones(published.IPs)
	}
	return node
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

func newCondition(status, reason, message string, since time.Time) Condition {
	v := Condition{Status: text.Clean(status), Reason: text.Clean(reason), Message: text.Clean(message)}
	if !since.IsZero() {
		since = since.UTC()
		v.Since = &since
	}
	return v
}

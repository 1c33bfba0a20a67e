package membership

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
)

// Reasons of the events on a Node.
const (
	// ReasonJoining (Normal): the controller requested that the server joins the public network.
	ReasonJoining = "PublicNetworkJoining"
	// ReasonJoined (Normal): the server is a member.
	ReasonJoined = "PublicNetworkJoined"
	// ReasonLeaving (Normal): the controller requested that the server leaves the network that the controller joined it
	// to.
	ReasonLeaving = "PublicNetworkLeaving"
	// ReasonLeft (Normal): the server is no longer a member.
	ReasonLeft = "PublicNetworkLeft"
	// ReasonJoinRefused (Warning): the server cannot join; the text contains the reason and what to do.
	ReasonJoinRefused = "PublicNetworkJoinRefused"
	// ReasonLeaveRefused (Warning): the API rejected the removal of the server.
	ReasonLeaveRefused = "PublicNetworkLeaveRefused"
	// ReasonNodeBlockFull (Warning): the node block has no address left for the Node.
	ReasonNodeBlockFull = "NodeBlockFull"
	// ReasonNodeBlockUnavailable (Warning): there is no usable node block; the text contains what to do.
	ReasonNodeBlockUnavailable = "NodeBlockUnavailable"
	// ReasonDryRun (Normal): what would have been done.
	ReasonDryRun = "DryRun"
)

// Reasons of the events on the Namespace kube-system.
const (
	// ReasonNodeBlockReleased (Normal): a block that was bought for the nodes and that they do not need was deleted.
	ReasonNodeBlockReleased = "NodeBlockReleased"
	// ReasonNodeBlockSurplus (Warning): a block that was bought for the nodes and that they do not need cannot be
	// released; the text contains the reason and what to do.
	ReasonNodeBlockSurplus = "NodeBlockSurplus"
)

// record records an event unless it is the last one of the Node. It ignores a nil Node.
func (m *Manager) record(node *corev1.Node, kind, reason, text string) {
	if node == nil || m.events[node.UID] == reason+" "+text {
		return
	}
	m.events[node.UID] = reason + " " + text
	m.config.Events.Event(node, kind, reason, text)
}

// forgetEvents forgets the events of all other Nodes.
func (m *Manager) forgetEvents(nodes []*corev1.Node) {
	kept := map[types.UID]string{}
	for _, node := range nodes {
		if text, ok := m.events[node.UID]; ok {
			kept[node.UID] = text
		}
	}
	m.events = kept
}

// Metrics count servers by their membership in the public network.
type Metrics struct{ servers *metrics.GaugeVec }

// NewMetrics returns metrics that are not registered.
func NewMetrics() *Metrics {
	return &Metrics{servers: metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "phoenixnap_public_network_servers", StabilityLevel: metrics.ALPHA,
		Help: "Servers of the cluster by membership in the public network: managed (joined by the controller), " +
			"foreign (joined by others) or missing (selected, but not a member).",
	}, []string{"membership"})}
}

// All returns the metrics, to be registered.
func (m *Metrics) All() []metrics.Registerable { return []metrics.Registerable{m.servers} }

func (m *Metrics) set(p picture) {
	counts := map[string]int{"managed": 0, "foreign": 0, "missing": 0}
	for id := range p.wanted {
		_, member := membershipOf(p.servers[id], p.network.ID)
		_, ours := p.memberRecord.members[id]
		switch {
		case !member:
			counts["missing"]++
		case ours:
			counts["managed"]++
		default:
			counts["foreign"]++
		}
	}
	for name, count := range counts {
		m.servers.WithLabelValues(name).Set(float64(count))
	}
}

package membership

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
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

// recorder records events on Nodes, each state once.
type recorder struct {
	events record.EventRecorder

	mu   sync.Mutex
	last map[types.UID]string
}

func newRecorder(events record.EventRecorder) *recorder {
	return &recorder{events: events, last: map[types.UID]string{}}
}

// record records an event unless it is the last one of the Node. It ignores a nil Node.
func (t *recorder) record(node *corev1.Node, kind, reason, text string) {
	if node == nil {
		return
	}
	t.mu.Lock()
	known := t.last[node.UID] == reason+" "+text
	t.last[node.UID] = reason + " " + text
	t.mu.Unlock()
	if !known {
		t.events.Event(node, kind, reason, text)
	}
}

// keep forgets all other Nodes.
func (t *recorder) keep(nodes []*corev1.Node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := map[types.UID]string{}
	for _, node := range nodes {
		if text, ok := t.last[node.UID]; ok {
			kept[node.UID] = text
		}
	}
	t.last = kept
}

package membership

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
)

// Reasons of the events on a Node.
const (
	// ReasonJoining (Normal): the server was asked to join the public network.
	ReasonJoining = "PublicNetworkJoining"
	// ReasonJoined (Normal): the server is a member.
	ReasonJoined = "PublicNetworkJoined"
	// ReasonLeaving (Normal): the server was asked to leave the network that the controller joined it to.
	ReasonLeaving = "PublicNetworkLeaving"
	// ReasonLeft (Normal): the server is no member any more.
	ReasonLeft = "PublicNetworkLeft"
	// ReasonJoinRefused (Warning): the server cannot join; the text says why and what to do.
	ReasonJoinRefused = "PublicNetworkJoinRefused"
	// ReasonLeaveRefused (Warning): the API does not let the server leave.
	ReasonLeaveRefused = "PublicNetworkLeaveRefused"
	// ReasonNodeBlockFull (Warning): the node block has no address left for the Node.
	ReasonNodeBlockFull = "NodeBlockFull"
	// ReasonNodeBlockUnavailable (Warning): there is no node block that could be used; the text says what to do.
	ReasonNodeBlockUnavailable = "NodeBlockUnavailable"
	// ReasonDryRun (Normal): what would have been done.
	ReasonDryRun = "DryRun"
)

// Reasons of the events on the Namespace kube-system.
const (
	// ReasonNodeBlockReleased (Normal): a block that was bought for the nodes and that they do not need was deleted.
	ReasonNodeBlockReleased = "NodeBlockReleased"
	// ReasonNodeBlockSurplus (Warning): a block that was bought for the nodes and that they do not need cannot be
	// given back; the text says why and what to do.
	ReasonNodeBlockSurplus = "NodeBlockSurplus"
)

// recorder records events on Nodes, each state of affairs once.
type recorder struct {
	events record.EventRecorder

	mu   sync.Mutex
	said map[types.UID]string
}

func newRecorder(events record.EventRecorder) *recorder {
	return &recorder{events: events, said: map[types.UID]string{}}
}

// record records an event unless it is the last that was told of the Node. A nil Node has nobody to tell.
func (t *recorder) record(node *corev1.Node, kind, reason, text string) {
	if node == nil {
		return
	}
	t.mu.Lock()
	known := t.said[node.UID] == reason+" "+text
	t.said[node.UID] = reason + " " + text
	t.mu.Unlock()
	if !known {
		t.events.Event(node, kind, reason, text)
	}
}

// keep forgets the Nodes that are not among those given.
func (t *recorder) keep(nodes []*corev1.Node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := map[types.UID]string{}
	for _, node := range nodes {
		if text, ok := t.said[node.UID]; ok {
			kept[node.UID] = text
		}
	}
	t.said = kept
}

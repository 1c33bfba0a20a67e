package instances

import (
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
)

// Reasons of the events on a Node.
const (
	// ReasonPossibleNodeDeletion (Warning): precedes the deletion of a Node, or explains why the Node is kept.
	ReasonPossibleNodeDeletion = "PossibleNodeDeletion"
	// ReasonServerNotFound (Warning): no server belongs to the Node.
	ReasonServerNotFound = "ServerNotFound"
	// ReasonServerAmbiguous (Warning): several servers may belong to the Node, and which.
	ReasonServerAmbiguous = "ServerAmbiguous"
	// ReasonMisconfiguredInternalIP (Warning): the kubelet's --node-ip is not an address of the server.
	ReasonMisconfiguredInternalIP = "MisconfiguredInternalIP"
)

// repeatAfter is how long the same warning is not repeated: the framework retries a Node every few seconds.
const repeatAfter = 10 * time.Minute

// eventLimiter warns about Nodes, about each state once in repeatAfter.
type eventLimiter struct {
	events record.EventRecorder
	now    func() time.Time

	mu   sync.Mutex
	said map[limitedEvent]time.Time
}

// limitedEvent is one warning about one Node.
type limitedEvent struct {
	node         types.UID
	name         string
	reason, text string
}

func newEventLimiter(events record.EventRecorder, now func() time.Time) *eventLimiter {
	return &eventLimiter{events: events, now: now, said: map[limitedEvent]time.Time{}}
}

// warn records an event unless the same event was recorded recently.
func (c *eventLimiter) warn(node *corev1.Node, reason, format string, args ...any) {
	each := limitedEvent{node: node.UID, name: node.Name, reason: reason, text: fmt.Sprintf(format, args...)}
	if c.fresh(each) {
		c.events.Event(node, corev1.EventTypeWarning, reason, each.text)
	}
}

func (c *eventLimiter) fresh(each limitedEvent) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	for old, at := range c.said {
		if now.Sub(at) >= repeatAfter {
			delete(c.said, old)
		}
	}
	if _, said := c.said[each]; said {
		return false
	}
	c.said[each] = now
	return true
}

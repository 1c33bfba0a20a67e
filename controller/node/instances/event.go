package instances

import (
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
)

// Reasons of the events on a Node.
const (
	// ReasonPossibleNodeDeletion (Warning): precedes the deletion of a Node, or explains why the Node is kept.
	ReasonPossibleNodeDeletion = "PossibleNodeDeletion"
	// ReasonServerReplaced (Warning): the server of a Ready Node no longer exists, and what to do.
	ReasonServerReplaced = "ServerReplaced"
	// ReasonServerNotFound (Warning): no server belongs to the Node.
	ReasonServerNotFound = "ServerNotFound"
	// ReasonServerAmbiguous (Warning): several servers may belong to the Node, and which.
	ReasonServerAmbiguous = "ServerAmbiguous"
	// ReasonServerLookupFailed (Warning): the Node waits for its server, and phoenixNAP cannot be asked for it; the
	// text repeats the words of the API. Sent once in ten minutes for each kind of failure.
	ReasonServerLookupFailed = "ServerLookupFailed"
	// ReasonMisconfiguredInternalIP (Warning): the kubelet's --node-ip is not an address of the server.
	ReasonMisconfiguredInternalIP = "MisconfiguredInternalIP"
)

// repeatAfter is how long the same warning is not repeated: the framework retries a Node every few seconds.
const repeatAfter = 10 * time.Minute

// eventLimiter warns about Nodes, about each state once in repeatAfter.
type eventLimiter struct {
	events record.EventRecorder
	now    func() time.Time

	mu       sync.Mutex
	recorded map[limitedEvent]time.Time
}

// limitedEvent is one warning about one Node. Its text is that of the event, or stands for similar ones.
type limitedEvent struct {
	node               types.UID
	name, reason, text string
}

func newEventLimiter(events record.EventRecorder, now func() time.Time) *eventLimiter {
	return &eventLimiter{events: events, now: now, recorded: map[limitedEvent]time.Time{}}
}

// warn records an event unless the same event was recorded recently.
func (l *eventLimiter) warn(node *corev1.Node, reason, format string, args ...any) {
	each := limitedEvent{node: node.UID, name: node.Name, reason: reason, text: fmt.Sprintf(format, args...)}
	if l.isNew(each) {
		l.events.Event(node, corev1.EventTypeWarning, reason, each.text)
	}
}

// lookupFailed warns that the API fails while a Node waits for its server: once for each remedy, because the words of
// the API differ from one attempt to the next.
func (l *eventLimiter) lookupFailed(node *corev1.Node, err error) {
	kind := limitedEvent{node: node.UID, name: node.Name, reason: ReasonServerLookupFailed, text: pnap.Remedy(err)}
	if l.isNew(kind) {
		l.events.Eventf(node, corev1.EventTypeWarning, ReasonServerLookupFailed,
			"the phoenixNAP server of Node %s cannot be looked up, and the Node stays as it is: %s", node.Name,
			pnap.Explain(err))
	}
}

func (l *eventLimiter) isNew(each limitedEvent) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	maps.DeleteFunc(l.recorded, func(_ limitedEvent, at time.Time) bool { return now.Sub(at) >= repeatAfter })
	if _, found := l.recorded[each]; found {
		return false
	}
	l.recorded[each] = now
	return true
}

// Metrics describe the shared list of servers and the deletion of Nodes.
type Metrics struct {
	listed  *metrics.Gauge
	lists   *metrics.CounterVec
	missing *metrics.GaugeVec
}

// NewMetrics returns metrics that are not registered.
func NewMetrics() *Metrics {
	return &Metrics{
		listed: metrics.NewGauge(&metrics.GaugeOpts{
			Name: "phoenixnap_server_list_timestamp_seconds", StabilityLevel: metrics.ALPHA,
			Help: "When the list of servers in use was requested, in seconds since 1970: its age is the " +
				"time since then.",
		}),
		lists: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "phoenixnap_server_list_hits_total", StabilityLevel: metrics.ALPHA,
			Help: "How often the list of servers was read, by result: hit (answered from the cache), " +
				"fetched or failed.",
		}, []string{"result"}),
		missing: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name: "phoenixnap_missing_servers", StabilityLevel: metrics.ALPHA,
			Help: "Number of servers of Nodes that are missing, by state: suspect (to be confirmed), held (too many " +
				"are missing at once, or no other server can be read, so their Nodes are kept) or gone (their Nodes may " +
				"be deleted).",
		}, []string{"state"}),
	}
}

// All returns the metrics, to be registered.
func (m *Metrics) All() []metrics.Registerable {
	return []metrics.Registerable{m.listed, m.lists, m.missing}
}

func (m *Metrics) fetched(askedAt time.Time) {
	m.lists.WithLabelValues("fetched").Inc()
	m.listed.Set(float64(askedAt.UnixNano()) / float64(time.Second))
}

func (m *Metrics) used(result string) { m.lists.WithLabelValues(result).Inc() }

func (m *Metrics) setMissing(counts map[deletionState]int) {
	for _, state := range []deletionState{suspect, held, gone} {
		m.missing.WithLabelValues(string(state)).Set(float64(counts[state]))
	}
}

package faults

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// condition is the state of a Node's condition VLANReady, and since when the API server has shown it.
type condition struct {
	status  corev1.ConditionStatus
	reason  string
	message string
	at      time.Time
}

// firstCause is the ID that the message of a condition that is not True begins with.
func (c condition) firstCause() check.ID {
	id, _, found := strings.Cut(c.message, ":")
	if c.status == corev1.ConditionTrue || !found {
		return ""
	}
	return check.ID(id)
}

func (c condition) String() string {
	if c.status == "" {
		return "no condition"
	}
	return fmt.Sprintf("%s %s %q", c.status, c.reason, c.message)
}

// watcher follows the condition of all Nodes.
type watcher struct {
	factory informers.SharedInformerFactory

	mu      sync.Mutex
	latest  map[string]condition
	changed chan struct{} // closed at the next change
}

func newWatcher(client kubernetes.Interface) *watcher {
	return &watcher{
		factory: informers.NewSharedInformerFactory(client, 0), latest: map[string]condition{},
		changed: make(chan struct{}),
	}
}

// start begins to watch; it ends with ctx, and stop waits for that.
func (w *watcher) start(ctx context.Context) error {
	note := func(object any) {
		if node, isNode := object.(*corev1.Node); isNode {
			w.note(node, time.Now())
		}
	}
	_, err := w.factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: note, UpdateFunc: func(_, object any) { note(object) },
	})
	if err != nil {
		return fmt.Errorf("watch Nodes: %w", err)
	}
	w.factory.Start(ctx.Done())
	return nil
}

func (w *watcher) stop() { w.factory.Shutdown() }

// note takes a version of a Node that has just arrived.
func (w *watcher) note(node *corev1.Node, now time.Time) {
	next := condition{at: now}
	if c := contract.FindNodeCondition(node, contract.ConditionVLANReady); c != nil {
		next.status = c.Status
		next.reason = c.Reason
		next.message = c.Message
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if last := w.latest[node.Name]; last.status == next.status && last.reason == next.reason &&
		last.message == next.message {
		return
	}
	w.latest[node.Name] = next
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *watcher) last(name string) (condition, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.latest[name], w.changed
}

// await waits until the Node's condition is as wanted and returns since when it has been.
func (w *watcher) await(ctx context.Context, name string, within time.Duration, wanted func(condition) bool) (time.Time,
	error) {
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		latest, changed := w.last(name)
		if wanted(latest) {
			return latest.at, nil
		}
		select {
		case <-changed:
		case <-timer.C:
			return time.Time{}, fmt.Errorf("condition of %s after %s: %s", name, within, latest)
		case <-ctx.Done():
			return time.Time{}, context.Cause(ctx)
		}
	}
}

func isReady(c condition) bool { return c.status == corev1.ConditionTrue }

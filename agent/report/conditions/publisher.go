// Package conditions writes the agent's results to its Node: its own conditions and annotations, nothing else.
package conditions

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

const (
	// Heartbeat is the time between writes of a condition that does not change, give or take a tenth: every write of a
	// Node reaches every watcher of Nodes in the cluster.
	Heartbeat = 5 * time.Minute
	// writeTimeout bounds one request.
	writeTimeout = 10 * time.Second
)

// Nodes writes Nodes; the client of client-go does.
type Nodes interface {
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, o metav1.PatchOptions,
		subresources ...string) (*corev1.Node, error)
}

// Publisher keeps the Node's conditions as they were set last. It compares with the Node as it is, so conditions that
// were lost with a deleted Node, or overwritten, come back.
type Publisher struct {
	nodes Nodes
	name  string
	// onTransition is called after a change of status was written, onWrite after each attempt.
	onTransition func(*corev1.Node, Transition)
	onWrite      func(error)

	// wake reports that there may be something to write, replaced that there is another Node of that name.
	wake, replaced loop.Wake
	// unconfirmed are transitions whose write was not answered, refused the annotations that the API server does not
	// take. Both belong to the goroutine of Run.
	unconfirmed map[corev1.NodeConditionType]Transition
	refused     map[string]string

	mu   sync.Mutex
	want desired
	node *corev1.Node
}

// New returns a publisher for the Node of that name; it starts nothing. onTransition and onWrite must not block.
func New(nodes Nodes, name string, onTransition func(*corev1.Node, Transition), onWrite func(error)) *Publisher {
	return &Publisher{
		nodes: nodes, name: name, onTransition: onTransition, onWrite: onWrite,
		wake: loop.NewWake(), replaced: loop.NewWake(),
		unconfirmed: map[corev1.NodeConditionType]Transition{}, refused: map[string]string{},
		want: desired{conditions: map[corev1.NodeConditionType]Condition{}, annotations: map[string]string{}},
	}
}

// Set sets the desired state of a condition. A message is cut after MessageLimit bytes. What is not UTF-8, as the name
// of an interface need not be, is replaced: the API server would store something else, and the publisher would write it
// forever.
func (p *Publisher) Set(c Condition) {
	c.Reason = valid(c.Reason)
	c.Message = text.Cut(valid(c.Message), MessageLimit, "…")
	p.change(func() bool {
		changed := p.want.conditions[c.Type] != c
		p.want.conditions[c.Type] = c
		return changed
	})
}

// Annotate sets the desired value of an annotation.
func (p *Publisher) Annotate(key, value string) {
	value = valid(value)
	p.change(func() bool {
		changed := p.want.annotations[key] != value
		p.want.annotations[key] = value
		return changed
	})
}

// Observe takes the Node as it is; nil when there is none, and then nothing is written.
func (p *Publisher) Observe(node *corev1.Node) {
	p.change(func() bool {
		if node != nil && p.node != nil && older(node, p.node) {
			// A watch may lag behind the answer to our own write.
			return false
		}
		if node != nil && (p.node == nil || p.node.UID != node.UID) {
			p.replaced.Signal()
		}
		p.node = node
		return true
	})
}

// Observed returns the Node as last seen, nil while there is none.
func (p *Publisher) Observed() *corev1.Node {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.node
}

func (p *Publisher) change(apply func() bool) {
	p.mu.Lock()
	changed := apply()
	p.mu.Unlock()
	if changed {
		p.wake.Signal()
	}
}

// older compares resource versions of one and the same object, which are numbers that grow (Kubernetes API concepts,
// "Resource versions"); a Node of another UID is never older.
func older(a, b *corev1.Node) bool {
	if a.UID != b.UID {
		return false
	}
	left, errLeft := strconv.ParseUint(a.ResourceVersion, 10, 64)
	right, errRight := strconv.ParseUint(b.ResourceVersion, 10, 64)
	return errLeft == nil && errRight == nil && left < right
}

// Run writes until ctx ends.
func (p *Publisher) Run(ctx context.Context) error {
	limit := newLimiter()
	// The first heartbeat is spread over the whole period, so that a rollout of the agents is no burst.
	heartbeat := time.Now().Add(rand.N(Heartbeat))
	for {
		if !p.await(ctx, limit) {
			return nil
		}
		due := !time.Now().Before(heartbeat)
		wrote, err := p.tryWrite(ctx, due)
		switch {
		case err != nil:
			limit.failed(time.Now())
			continue
		case wrote:
			limit.wrote(time.Now())
		}
		if due {
			heartbeat = time.Now().Add(loop.Jitter(Heartbeat, 10))
		}
		if p.wake.Wait(ctx, time.Until(heartbeat)) == loop.Ended {
			return nil
		}
	}
}

// await waits until a write is allowed; false when ctx ended. A change does not shorten the pause after a failure, only
// a new Node does, which has none of the conditions.
func (p *Publisher) await(ctx context.Context, limit *limiter) bool {
	for {
		switch p.replaced.Wait(ctx, limit.wait(time.Now())) {
		case loop.Ended:
			return false
		case loop.Due:
			return true
		case loop.Woken:
			limit.renew()
		}
	}
}

// tryWrite writes and logs a failure, unless it only comes from the end of ctx.
func (p *Publisher) tryWrite(ctx context.Context, heartbeat bool) (wrote bool, err error) {
	wrote, err = p.write(ctx, heartbeat)
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Failed to update Node conditions")
	}
	return wrote, err
}

func (p *Publisher) write(ctx context.Context, heartbeat bool) (wrote bool, err error) {
	if heartbeat {
		clear(p.refused)
	}
	p.mu.Lock()
	node := p.node
	want := p.want.without(p.refused)
	p.mu.Unlock()
	if node == nil {
		return false, nil
	}
	content, transitions := diff(want, node, time.Now(), heartbeat)
	p.confirm(ctx, node, transitions)
	if content.empty() {
		return false, nil
	}
	updated, err := p.send(ctx, content)
	if err != nil {
		return false, err
	}
	p.mu.Lock()
	// A newer version, or the deletion, may have been seen meanwhile.
	if p.node == node || p.node != nil && !older(updated, p.node) {
		p.node = updated
	}
	p.mu.Unlock()
	for _, t := range transitions {
		p.record(ctx, updated, t)
	}
	return true, nil
}

// send patches the Node. Annotations that the API server refuses, because those of the Node are too long together or a
// policy says so, keep no condition waiting: they are left out until they change or the next heartbeat.
func (p *Publisher) send(ctx context.Context, content patch) (*corev1.Node, error) {
	updated, err := p.patch(ctx, content)
	if err == nil || !refusal(err) || content.Metadata.Annotations == nil {
		return updated, err
	}
	annotations := content.Metadata.Annotations
	content.Metadata.Annotations = nil
	if !content.empty() {
		refusedBy := err
		if updated, err = p.patch(ctx, content); err != nil {
			return nil, err
		}
		klog.FromContext(ctx).Error(refusedBy,
			"The API server rejected annotations of the Node; updated its conditions "+
				"without them")
	}
	maps.Copy(p.refused, annotations)
	return updated, err
}

func refusal(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsRequestEntityTooLargeError(err)
}

func (p *Publisher) patch(ctx context.Context, content patch) (*corev1.Node, error) {
	raw, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("encode the patch of Node %s: %w", p.name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	updated, err := p.nodes.Patch(ctx, p.name, types.StrategicMergePatchType, raw, metav1.PatchOptions{}, "status")
	p.onWrite(err)
	if err != nil {
		return nil, fmt.Errorf("patch the status of Node %s: %w", p.name, err)
	}
	return updated, nil
}

// confirm records the transitions whose write seemed to fail but shows on the Node: the answer was lost. The
// transitions that are about to be written wait for their answer.
func (p *Publisher) confirm(ctx context.Context, node *corev1.Node, next []Transition) {
	waiting := make(map[corev1.NodeConditionType]Transition, len(next))
	for _, t := range next {
		waiting[t.Type] = t
	}
	for kind, t := range p.unconfirmed {
		if _, again := waiting[kind]; !again && t.shows(node) {
			p.record(ctx, node, t)
		}
	}
	p.unconfirmed = waiting
}

func (p *Publisher) record(ctx context.Context, node *corev1.Node, t Transition) {
	delete(p.unconfirmed, t.Type)
	klog.FromContext(ctx).Info("Condition changed", "condition", t.Type, "status", t.Status, "was", t.From, "reason",
		t.Reason, "message", t.Message)
	p.onTransition(node, t)
}

const (
	// writeBurst writes may follow each other at once, and one more for each writePause that passes: every write of a
	// Node reaches every watcher of Nodes in the cluster, and another program may set our conditions to other values.
	writeBurst = 10
	writePause = 5 * time.Second
	// firstRetry and lastRetry bound the pause after a write that failed; it doubles in between. A tenth of it, more or
	// less, is chance, so that a thousand agents do not meet an API server that comes back all at once.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// limiter limits how often the Node is written.
type limiter struct {
	writes *rate.Limiter
	// failures counts those in a row, retryAt is when to try again.
	failures int
	retryAt  time.Time
}

// newLimiter returns a limiter that allows writeBurst writes.
func newLimiter() *limiter {
	return &limiter{writes: rate.NewLimiter(rate.Every(writePause), writeBurst)}
}

// wait returns how long the next write has to wait, 0 when it may go at once.
func (l *limiter) wait(now time.Time) time.Duration {
	if now.Before(l.retryAt) {
		return l.retryAt.Sub(now)
	}
	return time.Duration(max(0, 1-l.writes.TokensAt(now)) * float64(writePause))
}

// wrote notes a write that succeeded. It counts even if a rounding error let it go too early.
func (l *limiter) wrote(now time.Time) {
	l.writes.ReserveN(now, 1)
	l.renew()
}

// failed notes a write that did not.
func (l *limiter) failed(now time.Time) {
	l.retryAt = now.Add(loop.Jitter(loop.Backoff(firstRetry, lastRetry, l.failures), 10))
	l.failures++
}

// renew forgets failures: a write succeeded, or another Node has the name of the one that is gone.
func (l *limiter) renew() {
	l.failures = 0
	l.retryAt = time.Time{}
}

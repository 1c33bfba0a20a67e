package nodecond

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

const (
	// Heartbeat is the time between writes of a condition that does not change, give or take a tenth: every write of a
	// Node reaches every watcher of Nodes in the cluster.
	Heartbeat = 5 * time.Minute
	// firstRetry and lastRetry bound the pause after a write that failed; it doubles in between.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 10 * time.Second
	// writeTimeout bounds one request.
	writeTimeout = 10 * time.Second
)

// Publisher keeps the Node saying what it was told last. It compares with the Node as it is, so conditions that were lost
// with a deleted Node, or overwritten, come back.
type Publisher struct {
	client kubernetes.Interface
	name   string
	// onTransition is called after a change of status was written, onWrite after each attempt.
	onTransition func(*corev1.Node, Transition)
	onWrite      func(error)

	wake chan struct{}

	mu   sync.Mutex
	want desired
	node *corev1.Node
}

// New returns a publisher for the Node of that name; it starts nothing. onTransition and onWrite must not block.
func New(client kubernetes.Interface, name string, onTransition func(*corev1.Node, Transition), onWrite func(error)) *Publisher {
	return &Publisher{
		client: client, name: name, onTransition: onTransition, onWrite: onWrite,
		wake: make(chan struct{}, 1),
		want: desired{conditions: map[corev1.NodeConditionType]Condition{}, annotations: map[string]string{}},
	}
}

// Set says what a condition ought to be.
func (p *Publisher) Set(c Condition) {
	p.change(func() bool {
		changed := p.want.conditions[c.Type] != c
		p.want.conditions[c.Type] = c
		return changed
	})
}

// Annotate says what an annotation ought to be.
func (p *Publisher) Annotate(key, value string) {
	p.change(func() bool {
		changed := p.want.annotations[key] != value
		p.want.annotations[key] = value
		return changed
	})
}

// Observe tells the Node as it is; nil when there is none, and then nothing is written.
func (p *Publisher) Observe(node *corev1.Node) {
	p.change(func() bool {
		if node != nil && p.node != nil && older(node, p.node) {
			// A watch may lag behind the answer to our own write.
			return false
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
		select {
		case p.wake <- struct{}{}:
		default:
		}
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
	retry := firstRetry
	// The first heartbeat is spread over the whole period, so that a rollout of the agents is no burst.
	heartbeat := time.Now().Add(rand.N(Heartbeat))
	for {
		pause := time.Until(heartbeat)
		if !p.tryWrite(ctx, pause <= 0) {
			// A wake-up does not shorten the pause after a failure.
			if !sleep(ctx, retry) {
				return nil
			}
			retry = min(2*retry, lastRetry)
			continue
		}
		retry = firstRetry
		if pause <= 0 {
			heartbeat = time.Now().Add(Heartbeat - Heartbeat/10 + rand.N(Heartbeat/5))
			pause = time.Until(heartbeat)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		case <-time.After(pause):
		}
	}
}

// tryWrite writes and logs a failure, unless it only comes from the end of ctx.
func (p *Publisher) tryWrite(ctx context.Context, heartbeat bool) bool {
	err := p.write(ctx, heartbeat)
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Writing the Node's conditions")
	}
	return err == nil
}

func sleep(ctx context.Context, pause time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return true
	}
}

func (p *Publisher) write(ctx context.Context, heartbeat bool) error {
	p.mu.Lock()
	node := p.node
	want := desired{conditions: maps.Clone(p.want.conditions), annotations: maps.Clone(p.want.annotations)}
	p.mu.Unlock()
	if node == nil {
		return nil
	}
	raw, transitions, err := diff(want, node, time.Now(), heartbeat)
	if err != nil || raw == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	updated, err := p.client.CoreV1().Nodes().Patch(ctx, p.name, types.StrategicMergePatchType, raw, metav1.PatchOptions{}, "status")
	p.onWrite(err)
	if err != nil {
		return fmt.Errorf("patch the status of Node %s: %w", p.name, err)
	}
	p.mu.Lock()
	// A newer version, or the deletion, may have been seen meanwhile.
	if p.node == node || p.node != nil && !older(updated, p.node) {
		p.node = updated
	}
	p.mu.Unlock()
	for _, t := range transitions {
		klog.FromContext(ctx).Info("Condition changed", "condition", t.Type, "status", t.Status, "was", t.From, "reason", t.Reason, "message", t.Message)
		p.onTransition(updated, t)
	}
	return nil
}

package metadata

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

const (
	labelTrue  = "true"
	retryAfter = time.Second // the delay after a failed patch
)

// Labeller maintains the label contract.NodeVLANReady on the Nodes whose agents report a working public network.
type Labeller struct {
	client   kubernetes.Interface
	nodes    corelisters.NodeLister
	synced   cache.InformerSynced
	events   record.EventRecorder
	carriers contract.CarriersOf
	wake     loop.Wake

	// seen are the Nodes in the last pass, by name; it belongs to the goroutine of Run.
	seen map[string]vlanNode
}

// NewLabeller returns a Labeller. It starts nothing. Only Nodes that may carry the traffic of a
// network get the label.
func NewLabeller(client kubernetes.Interface, nodes coreinformers.NodeInformer, events record.EventRecorder,
	carriers contract.CarriersOf) (*Labeller, error) {
	l := &Labeller{
		client: client, nodes: nodes.Lister(), events: events, carriers: carriers,
		wake: loop.NewWake(), seen: map[string]vlanNode{},
	}
	registration, err := nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { l.wake.Signal() },
		UpdateFunc: func(before, after any) { l.compare(before, after) },
		DeleteFunc: func(any) { l.wake.Signal() },
	})
	if err != nil {
		return nil, fmt.Errorf("watch Nodes: %w", err)
	}
	l.synced = registration.HasSynced
	return l, nil
}

// compare ignores heartbeats, which are most of the updates of Nodes.
func (l *Labeller) compare(before, after any) {
	a, okA := before.(*corev1.Node)
	b, okB := after.(*corev1.Node)
	if okA && okB && l.readiness(a) == l.readiness(b) && slices.Equal(l.networks(a), l.networks(b)) &&
		shaky(a) == shaky(b) && maps.Equal(a.Labels, b.Labels) && a.DeletionTimestamp.Equal(b.DeletionTimestamp) {
		return
	}
	l.wake.Signal()
}

func (l *Labeller) readiness(node *corev1.Node) readiness {
	return readinessOf(node, l.carriers)
}

// networks are the IDs of the public networks whose traffic a Node may carry or not.
func (l *Labeller) networks(node *corev1.Node) []string {
	rules := l.carriers.All(node)
	ids := make([]string, len(rules))
	for i, rule := range rules {
		ids[i] = rule.Network
	}
	return ids
}

// shaky reports whether the kubelet reports the Node as not Ready.
func shaky(node *corev1.Node) bool {
	kubelet := contract.FindNodeCondition(node, corev1.NodeReady)
	return kubelet != nil && kubelet.Status != corev1.ConditionTrue
}

// Run maintains the label until ctx ends, and then returns nil.
func (l *Labeller) Run(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), l.synced) {
		return nil
	}
	for ctx.Err() == nil {
		again, err := l.sync(ctx, time.Now())
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to update the label of Nodes", "label", contract.NodeVLANReady)
			again = retryAfter
		}
		if again > 0 {
			l.wake.Wait(ctx, again)
		} else {
			l.wake.Await(ctx)
		}
	}
	return nil
}

// sync decides and acts once. It removes no label when adding one failed: never fewer Nodes have it than decided.
func (l *Labeller) sync(ctx context.Context, now time.Time) (again time.Duration, err error) {
	nodes, err := l.nodes.List(labels.Everything())
	if err != nil {
		return 0, fmt.Errorf("list Nodes: %w", err)
	}
	byName := make(map[string]*corev1.Node, len(nodes))
	for _, node := range nodes {
		byName[node.Name] = node
	}
	decided := decideAll(l.observe(nodes, now), now)
	for _, name := range decided.give {
		if err := l.give(ctx, byName[name]); err != nil {
			return 0, err
		}
	}
	for _, supports := range decided.needed {
		if err := l.confirm(ctx, supports); err != nil {
			return 0, err
		}
	}
	for _, name := range decided.take {
		if err := l.take(ctx, name, now); err != nil {
			return 0, err
		}
	}
	return decided.again, nil
}

// confirm reads live whether a Node has the label and is ready: no label is removed based on the cache only.
func (l *Labeller) confirm(ctx context.Context, supports []string) error {
	for _, name := range supports {
		node, err := l.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("get Node %s: %w", name, err)
		}
		if l.readiness(node) == ready && node.Labels[contract.NodeVLANReady] == labelTrue &&
			node.DeletionTimestamp == nil {
			return nil
		}
	}
	return fmt.Errorf("none of the Nodes %v is ready any more, so no other Node loses label %s", supports,
		contract.NodeVLANReady)
}

// observe converts Nodes to values and records since when each is in its state.
func (l *Labeller) observe(nodes []*corev1.Node, now time.Time) []vlanNode {
	seen := make(map[string]vlanNode, len(nodes))
	observed := make([]vlanNode, 0, len(nodes))
	for _, node := range nodes {
		if node.DeletionTimestamp != nil {
			continue
		}
		last, known := l.seen[node.Name]
		current := vlanNode{
			name: node.Name, labelled: node.Labels[contract.NodeVLANReady] == labelTrue, state: l.readiness(node),
			since: now, shaky: shaky(node), networks: l.networks(node),
			lost: slices.DeleteFunc(last.lost, func(at time.Time) bool { return now.Sub(at) >= memory }),
		}
		if known && last.state == current.state {
			current.since = last.since
		}
		seen[node.Name] = current
		observed = append(observed, current)
	}
	l.seen = seen
	return observed
}

// label sets the label; nil removes it.
func (l *Labeller) label(ctx context.Context, node string, value any) error {
	return patchNode(ctx, l.client, node, map[string]any{"labels": map[string]any{contract.NodeVLANReady: value}})
}

func (l *Labeller) give(ctx context.Context, node *corev1.Node) error {
	if err := l.label(ctx, node.Name, labelTrue); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Node may announce addresses", "node", node.Name, "label", contract.NodeVLANReady)
	l.events.Event(node, corev1.EventTypeNormal, ReasonAdmitted,
		"The node is ready for the public network: label "+contract.NodeVLANReady+" added")
	return nil
}

// take removes the label, unless a live read shows that the Node is ready.
func (l *Labeller) take(ctx context.Context, name string, now time.Time) error {
	node, err := l.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get Node %s: %w", name, err)
	}
	if state := l.readiness(node); state != notReady && state != doubtful {
		return nil // the cache will be updated, which triggers the next decision
	}
	if err := l.label(ctx, name, nil); err != nil {
		return err
	}
	seen := l.seen[name]
	seen.lost = append(seen.lost, now)
	l.seen[name] = seen
	klog.FromContext(ctx).Info("Node may no longer announce addresses", "node", name, "label", contract.NodeVLANReady,
		"reason", l.carriers.Unfit(node, true).Why)
	l.events.Eventf(node, corev1.EventTypeWarning, ReasonExcluded, "Label %s removed, because the Node %s",
		contract.NodeVLANReady, l.carriers.Unfit(node, true).Explain(text.Clean(name)))
	return nil
}

package metadata

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/node/instances"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

const (
	// serverPeriod is how often Ready Nodes are compared with the list of servers. It costs no request of its own while
	// no server is missing.
	serverPeriod = time.Minute
	// knownPeriod is how often that is proven again, and reported, once it is known.
	knownPeriod = 15 * time.Minute
)

// Existence proves that the server of a Ready Node is gone.
type Existence interface {
	// GoneWhileReady reports whether that is certain; an error means that it is not known.
	GoneWhileReady(ctx context.Context, node *corev1.Node) (bool, error)
}

// ServerWatch finds Ready Nodes whose server no longer exists, because it was replaced under the host name of the Node.
// The framework only checks Nodes that are not Ready. It removes what NetworkPublisher has published about the server,
// and NetworkPublisher writes that again if the server is listed again.
type ServerWatch struct {
	client    kubernetes.Interface
	nodes     corelisters.NodeLister
	synced    cache.InformerSynced
	servers   Servers
	existence Existence

	// proven belongs to the goroutine of Run: when servers were last found to be gone, by the UID of the Node.
	proven map[types.UID]time.Time
}

// NewServerWatch returns a ServerWatch. It starts nothing.
func NewServerWatch(client kubernetes.Interface, nodes coreinformers.NodeInformer, servers Servers,
	existence Existence) *ServerWatch {
	return &ServerWatch{client: client, nodes: nodes.Lister(), synced: nodes.Informer().HasSynced, servers: servers,
		existence: existence, proven: map[types.UID]time.Time{}}
}

// Run watches until ctx ends, and then returns nil.
func (w *ServerWatch) Run(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), w.synced) {
		return nil
	}
	return loop.Run(ctx, func(ctx context.Context) time.Duration {
		if err := w.sync(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Info("Servers of Ready Nodes are not known to exist", "err", err)
		}
		return serverPeriod
	})
}

func (w *ServerWatch) sync(ctx context.Context) error {
	nodes, err := w.nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list Nodes: %w", err)
	}
	list, err := w.servers.Recent(ctx, instances.PeriodicMaxAge)
	if err != nil {
		return err
	}
	var problems []error
	maps.DeleteFunc(w.proven, func(_ types.UID, at time.Time) bool { return time.Since(at) > 2*knownPeriod })
	for _, node := range nodes {
		if isSuspect(node, list) {
			problems = append(problems, w.check(ctx, node))
		}
	}
	return errors.Join(problems...)
}

// isSuspect reports whether a Ready Node names a server that the list lacks, or that is no machine any more.
func isSuspect(node *corev1.Node, list instances.List) bool {
	if _, err := contract.ParseProviderID(node.Spec.ProviderID); err != nil || !instances.IsReady(node) {
		return false
	}
	_, listed := serverOf(node, list)
	return !listed
}

// check removes the annotations of a Node whose server is gone.
func (w *ServerWatch) check(ctx context.Context, node *corev1.Node) error {
	if time.Since(w.proven[node.UID]) < knownPeriod && node.Annotations[contract.NodeServerMissing] != "" {
		return nil
	}
	gone, err := w.existence.GoneWhileReady(ctx, node)
	if err != nil || !gone {
		return err
	}
	w.proven[node.UID] = time.Now()
	if node.Annotations[contract.NodeServerMissing] != "" {
		return nil
	}
	patch := map[string]any{contract.NodeServerMissing: time.Now().UTC().Format(time.RFC3339)}
	for _, name := range networkAnnotations() {
		if _, exists := node.Annotations[name]; exists && name != contract.NodeServerMissing {
			patch[name] = nil
		}
	}
	klog.FromContext(ctx).Info("The server of a Ready Node is gone", "node", node.Name, "providerID",
		node.Spec.ProviderID)
	return patchNode(ctx, w.client, node.Name, map[string]any{"uid": node.UID, "annotations": patch})
}

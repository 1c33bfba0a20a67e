// Package metadata maintains the Nodes' annotations and labels that describe the public network.
package metadata

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/node/instances"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

// Reasons of the events on a Node.
const (
	// ReasonAdmitted (Normal): the Node gets the label contract.NodeVLANReady.
	ReasonAdmitted = "AdmittedToPublicNetwork"
	// ReasonExcluded (Warning): the Node loses the label; says why and what to do.
	ReasonExcluded = "ExcludedFromPublicNetwork"
	// ReasonMembershipMissing (Warning): the Node is selected for load-balancer traffic, but its server is not a member
	// of the public network.
	ReasonMembershipMissing = "PublicNetworkMembershipMissing"
	// ReasonAgentSilent (Warning): the agent has not renewed its Lease, so its conditions no longer count. It is also
	// the reason of the conditions.
	ReasonAgentSilent = "AgentSilent"
	// ReasonNodeUnreachable (Warning): neither the kubelet nor the agent reports. It is also the reason of the
	// conditions.
	ReasonNodeUnreachable = "NodeUnreachable"
)

// patchNode merges into the metadata of a Node.
func patchNode(ctx context.Context, client kubernetes.Interface, node string, metadata map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("encode patch of node %s: %w", node, err)
	}
	if _, err := client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("patch node %s: %w", node, err)
	}
	return nil
}

const (
	// DefaultNetworkWindow is how often Nodes are compared with what was read of the account. Agents must receive
	// changes within a minute: that long the check for drift and serverWindows allow.
	DefaultNetworkWindow = 15 * time.Second
	// serverWindows and networkWindows are for how many windows the list of servers and the network are used again: by
	// default as long as instances.PeriodicMaxAge and account.PeriodicMaxAge, so that what others read is enough.
	// Whoever reads a network that has changed has it published at once, see NetworkChanges.
	serverWindows  = 3
	networkWindows = 5
	// awaitedFor is for how long the server of a new Node is awaited that the list lacks: lists lag behind.
	awaitedFor = 10 * time.Minute
	// debounce is the delay that combines several Nodes that register at once in one read of the API.
	debounce = time.Second
	// afterFailure is the delay after a failed read of the API.
	afterFailure = 5 * time.Second
	// maxMembershipIPs bounds the addresses of a network in the annotation: a membership may list a range of thousands.
	maxMembershipIPs = 64
)

// Servers is the shared list of servers.
type Servers interface {
	// Recent returns a list of at most that age.
	Recent(ctx context.Context, age time.Duration) (instances.List, error)
}

// Networks is the shared cache of the public networks.
type Networks interface {
	// Network returns a network that was requested at or after the given time.
	Network(ctx context.Context, id string, after time.Time) (network.Network, error)
}

// NetworkChanges receives each public network that any controller reads, and wakes the NetworkPublisher when one has
// changed. It exists before both, because the account is built before the publisher, which reads from it.
type NetworkChanges struct {
	wake loop.Wake

	mu sync.Mutex
	// latest has the last noticed state of each network, in a comparable form, by the ID.
	latest map[string]string
}

// NewNetworkChanges returns changes of which none was noticed yet.
func NewNetworkChanges() *NetworkChanges {
	return &NetworkChanges{wake: loop.NewWake(), latest: map[string]string{}}
}

// Notice receives a network that was just read. A change is published soon, not after the window. It never blocks.
func (c *NetworkChanges) Notice(network network.Network) {
	seen := fmt.Sprint(network.Status, network.Blocks, network.Members)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.latest[network.ID] != seen {
		c.latest[network.ID] = seen
		c.wake.Signal()
	}
}

// PublicNetwork is a public network that is published.
type PublicNetwork struct {
	network.Named
	// Announcer is the announcer on the Nodes that Selector selects; nil selects all. The others get AnnouncerNone.
	Announcer string
	Selector  labels.Selector
	// Managed reports that the controller adds servers to the network: then no missing membership is reported.
	Managed bool
}

// NetworkConfig configures a NetworkPublisher.
type NetworkConfig struct {
	// Client patches Nodes.
	Client kubernetes.Interface
	// Nodes is the shared informer.
	Nodes coreinformers.NodeInformer
	// Servers and Networks are read for all Nodes together.
	Servers  Servers
	Networks Networks
	// Events are recorded on Nodes.
	Events record.EventRecorder
	// Published returns the public networks that are served, each name and each ID once; none when load balancers are
	// off. all is false while others may be served, too.
	Published func() (served []PublicNetwork, all bool)
	// Window is how often Nodes are compared with the account; 0 means DefaultNetworkWindow.
	Window time.Duration
	// Changes call for a look before the window is over; nil where nothing else reads the networks.
	Changes *NetworkChanges
	// Now is the clock, the same as that of Networks; nil means time.Now.
	Now func() time.Time
}

// NetworkPublisher maintains contract.NetworkAnnotations and the labels of instances.Labels on every Node with a
// provider ID, sets missing zones, and reports missing memberships.
type NetworkPublisher struct {
	config NetworkConfig
	wake   loop.Wake
	synced cache.InformerSynced

	// The following belong to the goroutine of Run. networks are those that the current pass could read, by the ID,
	// and reported the reported missing memberships.
	networks map[string]network.Network
	reported map[types.UID]string
}

// NewNetworkPublisher returns a NetworkPublisher. It registers with the informer and starts nothing.
func NewNetworkPublisher(config NetworkConfig) (*NetworkPublisher, error) {
	config.Window = cmp.Or(config.Window, DefaultNetworkWindow)
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Changes == nil {
		config.Changes = NewNetworkChanges()
	}
	p := &NetworkPublisher{config: config, wake: config.Changes.wake, reported: map[types.UID]string{}}
	registration, err := config.Nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { p.register(object) },
		UpdateFunc: func(_, object any) { p.register(object) },
	})
	if err != nil {
		return nil, fmt.Errorf("watch Nodes: %w", err)
	}
	p.synced = registration.HasSynced
	return p, nil
}

// register wakes Run for a Node that has a server but no annotations yet.
func (p *NetworkPublisher) register(object any) {
	node, ok := object.(*corev1.Node)
	if ok && isNew(node) {
		p.wake.Signal()
	}
}

// isNew reports whether a Node has a server but no annotations yet.
func isNew(node *corev1.Node) bool {
	return node.Spec.ProviderID != "" && node.Annotations[contract.NodeServerID] == "" &&
		node.Annotations[contract.NodeServerMissing] == ""
}

// Run publishes until ctx ends, and then returns nil.
func (p *NetworkPublisher) Run(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), p.synced) {
		return nil
	}
	return p.wake.Run(ctx, debounce, func(ctx context.Context) time.Duration {
		err := p.sync(ctx)
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to update Node annotations")
		}
		if err != nil {
			return min(p.config.Window, afterFailure)
		}
		return p.config.Window
	})
}

// sync updates the annotations of all Nodes from the API.
func (p *NetworkPublisher) sync(ctx context.Context) error {
	nodes, err := p.config.Nodes.Lister().List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list Nodes: %w", err)
	}
	list, err := p.servers(ctx, nodes)
	if err != nil {
		return err
	}
	published, all := p.config.Published()
	concerned := map[string][]PublicNetwork{}
	for _, node := range nodes {
		if server, ok := serverOf(node, list); ok && (all || !isStranger(node, server, published)) {
			concerned[node.Name] = concerning(node, server, published)
		}
	}
	problems := p.refresh(ctx, published, concerned)
	for _, node := range nodes {
		if networks, ok := concerned[node.Name]; ok {
			server, _ := serverOf(node, list)
			problems = append(problems, p.publish(ctx, node, server, networks))
		}
	}
	p.recordMissing(nodes, list, published)
	return errors.Join(problems...)
}

// servers returns the list of servers. It is younger while it lacks the server of a Node that was just created.
func (p *NetworkPublisher) servers(ctx context.Context, nodes []*corev1.Node) (instances.List, error) {
	list, err := p.config.Servers.Recent(ctx, serverWindows*p.config.Window)
	if err != nil {
		return instances.List{}, err
	}
	now := p.config.Now()
	awaited := func(node *corev1.Node) bool {
		_, listed := serverOf(node, list)
		return !listed && isNew(node) && now.Sub(node.CreationTimestamp.Time) < awaitedFor
	}
	if slices.ContainsFunc(nodes, awaited) {
		return p.config.Servers.Recent(ctx, p.config.Window)
	}
	return list, nil
}

// isStranger reports whether a Node that lists no network yet has a server that is in none of those published, but in
// another one.
func isStranger(node *corev1.Node, server pnap.Server, published []PublicNetwork) bool {
	return isNew(node) && len(server.PublicNetworks) > 0 &&
		!slices.ContainsFunc(published, func(n PublicNetwork) bool { return joins(server, n.ID) })
}

// refresh reads the networks, which others may have read some windows ago, and returns why some are not known: those
// that are published, and those that Nodes still list.
func (p *NetworkPublisher) refresh(ctx context.Context, published []PublicNetwork, concerned map[string][]PublicNetwork,
) (problems []error) {
	ids := map[string]bool{}
	for _, networks := range append(slices.Collect(maps.Values(concerned)), published) {
		for _, each := range networks {
			ids[each.ID] = true
		}
	}
	p.networks = map[string]network.Network{}
	after := p.config.Now().Add(-networkWindows * p.config.Window)
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		read, err := p.config.Networks.Network(ctx, id, after)
		switch {
		case err != nil:
			problems = append(problems, err)
		case read.VLAN < 1 || read.VLAN > 4094: // 802.1Q
			problems = append(problems, fmt.Errorf("public network %s: unusable VLAN ID %d", read.ID, read.VLAN))
		default:
			p.networks[id] = read
		}
	}
	return problems
}

// publish patches the differences. It ignores a Node that was deleted; other failures are retried in the next window.
func (p *NetworkPublisher) publish(ctx context.Context, node *corev1.Node, server pnap.Server,
	concerned []PublicNetwork) error {
	facts, known := describeAll(node, server, concerned, p.networks)
	if !known {
		return nil // the Node keeps what it says; why is a problem of refresh
	}
	encoded, err := contract.EncodePublicNetworks(facts)
	if err != nil {
		return fmt.Errorf("public networks of node %s: %w", node.Name, err)
	}
	patch := changes(node.Annotations,
		map[string]string{contract.NodeServerID: server.ID, contract.NodePublicNetworks: encoded})
	relabel := labelChanges(node.Labels, instances.Labels(server))
	if len(patch)+len(relabel) == 0 {
		return p.locate(ctx, node, server)
	}
	klog.FromContext(ctx).V(2).Info("Publishing server and public networks to a Node", "node", node.Name, "server",
		server.ID, "annotations", len(patch), "labels", len(relabel))
	return patchNode(ctx, p.config.Client, node.Name, map[string]any{"annotations": patch, "labels": relabel})
}

// locate sets the zone of a Node without a zone. A Node that has changed is checked again in the next window.
func (p *NetworkPublisher) locate(ctx context.Context, node *corev1.Node, server pnap.Server) error {
	zone := zoneChanges(node, server)
	if len(zone) == 0 {
		return nil
	}
	err := patchNode(ctx, p.config.Client, node.Name,
		map[string]any{"resourceVersion": node.ResourceVersion, "labels": zone})
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func serverOf(node *corev1.Node, list instances.List) (pnap.Server, bool) {
	id, err := contract.ParseProviderID(node.Spec.ProviderID)
	if err != nil {
		return pnap.Server{}, false
	}
	server, ok := list.ByID[id]
	return server, ok && server.Status != pnap.ServerReserved // that is no machine any more
}

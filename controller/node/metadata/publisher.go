// Package metadata maintains the Nodes' annotations and labels that describe the public network.
package metadata

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
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
	// afterFailure is the delay after a failed read of the API, or one during a change of the network.
	afterFailure = 5 * time.Second
	// maxMembershipIPs bounds the annotation public-network-ips: a membership may list a range of thousands.
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

// NetworkChanges receives each public network that any controller reads, and wakes the NetworkPublisher when the
// network has changed. It exists before both, because the account is built before the publisher, which reads from it.
type NetworkChanges struct {
	networkID string
	wake      loop.Wake
	latest    atomic.Pointer[string] // the last noticed state of the network, in a comparable form
}

// NewNetworkChanges returns the changes of one public network.
func NewNetworkChanges(networkID string) *NetworkChanges {
	return &NetworkChanges{networkID: networkID, wake: loop.NewWake()}
}

// Notice receives a network that was just read. A change is published soon, not after the window. It never blocks.
func (c *NetworkChanges) Notice(network network.Network) {
	if network.ID != c.networkID {
		return
	}
	seen := fmt.Sprint(network.Status, network.Blocks, network.Members)
	if before := c.latest.Swap(&seen); before == nil || *before != seen {
		c.wake.Signal()
	}
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
	// NetworkID is the ID of the public network; empty when load balancers are off.
	NetworkID string
	// Announcer is the value of the annotation of that name.
	Announcer string
	// Selector selects the Nodes that may announce; the others get AnnouncerNone. nil means all.
	Selector labels.Selector
	// ManagesMembership reports that the controller joins servers: then no missing membership is reported.
	ManagesMembership bool
	// Window is how often Nodes are compared with the account; 0 means DefaultNetworkWindow.
	Window time.Duration
	// Changes call for a look before the window is over; nil where nothing else reads the network.
	Changes *NetworkChanges
	// Now is the clock, the same as that of Networks; nil means time.Now.
	Now func() time.Time
}

// NetworkPublisher maintains the annotations of contract.NodeNetwork and the labels of instances.Labels on every Node
// with a provider ID, sets missing zones, and reports missing memberships.
type NetworkPublisher struct {
	config NetworkConfig
	wake   loop.Wake
	synced cache.InformerSynced

	// The following belong to the goroutine of Run. reported are the reported missing memberships.
	network  network.Network
	reported map[types.UID]string
	withheld bool // the network is changing, so that a block is not published yet
}

// NewNetworkPublisher returns a NetworkPublisher. It registers with the informer and starts nothing.
func NewNetworkPublisher(config NetworkConfig) (*NetworkPublisher, error) {
	config.Window = cmp.Or(config.Window, DefaultNetworkWindow)
	if config.Selector == nil {
		config.Selector = labels.Everything()
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Changes == nil {
		config.Changes = NewNetworkChanges(config.NetworkID)
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
		if err != nil || p.withheld {
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
	if err := p.refresh(ctx); err != nil {
		return err
	}
	blocks := usableBlocks(p.network, published(nodes, p.config.NetworkID))
	p.withheld = p.network.Status != network.StatusReady && len(blocks) < len(p.network.Blocks)
	var problems []error
	for _, node := range nodes {
		if server, ok := serverOf(node, list); ok {
			problems = append(problems, p.publish(ctx, node, server, blocks))
		}
	}
	p.recordMissing(nodes, list)
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

// refresh reads the network, which others may have read some windows ago; after withheld blocks it always reads again.
func (p *NetworkPublisher) refresh(ctx context.Context) error {
	if p.config.NetworkID == "" {
		return nil
	}
	after := p.config.Now().Add(-networkWindows * p.config.Window)
	if p.withheld {
		after = p.config.Now().Add(-debounce)
	}
	network, err := p.config.Networks.Network(ctx, p.config.NetworkID, after)
	if err != nil {
		return err
	}
	if network.VLAN < 1 || network.VLAN > 4094 { // 802.1Q
		return fmt.Errorf("public network %s: unusable VLAN ID %d", network.ID, network.VLAN)
	}
	p.network = network
	return nil
}

// publish patches the differences. It ignores a Node that was deleted; other failures are retried in the next window.
func (p *NetworkPublisher) publish(ctx context.Context, node *corev1.Node, server pnap.Server,
	blocks []contract.NetworkBlock) error {
	// Without load balancers there is no network to describe.
	desired := map[string]string{contract.NodeServerID: server.ID, contract.NodeAnnouncer: contract.AnnouncerNone}
	if p.config.NetworkID != "" {
		announcer := p.config.Announcer
		if !p.config.Selector.Matches(labels.Set(node.Labels)) {
			announcer = contract.AnnouncerNone
		}
		facts := describe(server, p.network, blocks, announcer)
		facts.IPs = facts.IPs[:min(len(facts.IPs), maxMembershipIPs)]
		var err error
		if desired, err = facts.Annotations(); err != nil {
			return err
		}
	}
	patch := changes(node.Annotations, desired)
	relabel := labelChanges(node.Labels, instances.Labels(server))
	if len(patch)+len(relabel) == 0 {
		return p.locate(ctx, node, server)
	}
	klog.FromContext(ctx).V(2).Info("Publishing server and public network to a Node", "node", node.Name, "server",
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

// published collects the blocks in the annotations of Nodes, so that they survive a restart.
func published(nodes []*corev1.Node, networkID string) []contract.NetworkBlock {
	var blocks []contract.NetworkBlock
	for _, node := range nodes {
		if facts, ok, err := contract.ParseNodeNetwork(node.Annotations); err == nil && ok &&
			facts.NetworkID == networkID {
			blocks = append(blocks, facts.Blocks...)
		}
	}
	return blocks
}

// Package membership joins the servers of Nodes to public networks, and removes the servers that it joined.
package membership

import (
	"cmp"
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
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/node/instances"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

const (
	period = 30 * time.Second // how often memberships are checked when nothing happens
	soon   = 5 * time.Second  // the delay of the next pass after a change, or while one is awaited
	// debounce is the delay that combines several Nodes that appear at once in one pass.
	debounce = time.Second
	// maxChanges bounds the changes in one pass: other changes of the account have to wait for it.
	maxChanges = 10
	waitPause  = time.Minute // how long a server waits if there is no address for it
	// refusedPause is how long a server waits after the API rejected a change of its membership.
	refusedPause = 5 * time.Minute
	// listLagPause is how long a server waits when the list does not yet show what its ID does.
	listLagPause = time.Minute
)

// Config configures a Manager.
type Config struct {
	// Kube reads Nodes live, patches their annotation and stores the record of joined servers.
	Kube kubernetes.Interface
	// Nodes is the shared informer.
	Nodes  coreinformers.NodeInformer
	Events record.EventRecorder
	// Servers is the shared list of servers, and Account the shared cache of the account, with its lock.
	Servers *instances.Inventory
	Account *account.Account
	// Cloud changes memberships and blocks, Buyer buys the node block, and Ledgers record that and the owners of its
	// addresses.
	Cloud   *pnap.Client
	Buyer   *purchase.Buyer
	Ledgers *allocation.Store
	// Networks returns the public networks whose memberships are managed, each name once.
	Networks func() []Network
	// Elsewhere reports whether a public network is in a location, managed or not; nil if there is only one network.
	Elsewhere func(location string) bool
	// Metrics may be nil.
	Metrics *Metrics
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Network is a public network whose memberships are managed.
type Network struct {
	network.Named
	// WithoutAddress joins servers without an address.
	WithoutAddress bool
	// Selector selects the Nodes whose servers must be members; nil means all.
	Selector labels.Selector
	// MaxBlocks is the maximum number of blocks to buy in the network; 0 for no limit except the network's.
	MaxBlocks int
}

// Managers reconcile the memberships of the cluster's servers in all networks, one network after the other.
type Managers struct {
	config Config
	synced cache.InformerSynced
	wake   loop.Wake
	// byName belongs to the goroutine of Run.
	byName map[string]*Manager
}

// New returns Managers. It registers with the informer and starts nothing.
func New(config Config) (*Managers, error) {
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Elsewhere == nil {
		config.Elsewhere = func(string) bool { return false }
	}
	config.Metrics = cmp.Or(config.Metrics, NewMetrics())
	m := &Managers{config: config, wake: loop.NewWake(), byName: map[string]*Manager{}}
	registration, err := config.Nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { m.wake.Signal() },
		UpdateFunc: func(before, after any) { m.compare(before, after) },
		DeleteFunc: func(any) { m.wake.Signal() },
	})
	if err != nil {
		return nil, fmt.Errorf("watch Nodes: %w", err)
	}
	m.synced = registration.HasSynced
	return m, nil
}

// compare ignores heartbeats.
func (m *Managers) compare(before, after any) {
	a, okA := before.(*corev1.Node)
	b, okB := after.(*corev1.Node)
	if okA && okB && a.Spec.ProviderID == b.Spec.ProviderID && maps.Equal(a.Labels, b.Labels) {
		return
	}
	m.wake.Signal()
}

// Run reconciles memberships until ctx ends, and then returns nil.
func (m *Managers) Run(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), m.synced) {
		return nil
	}
	return m.wake.Run(ctx, debounce, func(ctx context.Context) time.Duration {
		again, err := m.Sync(ctx)
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to reconcile memberships")
		}
		return again
	})
}

// Sync runs one pass over all networks and returns the delay of the next. The failure of one network does not keep
// others from being looked at.
func (m *Managers) Sync(ctx context.Context) (again time.Duration, err error) {
	again = period
	var problems []error
	for _, n := range m.config.Networks() {
		next, err := m.of(n).Sync(ctx)
		again = min(again, next)
		problems = append(problems, err)
	}
	return again, errors.Join(problems...)
}

// of is the Manager of a network, as it is to be managed now. One of another ID is another network.
func (m *Managers) of(n Network) *Manager {
	if n.Selector == nil {
		n.Selector = labels.Everything()
	}
	if known := m.byName[n.Name]; known != nil && known.config.Network.ID == n.ID {
		known.config.Network = n
		return known
	}
	config := managed{m.config, n}
	config.Ledgers = m.config.Ledgers.In(n.Name)
	m.byName[n.Name] = newManager(config)
	return m.byName[n.Name]
}

// managed is what a Manager works with.
type managed struct {
	Config
	Network Network
}

// Manager reconciles the memberships of the cluster's servers in a public network. It belongs to one goroutine.
type Manager struct {
	config managed
	lister corelisters.NodeLister
	store  recordStore

	// namespace is kube-system; nil until it was read.
	namespace *corev1.Namespace
	// touched is when a server was changed: an older list does not show the change.
	touched  map[string]time.Time
	backoffs map[string]time.Time // until when a server waits after a rejected request
	// unwanted is since when a recorded server is unwanted, idle since when no Node is wanted at all.
	unwanted map[string]time.Time
	idle     time.Time
	// events is the last event of each Node.
	events map[types.UID]string
	// wasIdle reports whether, in the last pass, no Node had been wanted for a while.
	wasIdle bool
	// auditAt is the time of the next audit. surplus is since when each block is not needed, reports its last report.
	auditAt time.Time
	surplus map[string]time.Time
	// slots is what is known of the slots of the public network.
	slots   ipblock.NetworkSlots
	reports map[string]report
	// seen bounds the times of recorded purchases.
	seen *purchase.Seen
}

func newManager(config managed) *Manager {
	return &Manager{
		config: config, lister: config.Nodes.Lister(),
		store: newRecordStore(config.Kube, config.Network.Name), events: map[types.UID]string{},
		touched: map[string]time.Time{}, backoffs: map[string]time.Time{}, unwanted: map[string]time.Time{},
		surplus: map[string]time.Time{}, reports: map[string]report{},
		seen: purchase.NewSeen(config.Now),
	}
}

// Sync runs one pass and returns the delay of the next. In a steady state it makes no requests beyond shared reads.
func (m *Manager) Sync(ctx context.Context) (again time.Duration, err error) {
	age, after := m.patience()
	list, err := m.config.Servers.Recent(ctx, age)
	if err != nil {
		return soon, err
	}
	seen, err := m.observe(ctx, list, after)
	if err != nil {
		return soon, err
	}
	m.remember(seen)
	if err := m.publish(ctx, seen); err != nil {
		return soon, err
	}
	m.config.Metrics.set(m.config.Network.Name, seen)
	steps := m.recordRefusals(decide(seen))
	audit, err := m.auditDue(ctx, seen)
	switch {
	case len(steps) > 0 || audit:
		return m.change(ctx, audit)
	case err != nil:
		return soon, err
	default:
		return m.pause(seen), nil
	}
}

// pause returns the delay of the next pass: shorter while a change is awaited.
func (m *Manager) pause(o observed) time.Duration {
	for id := range o.wanted {
		if entry, member := membershipOf(o.servers[id], o.network.ID); member &&
			entry.Status != pnap.MembershipAssigned {
			return soon
		}
		if o.now.Sub(m.touched[id]) < period {
			return soon
		}
	}
	return period
}

// recordRefusals reports on the Nodes why servers cannot join, and returns the other steps.
func (m *Manager) recordRefusals(steps []step) []step {
	var others []step
	for _, each := range steps {
		if each.kind == refuse {
			m.record(each.node, corev1.EventTypeWarning, ReasonJoinRefused, each.text)
			continue
		}
		others = append(others, each)
	}
	return others
}

// Reasons of the events on a Node.
const (
	// ReasonJoining (Normal): the controller requested that the server joins the public network.
	ReasonJoining = "PublicNetworkJoining"
	// ReasonJoined (Normal): the server is a member.
	ReasonJoined = "PublicNetworkJoined"
	// ReasonLeaving (Normal): the controller requested that the server leaves the network that the controller joined it
	// to.
	ReasonLeaving = "PublicNetworkLeaving"
	// ReasonLeft (Normal): the server is no longer a member.
	ReasonLeft = "PublicNetworkLeft"
	// ReasonJoinRefused (Warning): the server cannot join; the text contains the reason and what to do.
	ReasonJoinRefused = "PublicNetworkJoinRefused"
	// ReasonLeaveRefused (Warning): the API rejected the removal of the server.
	ReasonLeaveRefused = "PublicNetworkLeaveRefused"
	// ReasonNodeBlockFull (Warning): the node block has no address left for the Node.
	ReasonNodeBlockFull = "NodeBlockFull"
	// ReasonNodeBlockUnavailable (Warning): there is no usable node block; the text contains what to do.
	ReasonNodeBlockUnavailable = "NodeBlockUnavailable"
	// ReasonDryRun (Normal): what would have been done.
	ReasonDryRun = "DryRun"
)

// Reasons of the events on the Namespace kube-system.
const (
	// ReasonNodeBlockReleased (Normal): a block that was bought for the nodes and that they do not need was deleted.
	ReasonNodeBlockReleased = "NodeBlockReleased"
	// ReasonNodeBlockSurplus (Warning): a block that was bought for the nodes and that they do not need cannot be
	// released; the text contains the reason and what to do.
	ReasonNodeBlockSurplus = "NodeBlockSurplus"
)

// record records an event unless it is the last one of the Node. It ignores a nil Node.
func (m *Manager) record(node *corev1.Node, kind, reason, text string) {
	if node == nil || m.events[node.UID] == reason+" "+text {
		return
	}
	m.events[node.UID] = reason + " " + text
	m.config.Events.Event(node, kind, reason, text)
}

// forgetEvents forgets the events of all other Nodes.
func (m *Manager) forgetEvents(nodes []*corev1.Node) {
	kept := map[types.UID]string{}
	for _, node := range nodes {
		if text, ok := m.events[node.UID]; ok {
			kept[node.UID] = text
		}
	}
	m.events = kept
}

// Metrics count servers by their membership in the public network.
type Metrics struct{ servers *metrics.GaugeVec }

// NewMetrics returns metrics that are not registered.
func NewMetrics() *Metrics {
	return &Metrics{servers: metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "phoenixnap_public_network_servers", StabilityLevel: metrics.ALPHA,
		Help: "Servers of the cluster by membership in a managed public network: managed (joined by the controller), " +
			"foreign (joined by others) or missing (selected, but not a member).",
	}, []string{"network", "membership"})}
}

// All returns the metrics, to be registered.
func (m *Metrics) All() []metrics.Registerable { return []metrics.Registerable{m.servers} }

func (m *Metrics) set(network string, o observed) {
	counts := map[string]int{"managed": 0, "foreign": 0, "missing": 0}
	for id := range o.wanted {
		_, member := membershipOf(o.servers[id], o.network.ID)
		_, ours := o.memberRecord.members[id]
		switch {
		case !member:
			counts["missing"]++
		case ours:
			counts["managed"]++
		default:
			counts["foreign"]++
		}
	}
	for name, count := range counts {
		m.servers.WithLabelValues(network, name).Set(float64(count))
	}
}

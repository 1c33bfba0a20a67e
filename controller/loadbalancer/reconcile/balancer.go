// Package reconcile takes each Service of type LoadBalancer towards a published public address and back.
//
// It decides nothing itself: it observes, asks package plan for the next step, applies that, and records what the plan
// notes of the history. What it changes of a Service it changes in a draft, which is written once for each sync, and
// before what must not happen without it. In the order of reading: ensure.go names the phases of the way to an address,
// observe.go reads the cluster and the account, apply.go buys and changes the account, publish.go makes the address
// known, fields.go and condition.go hold what the Service says, draft.go writes it, requeue.go says when to look again.
// release.go is the way back, and drift.go looks after what no event reports.
package reconcile

import (
	"cmp"
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Cloud is the part of the phoenixNAP API that is used without the cache; *pnap.Client is one.
type Cloud interface {
	DeleteBlock(ctx context.Context, id string) error
	SetBlockTags(ctx context.Context, id string, tags map[string]string) error
	AssignBlock(ctx context.Context, networkID, blockID string) error
	UnassignBlock(ctx context.Context, networkID, blockID string) error
	EnsureTags(ctx context.Context, names ...string) error
}

var _ Cloud = (*pnap.Client)(nil)

// defaultBlockSize is the smallest size of which network, gateway and broadcast leave more than one address.
const defaultBlockSize = "/29"

// Config says what a Balancer works with.
type Config struct {
	// Cloud, Account, Ledgers and Buyer are the phoenixNAP account and what is recorded about it.
	Cloud   Cloud
	Account *account.Account
	Ledgers *allocation.Store
	Buyer   *purchase.Buyer
	// Kube reads and patches Services, and reads the namespace kube-system.
	Kube kubernetes.Interface
	// Services and Nodes are informer copies; nothing is bought or deleted because of them.
	Services corelisters.ServiceLister
	Nodes    corelisters.NodeLister
	// Events receives events about Services.
	Events record.EventRecorder
	// Network is the public network that blocks are assigned to. What the Balancer remembers, and the blocks that it
	// sees, counts and releases, are those of this network.
	Network network.Named
	// Places are all public networks that are served; nil for Network only.
	Places func() plan.Places
	// Options are what decisions look at. An empty LocationAnnotation, Allocation or BlockSize stands for
	// contract.ServiceIPLocation, contract.AllocationDedicated and "/29". ReleaseWait is that of the announcer.
	plan.Options
	// Metrics count; nil for metrics that are not exposed.
	Metrics *Metrics
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Balancer ensures and releases public addresses of Services. It is safe for concurrent use.
type Balancer struct {
	config    Config
	announcer announcer.Announcer
	pace      *pace
	backoffs  *backoffs
	ledgers   *ledgerCopy
	slots     *slots
	stale     *staleness
	damage    *damageReports
	looks     *looks
	leaving   *departures
	seen      *purchase.Seen

	clusterMu sync.Mutex
	clusterID string
}

// New returns a Balancer. It starts nothing and makes no calls.
func New(config Config) *Balancer {
	config = config.withDefaults()
	announces := announcer.For(config.Announcer, announcer.Deps{Kube: config.Kube, Network: config.Network})
	config.ReleaseWait = announces.ReleaseWait()
	return &Balancer{
		config: config, announcer: announces, pace: newPace(), backoffs: newBackoffs(config.Now),
		ledgers: newLedgerCopy(config.Ledgers.In(config.Network.Name), config.Now), slots: &slots{},
		stale: newStaleness(), damage: newDamageReports(), looks: newLooks(), leaving: &departures{},
		seen: purchase.NewSeen(config.Now),
	}
}

func (config Config) withDefaults() Config {
	config.LocationAnnotation = cmp.Or(config.LocationAnnotation, contract.ServiceIPLocation)
	config.Allocation = cmp.Or(config.Allocation, contract.AllocationDedicated)
	config.BlockSize = cmp.Or(config.BlockSize, defaultBlockSize)
	if config.Metrics == nil {
		config.Metrics = NewMetrics()
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	return config
}

// NetworkOf returns the public network of the Balancer, which serves every Service that it is asked about.
func (b *Balancer) NetworkOf(context.Context, *corev1.Service) network.Named { return b.config.Network }

// cluster returns the UID of the namespace kube-system, which stays the same for the life of a cluster.
func (b *Balancer) cluster(ctx context.Context) (string, error) {
	b.clusterMu.Lock()
	defer b.clusterMu.Unlock()
	if b.clusterID != "" {
		return b.clusterID, nil
	}
	namespace, err := account.ReadCluster(ctx, b.config.Kube)
	if err != nil {
		return "", err
	}
	b.clusterID = string(namespace.UID)
	return b.clusterID, nil
}

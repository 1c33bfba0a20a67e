// Package reconcile takes each Service of type LoadBalancer towards a published public address and back.
//
// It decides nothing itself: it observes, asks package plan for the next step, applies that, and records what the plan
// notes of the history. In the order of reading: ensure.go is the way to an address and names the steps, observe.go
// reads the cluster and the account, apply.go buys and changes the account, publish.go writes the Service, condition.go
// holds what it says there, requeue.go says when to look again. release.go is the way back, and drift.go looks after
// what no event reports.
package reconcile

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// Cloud is what the package asks of the phoenixNAP API beside the shared picture of the account;
// *pnap.Client is one.
type Cloud interface {
	DeleteBlock(ctx context.Context, id string) error
	SetBlockTags(ctx context.Context, id string, tags map[string]string) error
	AssignBlock(ctx context.Context, networkID, blockID string) error
	UnassignBlock(ctx context.Context, networkID, blockID string) error
	EnsureTags(ctx context.Context, names ...string) error
}

// Account is the shared picture of the account and the lock for its changes; *account.Account is one.
type Account interface {
	Blocks(ctx context.Context, after time.Time) (account.Listing, error)
	Network(ctx context.Context, id string, after time.Time) (plan.Network, error)
	Block(ctx context.Context, id string, after time.Time) (block plan.Block, found bool, err error)
	Find(ctx context.Context, s account.Search) ([]plan.Sighting, error)
	Unlisted(ctx context.Context, cluster string, known []plan.Block, after time.Time) ([]plan.Block, error)
	Invalidate()
	Lock(ctx context.Context) (done func(), err error)
}

// Ledgers store who holds which address of a block; *ledger.Store is one.
type Ledgers interface {
	List(ctx context.Context) ([]plan.Ledger, error)
	Save(ctx context.Context, l plan.Ledger) (plan.Ledger, error)
	Delete(ctx context.Context, l plan.Ledger) error
}

// Buyer buys blocks; *purchase.Buyer is one.
type Buyer interface {
	Buy(ctx context.Context, order purchase.Order, record purchase.Record) (plan.Block, error)
}

var (
	_ Cloud   = (*pnap.Client)(nil)
	_ Account = (*account.Account)(nil)
	_ Ledgers = (*allocation.Store)(nil)
	_ Buyer   = (*purchase.Buyer)(nil)
)

// defaultBlockSize is the smallest size of which network, gateway and broadcast leave more than one address.
const defaultBlockSize = "/29"

// Config says what a Balancer works with.
type Config struct {
	// Cloud, Account, Ledgers and Buyer are the phoenixNAP account and what is recorded about it.
	Cloud   Cloud
	Account Account
	Ledgers Ledgers
	Buyer   Buyer
	// Kube reads and patches Services, reads the namespace kube-system and records purchases for the pool.
	Kube kubernetes.Interface
	// Services and Nodes are informer copies; nothing is bought or deleted because of them.
	Services corelisters.ServiceLister
	Nodes    corelisters.NodeLister
	// Events receives events about Services.
	Events record.EventRecorder
	// NetworkID is the ID of the public network that blocks are assigned to.
	NetworkID string
	// Announcer is contract.AnnouncerKubeVIP or contract.AnnouncerAgent: who announces addresses.
	Announcer string
	// Location in which all blocks are bought; empty leaves it to each Service's annotation.
	Location string
	// LocationAnnotation is the name of that annotation; empty means contract.ServiceIPLocation.
	LocationAnnotation string
	// Allocation of Services that do not say: contract.AllocationDedicated, which empty means, or
	// contract.AllocationShared.
	Allocation string
	// BlockSize of blocks to buy where the Service does not say, such as "/29", which empty means.
	BlockSize string
	// OwnBlocks are the IDs of brought blocks that Services may name though they carry no tag of the cluster.
	OwnBlocks []string
	// NodeBlock is the ID of the block from which nodes get their own addresses, whose ledger is another's to
	// keep; empty when there is none.
	NodeBlock string
	// MaxBlocks is the most blocks that may be bought for the cluster; 0 for what the network holds.
	MaxBlocks int
	// Metrics count; nil for metrics that are not exposed.
	Metrics *Metrics
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// options returns those settings that decisions look at.
func (c Config) options() plan.Options {
	return plan.Options{
		Announcer: c.Announcer, Location: c.Location, LocationAnnotation: c.LocationAnnotation,
		Allocation: c.Allocation,
		BlockSize:  c.BlockSize, OwnBlocks: c.OwnBlocks, NodeBlock: c.NodeBlock, MaxBlocks: c.MaxBlocks,
	}
}

// Balancer ensures and releases public addresses of Services. It is safe for concurrent use.
type Balancer struct {
	config  Config
	pace    *pace
	rests   *rests
	ledgers *ledgerCopy
	stale   *staleness

	clusterMu sync.Mutex
	clusterID string
}

// New returns a Balancer. It starts nothing and makes no calls.
func New(config Config) *Balancer {
	if config.LocationAnnotation == "" {
		config.LocationAnnotation = contract.ServiceIPLocation
	}
	if config.Allocation == "" {
		config.Allocation = contract.AllocationDedicated
	}
	if config.BlockSize == "" {
		config.BlockSize = defaultBlockSize
	}
	if config.Metrics == nil {
		config.Metrics = NewMetrics()
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	return &Balancer{
		config: config, pace: newPace(), rests: newRests(config.Now),
		ledgers: newLedgerCopy(config.Ledgers, config.Now), stale: newStaleness(),
	}
}

// owner names the Service to the account.
func (b *Balancer) owner(ctx context.Context, service *corev1.Service) (plan.Owner, error) {
	cluster, err := b.cluster(ctx)
	if err != nil {
		return plan.Owner{}, err
	}
	return plan.OwnerOf(service, cluster), nil
}

// cluster returns the UID of the namespace kube-system, which stays the same for the life of a cluster.
func (b *Balancer) cluster(ctx context.Context) (string, error) {
	b.clusterMu.Lock()
	defer b.clusterMu.Unlock()
	if b.clusterID != "" {
		return b.clusterID, nil
	}
	namespace, err := b.config.Kube.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read the UID of namespace %s, which names the cluster: %w", metav1.NamespaceSystem, err)
	}
	if namespace.UID == "" {
		return "", fmt.Errorf("namespace %s has no UID to name the cluster by", metav1.NamespaceSystem)
	}
	b.clusterID = string(namespace.UID)
	return b.clusterID, nil
}

// changed drops cached state, because the account was changed or may have been.
func (b *Balancer) changed() {
	b.config.Account.Invalidate()
}

// Package balancer gives each Service of type LoadBalancer a public IP block and takes it back.
package balancer

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/ipblock"
)

// Cloud is what the package asks of the phoenixNAP API; *pnap.Client is one.
type Cloud interface {
	Blocks(ctx context.Context, tags map[string]string) ([]ipblock.Block, error)
	Block(ctx context.Context, id string) (ipblock.Block, error)
	BuyBlock(ctx context.Context, wanted pnap.BlockRequest) (ipblock.Block, error)
	DeleteBlock(ctx context.Context, id string) error
	Network(ctx context.Context, id string) (ipblock.Network, error)
	AssignBlock(ctx context.Context, networkID, blockID string) error
	UnassignBlock(ctx context.Context, networkID, blockID string) error
	EnsureTags(ctx context.Context, names ...string) error
	TagAssignments(ctx context.Context, name string) (map[string]string, error)
	Locations(ctx context.Context) ([]string, error)
}

var _ Cloud = (*pnap.Client)(nil)

// defaultInterval is how often a change that takes its time is looked at. The API takes seconds to
// minutes to assign a block.
const defaultInterval = 3 * time.Second

// Config says what a Balancer works with.
type Config struct {
	// Cloud is the phoenixNAP API.
	Cloud Cloud
	// Kube reads and patches Services and reads the namespace kube-system.
	Kube kubernetes.Interface
	// Services and Nodes are informer copies; nothing is bought on their word alone.
	Services corelisters.ServiceLister
	Nodes    corelisters.NodeLister
	// Events receives what users are told about their Service.
	Events record.EventRecorder
	// NetworkID is the ID of the public network that blocks are assigned to.
	NetworkID string
	// Location in which all blocks are bought; empty leaves it to each Service's annotation.
	Location string
	// LocationAnnotation is the name of that annotation; empty means contract.ServiceIPLocation.
	LocationAnnotation string
	// MaxBlocks is the most blocks that may be bought for the cluster; 0 for what the network holds.
	MaxBlocks int
	// Interval between two looks at a change that takes its time; 0 means 3 seconds.
	Interval time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Balancer implements cloudprovider.LoadBalancer. It is safe for concurrent use.
type Balancer struct {
	config Config
	// change admits one change of the account at a time: the API refuses a second change of a public
	// network while it is BUSY, and two purchases must not both take the last place in it.
	change chan struct{}
	// tagsSince is when the tags were first ensured by this process; whoever holds change may use it.
	tagsSince time.Time

	clusterMu sync.Mutex
	clusterID string

	restsMu   sync.Mutex
	restsByID map[string]rest
	refusals  map[types.UID]refusal
}

var _ cloudprovider.LoadBalancer = (*Balancer)(nil)

// New returns a Balancer. It starts nothing and asks nobody.
func New(config Config) *Balancer {
	if config.LocationAnnotation == "" {
		config.LocationAnnotation = contract.ServiceIPLocation
	}
	if config.Interval == 0 {
		config.Interval = defaultInterval
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	return &Balancer{config: config, change: make(chan struct{}, 1), restsByID: map[string]rest{}, refusals: map[types.UID]refusal{}}
}

// GetLoadBalancerName returns the name by which the account knows the Service: the value of the tag on
// its block.
func (b *Balancer) GetLoadBalancerName(_ context.Context, _ string, service *corev1.Service) string {
	return contract.ServiceTag(service.Namespace, service.Name)
}

// GetLoadBalancer tells whether anything of the Service is left, in the account or on the Service. The
// framework drops the finalizer without asking further when it hears no, so everything that is not
// certain is an error.
func (b *Balancer) GetLoadBalancer(ctx context.Context, _ string, service *corev1.Service) (*corev1.LoadBalancerStatus, bool, error) {
	exists, err := b.anythingLeft(ctx, service)
	if err != nil {
		b.noteLookupFailure(ctx, service)
		return nil, false, fmt.Errorf("look for the IP block of Service %s/%s: %w", service.Namespace, service.Name, err)
	}
	if !exists {
		return nil, false, nil
	}
	return service.Status.LoadBalancer.DeepCopy(), true, nil
}

func (b *Balancer) anythingLeft(ctx context.Context, service *corev1.Service) (bool, error) {
	live, err := b.current(ctx, service)
	if err != nil {
		return false, err
	}
	if live != nil && bearsMarks(live) {
		return true, nil
	}
	owner, err := b.owner(ctx, service)
	if err != nil {
		return false, err
	}
	purchase := purchaseToRelease(ctx, cmp.Or(live, service))
	seen, err := b.observeBlocks(ctx, owner, purchase)
	if err != nil {
		return false, err
	}
	steps := ipblock.Release(owner, b.view(seen, purchase))
	return steps[0].Action != ipblock.Done, nil
}

// UpdateLoadBalancer has nothing to do when nodes come and go: a block belongs to the network, not to
// nodes, and whoever announces the address watches nodes itself.
func (b *Balancer) UpdateLoadBalancer(_ context.Context, _ string, _ *corev1.Service, _ []*corev1.Node) error {
	return nil
}

// exclusive waits until no other change of the account is under way.
func (b *Balancer) exclusive(ctx context.Context) (done func(), err error) {
	select {
	case b.change <- struct{}{}:
		return func() { <-b.change }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for another change of the account: %w", ctx.Err())
	}
}

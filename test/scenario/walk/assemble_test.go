package walk

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	cloudnode "k8s.io/cloud-provider/controllers/node"
	"k8s.io/cloud-provider/controllers/nodelifecycle"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/provider"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/orphans"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/service"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/node/instances"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/node/membership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/node/metadata"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// loop is one of the controller's parts at work.
type loop func(context.Context) error

// assemble builds the controller as main does, around the process's own clients.
func (p *process) assemble() ([]loop, error) {
	url := internet.join(p)
	client, err := pnap.New(pnap.Config{
		BaseURL: url, TokenURL: url + pnap.TokenPath,
		Credentials: p.world.credentials,
		Wrap:        func(base http.RoundTripper) http.RoundTripper { return fence{p, base} },
	})
	if err != nil {
		return nil, err
	}
	parts := parts{
		process: p, client: client, account: account.New(account.Config{Cloud: client, Now: p.now}),
		ledgers:   allocation.NewStore(p.kube),
		buyer:     purchase.New(purchase.Config{Cloud: client, Now: p.now}),
		inventory: instances.NewInventory(instances.InventoryConfig{Source: client, Now: p.now}),
	}
	loops, err := parts.ofNodes()
	if err != nil {
		return nil, err
	}
	joining, err := parts.ofMembership()
	if err != nil {
		return nil, err
	}
	return slices.Concat(loops, parts.ofServices(), joining), nil
}

// fence refuses changes of a deposed leader, as the transport of the client does with pnap.Config.Fence.
type fence struct {
	process *process
	base    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (f fence) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodGet {
		if err := f.process.mayChange(); err != nil {
			return nil, errors.Join(pnap.ErrUnsent, err)
		}
	}
	return f.base.RoundTrip(request)
}

// carriers is the rule by which Nodes carry traffic.
var carriers = contract.Carriers{NetworkID: networkID, Announcer: contract.AnnouncerKubeVIP}

// parts are what the loops share.
type parts struct {
	*process
	client    *pnap.Client
	account   *account.Account
	ledgers   *allocation.Store
	buyer     *purchase.Buyer
	inventory *instances.Inventory
}

func (p parts) ofServices() []loop {
	core := p.shared.Core().V1()
	load := reconcile.New(reconcile.Config{
		Cloud: p.client, Account: p.account, Ledgers: p.ledgers, Buyer: p.buyer, Kube: p.kube,
		Services: core.Services().Lister(), Nodes: core.Nodes().Lister(), Events: p.world.events,
		NetworkID: networkID, Now: p.now, Options: plan.Options{
			Announcer: contract.AnnouncerKubeVIP, Location: location, OwnBlocks: p.world.brought(),
			NodeBlock:   nodeBlockID,
			MaxRetained: maxRetained, MaxRetainedPerNamespace: maxRetainedPerNamespace,
			Allocation: p.world.defaults.allocation, BlockSize: p.world.defaults.size,
		},
	})
	serving := service.New(service.Config{
		Kube: p.kube, Services: core.Services(), Nodes: core.Nodes(), Balancer: load, Events: p.world.events,
		Workers: 3, Announcer: contract.AnnouncerKubeVIP, Carriers: carriers,
	})
	collecting := orphans.New(orphans.Config{
		Account: p.account, Cloud: p.client, Ledgers: p.ledgers, Kube: p.kube, Services: core.Services(),
		Events:  p.world.events,
		Metrics: orphans.NewMetrics(), NetworkID: networkID, Collect: p.world.collect, Grace: orphanGrace,
		NodesKept: p.world.manages, Now: p.now,
	})
	return []loop{serving.Run, collecting.Run}
}

// ofMembership joins servers to the network, in the half of the walks whose user wants that.
func (p parts) ofMembership() ([]loop, error) {
	if !p.world.manages {
		return nil, nil
	}
	joining, err := membership.New(membership.Config{
		Kube: p.kube, Nodes: p.shared.Core().V1().Nodes(), Events: p.world.events, Servers: p.inventory,
		Account: p.account,
		Cloud:   p.client, Buyer: p.buyer, Ledgers: p.ledgers, NetworkID: networkID, NodeIPBlock: nodeBlockID,
		Now: p.now,
	})
	if err != nil {
		return nil, err
	}
	return []loop{joining.Run}, nil
}

func (p parts) ofNodes() ([]loop, error) {
	informer := p.shared.Core().V1().Nodes()
	existing := instances.New(instances.Config{
		Inventory: p.inventory, Nodes: informer.Lister(), Live: p.kube.CoreV1(), Events: p.world.events,
		Networks: p.account, NetworkID: networkID, Now: p.now,
	})
	provider := provider.New(existing)
	// The framework's own controllers, with the pauses of its defaults.
	initialising, err := cloudnode.NewCloudNodeController(informer, p.kube, provider, 5*time.Minute, 2, 1)
	if err != nil {
		return nil, fmt.Errorf("controller that initialises Nodes: %w", err)
	}
	watching, err := nodelifecycle.NewCloudNodeLifecycleController(informer, p.kube, provider, 5*time.Second, 1)
	if err != nil {
		return nil, fmt.Errorf("controller that deletes Nodes: %w", err)
	}
	publishing, err := metadata.NewNetworkPublisher(metadata.NetworkConfig{
		Client: p.kube, Nodes: informer, Servers: p.inventory, Networks: p.account, Events: p.world.events,
		NetworkID: networkID, Announcer: contract.AnnouncerKubeVIP, ManagesMembership: p.world.manages, Now: p.now,
	})
	if err != nil {
		return nil, err
	}
	labelling, err := metadata.NewLabeller(p.kube, informer, p.world.events, carriers)
	if err != nil {
		return nil, err
	}
	metrics := controllersmetrics.NewControllerManagerMetrics("walk")
	return []loop{
		func(ctx context.Context) error { initialising.RunWithContext(ctx, metrics); return nil },
		func(ctx context.Context) error { watching.Run(ctx, metrics); return nil },
		publishing.Run, labelling.Run, metadata.NewAgentWatch(p.kube, informer, p.world.events).Run,
		metadata.NewServerWatch(p.kube, informer, p.inventory, existing).Run,
	}, nil
}

// live starts a process. Its informers have seen everything before its loops begin.
func (w *world) live(dieAt int) *process {
	p := newProcess(w)
	ctx, cancel := context.WithCancel(w.t.Context())
	p.cancel = cancel
	loops, err := p.assemble()
	if err != nil {
		w.t.Fatal(err)
	}
	p.shared.Start(ctx.Done())
	p.shared.WaitForCacheSync(ctx.Done())
	p.mu.Lock()
	p.dieAt = dieAt
	p.steps = 0
	p.mu.Unlock()
	for _, run := range loops {
		p.ended.Go(func() {
			if err := run(ctx); err != nil {
				w.t.Errorf("seed %d: a loop ended: %v", w.seed, err)
			}
		})
	}
	return p
}

// bury waits until nothing of a dead process is left.
func (p *process) bury() {
	p.kill()
	p.ended.Wait()
	p.shared.Shutdown()
}

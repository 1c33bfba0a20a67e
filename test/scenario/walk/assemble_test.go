package walk

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	cloudprovider "k8s.io/cloud-provider"
	cloudnode "k8s.io/cloud-provider/controllers/node"
	"k8s.io/cloud-provider/controllers/nodelifecycle"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/config"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/controllers"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
)

// loop is one of the controller's parts at work.
type loop func(context.Context) error

// assemble builds the controller, by the constructor of the process, around clients of its own, and the framework's
// controllers of Nodes.
func (p *process) assemble() ([]loop, error) {
	url := internet.join(p)
	client, err := pnap.New(pnap.Config{
		BaseURL: url, TokenURL: url + pnap.TokenPath,
		Credentials: p.world.credentials, RequestsPerSecond: p.world.rate,
		Wrap: func(base http.RoundTripper) http.RoundTripper { return fence{p, base} },
	})
	if err != nil {
		return nil, err
	}
	all := controllers.New(controllers.Config{
		Options: p.world.options(), API: client, Client: p.kube, IPBlocks: p.blocks,
		PublicNetworks: p.networks, Informers: p.shared, Events: p.world.events, Metrics: controllers.NewMetrics(),
		Workers: 3, Now: p.now,
	})
	loops, err := p.framework(all)
	if err != nil {
		return nil, err
	}
	for _, name := range controllers.Names() {
		if name == controllers.ControlPlane { // it asks the API server for its certificate
			continue
		}
		built, err := all.Build(name)
		if err != nil {
			return nil, err
		}
		if built != nil {
			loops = append(loops, built.Run)
		}
	}
	return loops, nil
}

// options are what the user of the cluster has configured.
func (w *world) options() *config.Config {
	return &config.Config{
		LoadBalancer: config.LoadBalancer{Announcer: w.announcer(),
			Network: network.Named{Name: v1beta1.DefaultNetwork, ID: networkID}},
		Location:   location,
		Allocation: w.defaults.allocation, BlockSize: w.defaults.size,
		MaxIPBlocks: w.maxBlocks, MaxRetained: maxRetained, MaxRetainedPerNamespace: maxRetainedPerNamespace,
		ManageMembership: w.manages, CollectOrphans: w.collect, OrphanGrace: orphanGrace,
	}
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

// framework are the framework's own controllers, with the pauses of its defaults.
func (p *process) framework(provider cloudprovider.Interface) ([]loop, error) {
	informer := p.shared.Core().V1().Nodes()
	initialising, err := cloudnode.NewCloudNodeController(informer, p.kube, provider, 5*time.Minute, 2, 1)
	if err != nil {
		return nil, fmt.Errorf("controller that initialises Nodes: %w", err)
	}
	watching, err := nodelifecycle.NewCloudNodeLifecycleController(informer, p.kube, provider, 5*time.Second, 1)
	if err != nil {
		return nil, fmt.Errorf("controller that deletes Nodes: %w", err)
	}
	metrics := controllersmetrics.NewControllerManagerMetrics("walk")
	return []loop{
		func(ctx context.Context) error { initialising.RunWithContext(ctx, metrics); return nil },
		func(ctx context.Context) error { watching.Run(ctx, metrics); return nil },
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

package main

import (
	"context"
	"fmt"
	"maps"

	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	appconfig "k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/component-base/version"
	genericcontrollermanager "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/controller"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/provider"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/config"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/leader"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/node/conditionmetrics"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/node/instances"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/node/metadata"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// connection is what needs no Kubernetes client: the phoenixNAP API, and what the controller knows of the account.
type connection struct {
	config    *config.Config
	metrics   allMetrics
	api       *pnap.Client
	inventory *instances.Inventory
	changes   *metadata.NetworkChanges
	account   *account.Account
	buyer     *purchase.Buyer
}

// connect asks nothing of the API yet.
func connect(handover *leader.Leadership, loaded *config.Config) (*connection, error) {
	metrics := newMetrics()
	if err := metrics.register(); err != nil {
		return nil, err
	}
	api, err := pnap.New(pnap.Config{
		BaseURL:     loaded.BaseURL,
		TokenURL:    loaded.TokenURL,
		Credentials: loaded.Credentials,
		UserAgent:   program + "/" + version.Get().GitVersion,

		DryRun:            loaded.DryRun,
		RequestsPerSecond: loaded.RequestsPerSecond,
		Wrap:              handover.WrapCloud,
		Fence:             handover.MayChange,
		Metrics:           metrics.api,
	})
	if err != nil {
		return nil, err
	}
	changes := metadata.NewNetworkChanges(loaded.LoadBalancer.NetworkID)
	return &connection{
		config:    loaded,
		metrics:   metrics,
		api:       api,
		inventory: instances.NewInventory(instances.InventoryConfig{Source: api, Metrics: metrics.instances}),
		changes:   changes,
		account:   account.New(account.Config{Cloud: api, Metrics: metrics.account, OnNetwork: changes.Notice}),
		buyer:     purchase.New(purchase.Config{Cloud: api}),
	}, nil
}

// wiring is the provider, and all that the loops are built of. The framework hands it, as the provider, to the
// constructor of each controller.
type wiring struct {
	*connection
	*provider.Cloud
	completed *appconfig.CompletedConfig
	ledgers   *allocation.Store
}

// newWiring guards the clients of the framework, serves, and builds the provider; the framework calls it on every
// replica, before the election.
func newWiring(life *life, c *connection, completed *appconfig.CompletedConfig) *wiring {
	if err := life.guard(completed, c.config.DryRun); err != nil {
		klog.Fatal(err) //nolint:forbidigo // the framework has no other way out
	}
	if err := life.serve(completed, newDetail(func() error { return c.api.Health().Err() })); err != nil {
		klog.Fatal(err) //nolint:forbidigo // the framework has no other way out
	}
	klog.FromContext(life.ctx).Info("Starting", "version", version.Get().GitVersion, "config", c.config.String())
	provided := provider.New(instances.New(instances.Config{
		Inventory: c.inventory,
		Nodes:     completed.SharedInformers.Core().V1().Nodes().Lister(),
		Live:      completed.Client.CoreV1(),
		Networks:  c.account,
		NetworkID: c.config.LoadBalancer.NetworkID,
		Events:    completed.EventRecorder,
		Metrics:   c.metrics.instances,
	}))
	return &wiring{connection: c, Cloud: provided, completed: completed, ledgers: allocation.NewStore(completed.Client)}
}

// controllers returns the framework's controllers, without the one for routes and with ours in the place of
// the one for Services, and further ones of ours.
func controllers(loops *loops) map[string]app.ControllerInitFuncConstructor {
	all := maps.Clone(app.DefaultInitFuncConstructors)
	delete(all, names.NodeRouteController)
	for name, build := range map[string]builder{
		names.ServiceLBController:      whereBalancing((*wiring).services),
		"phoenixnap-node-network":      (*wiring).networkPublisher,
		"phoenixnap-vlan-ready":        whereBalancing((*wiring).labeller),
		"phoenixnap-agent-watch":       whereBalancing((*wiring).agentWatch),
		"phoenixnap-heartbeat-key":     (*wiring).heartbeatKey,
		"phoenixnap-admission":         (*wiring).admission,
		"phoenixnap-membership":        whereBalancing((*wiring).membership),
		"phoenixnap-orphans":           whereBalancing((*wiring).orphans),
		"phoenixnap-condition-metrics": whereBalancing((*wiring).conditionMetrics),
		"phoenixnap-control-plane":     whereBalancing((*wiring).controlPlane),
	} {
		all[name] = controllerOf(loops, build)
	}
	return all
}

// builder returns a loop for the leader to run, or nil when the configuration has no use for it.
type builder func(*wiring) (loop, error)

// whereBalancing builds only where Services of type LoadBalancer are served.
func whereBalancing(build builder) builder {
	return func(w *wiring) (loop, error) {
		if !w.config.LoadBalancer.Enabled() {
			return nil, nil
		}
		return build(w)
	}
}

func controllerOf(loops *loops, build builder) app.ControllerInitFuncConstructor {
	return app.ControllerInitFuncConstructor{
		InitContext: app.ControllerInitContext{ClientName: program},
		Constructor: func(_ app.ControllerInitContext, _ *appconfig.CompletedConfig,
			cloud cloudprovider.Interface) app.InitFunc {
			return func(ctx context.Context, _ genericcontrollermanager.ControllerContext) (controller.Interface, bool,
				error) {
				wiring, ok := cloud.(*wiring)
				if !ok {
					return nil, false, fmt.Errorf("the provider is a %T, want our own", cloud)
				}
				built, err := build(wiring)
				if err != nil || built == nil {
					return nil, false, err
				}
				loops.start(ctx, built)
				return nil, true, nil
			}
		},
	}
}

func (w *wiring) networkPublisher() (loop, error) {
	announcer := w.config.LoadBalancer.Announcer
	if announcer == "" {
		announcer = contract.AnnouncerNone
	}
	return metadata.NewNetworkPublisher(metadata.NetworkConfig{
		Client:    w.completed.Client,
		Nodes:     w.completed.SharedInformers.Core().V1().Nodes(),
		Servers:   w.inventory,
		Networks:  w.account,
		Events:    w.completed.EventRecorder,
		NetworkID: w.config.LoadBalancer.NetworkID,
		Announcer: announcer,
		Selector:  w.config.ServiceNodeSelector,

		ManagesMembership: w.config.ManageMembership,
		Changes:           w.changes,
	})
}

func (w *wiring) labeller() (loop, error) {
	return metadata.NewLabeller(w.completed.Client, w.completed.SharedInformers.Core().V1().Nodes(),
		w.completed.EventRecorder, w.config.ServiceNodeSelector)
}

func (w *wiring) agentWatch() (loop, error) {
	return metadata.NewAgentWatch(w.completed.Client, w.completed.SharedInformers.Core().V1().Nodes(),
		w.completed.EventRecorder), nil
}

// conditionMetrics exports the conditions of Nodes and Services as metrics.
func (w *wiring) conditionMetrics() (loop, error) {
	core := w.completed.SharedInformers.Core().V1()
	return conditionmetrics.New(w.metrics.census, core.Nodes(), core.Services()), nil
}

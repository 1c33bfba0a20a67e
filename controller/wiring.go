package main

import (
	"context"
	"maps"
	"sync/atomic"

	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	appconfig "k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/component-base/version"
	genericcontrollermanager "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/controller"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/health"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/provider"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/config"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/node/conditionmetrics"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/node/instances"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/node/metadata"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// wiring holds the parts while the framework asks for them one after another.
type wiring struct {
	life      *life
	loops     *loops
	config    *config.Config
	metrics   allMetrics
	api       *pnap.Client
	inventory *instances.Inventory
	account   *account.Account
	buyer     *purchase.Buyer
	ledgers   *allocation.Store
	// publisher is told of each network that is read, once it is there.
	publisher atomic.Pointer[metadata.NetworkPublisher]
}

// connect builds what needs no Kubernetes client.
func (w *wiring) connect(loaded *config.Config) error {
	w.metrics = newMetrics()
	if err := w.metrics.register(); err != nil {
		return err
	}
	api, err := pnap.New(pnap.Config{
		BaseURL:     loaded.BaseURL,
		TokenURL:    loaded.TokenURL,
		Credentials: loaded.Credentials,
		UserAgent:   program + "/" + version.Get().GitVersion,

		DryRun:            loaded.DryRun,
		RequestsPerSecond: loaded.RequestsPerSecond,
		Wrap:              w.life.handover.WrapCloud,
		Fence:             w.life.handover.MayChange,
		Metrics:           w.metrics.api,
	})
	if err != nil {
		return err
	}
	w.config, w.api = loaded, api
	w.inventory = instances.NewInventory(instances.InventoryConfig{Source: api, Metrics: w.metrics.instances})
	w.account = account.New(account.Config{Cloud: api, Metrics: w.metrics.account, OnNetwork: w.noticeNetwork})
	w.buyer = purchase.New(purchase.Config{Cloud: api})
	return nil
}

// cloud builds the provider; the framework calls it on every replica, before the election.
func (w *wiring) cloud(completed *appconfig.CompletedConfig) cloudprovider.Interface {
	if err := w.life.guard(completed, w.config.DryRun); err != nil {
		klog.Fatal(err) //nolint:forbidigo // the framework has no other way out
	}
	if err := w.life.serve(completed, health.NewDetail(apiDetail, func() error { return w.api.Health().Err() })); err != nil {
		klog.Fatal(err) //nolint:forbidigo // the framework has no other way out
	}
	klog.FromContext(w.loops.ctx).Info("Starting", "version", version.Get().GitVersion, "config", w.config.String())
	w.ledgers = allocation.NewStore(completed.Client)
	return provider.New(instances.New(instances.Config{
		Inventory: w.inventory,
		Nodes:     completed.SharedInformers.Core().V1().Nodes().Lister(),
		Live:      completed.Client.CoreV1(),
		Networks:  w.account,
		NetworkID: w.config.LoadBalancer.NetworkID,
		Events:    completed.EventRecorder,
		Metrics:   w.metrics.instances,
	}))
}

// controllers returns the framework's controllers, without the one for routes and with ours in the place of
// the one for Services, and further ones of ours.
func (w *wiring) controllers() map[string]app.ControllerInitFuncConstructor {
	all := maps.Clone(app.DefaultInitFuncConstructors)
	delete(all, names.NodeRouteController)
	all[names.ServiceLBController] = w.controller(w.whereBalancing(w.services))
	all["phoenixnap-node-network"] = w.controller(w.networkPublisher)
	all["phoenixnap-vlan-ready"] = w.controller(w.whereBalancing(w.labeller))
	all["phoenixnap-agent-watch"] = w.controller(w.whereBalancing(w.agentWatch))
	all["phoenixnap-heartbeat-key"] = w.controller(w.heartbeatKey)
	all["phoenixnap-admission"] = w.controller(w.admission)
	all["phoenixnap-membership"] = w.controller(w.whereBalancing(w.membership))
	all["phoenixnap-orphans"] = w.controller(w.whereBalancing(w.orphans))
	all["phoenixnap-census"] = w.controller(w.whereBalancing(w.census))
	all["phoenixnap-control-plane"] = w.controller(w.whereBalancing(w.controlPlane))
	return all
}

// apiDetail is the name under which /healthz/… tells how the phoenixNAP API does.
const apiDetail = "phoenixnap-api"

// builder returns a loop for the leader to run, or nil when the configuration has no use for it.
type builder func(completed *appconfig.CompletedConfig) (loop, error)

// whereBalancing builds only where Services of type LoadBalancer are served.
func (w *wiring) whereBalancing(build builder) builder {
	return func(completed *appconfig.CompletedConfig) (loop, error) {
		if !w.config.LoadBalancer.Enabled() {
			return nil, nil
		}
		return build(completed)
	}
}

func (w *wiring) controller(build builder) app.ControllerInitFuncConstructor {
	return app.ControllerInitFuncConstructor{
		InitContext: app.ControllerInitContext{ClientName: program},
		Constructor: func(_ app.ControllerInitContext, completed *appconfig.CompletedConfig, _ cloudprovider.Interface) app.InitFunc {
			return func(ctx context.Context, _ genericcontrollermanager.ControllerContext) (controller.Interface, bool, error) {
				built, err := build(completed)
				if err != nil || built == nil {
					return nil, false, err
				}
				w.loops.start(ctx, built)
				return nil, true, nil
			}
		},
	}
}

func (w *wiring) networkPublisher(completed *appconfig.CompletedConfig) (loop, error) {
	announcer := w.config.LoadBalancer.Announcer
	if announcer == "" {
		announcer = contract.AnnouncerNone
	}
	publisher, err := metadata.NewNetworkPublisher(metadata.NetworkConfig{
		Client:    completed.Client,
		Nodes:     completed.SharedInformers.Core().V1().Nodes(),
		Servers:   w.inventory,
		Networks:  w.account,
		Events:    completed.EventRecorder,
		NetworkID: w.config.LoadBalancer.NetworkID,
		Announcer: announcer,
		Selector:  w.config.ServiceNodeSelector,

		ManagesMembership: w.config.ManageMembership,
	})
	w.publisher.Store(publisher)
	return publisher, err
}

// noticeNetwork tells the publisher what somebody has read of a network.
func (w *wiring) noticeNetwork(network plan.Network) {
	if publisher := w.publisher.Load(); publisher != nil {
		publisher.Notice(network)
	}
}

func (w *wiring) labeller(completed *appconfig.CompletedConfig) (loop, error) {
	return metadata.NewLabeller(completed.Client, completed.SharedInformers.Core().V1().Nodes(), completed.EventRecorder, w.config.ServiceNodeSelector)
}

func (w *wiring) agentWatch(completed *appconfig.CompletedConfig) (loop, error) {
	return metadata.NewAgentWatch(completed.Client, completed.SharedInformers.Core().V1().Nodes(), completed.EventRecorder), nil
}

// census tells as metrics what the conditions of Nodes and Services say.
func (w *wiring) census(completed *appconfig.CompletedConfig) (loop, error) {
	core := completed.SharedInformers.Core().V1()
	return conditionmetrics.New(w.metrics.census, core.Nodes(), core.Services()), nil
}

package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	informers "k8s.io/client-go/informers/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	appconfig "k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	genericcontrollermanager "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/controller"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/config"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/apiserver"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/orphans"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/service"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/node/conditionmetrics"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/node/membership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/node/metadata"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

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
		"phoenixnap-server-watch":      (*wiring).serverWatch,
		"phoenixnap-heartbeat-key":     (*wiring).heartbeatKey,
		"phoenixnap-admission":         (*wiring).admission,
		"phoenixnap-membership":        whereBalancing((*wiring).membership),
		"phoenixnap-orphans":           whereBalancing((*wiring).orphans),
		"phoenixnap-account-failures":  (*wiring).accountFailures,
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

func (w *wiring) core() informers.Interface { return w.completed.SharedInformers.Core().V1() }

func (w *wiring) networkPublisher() (loop, error) {
	return metadata.NewNetworkPublisher(metadata.NetworkConfig{
		Client:    w.completed.Client,
		Nodes:     w.core().Nodes(),
		Servers:   w.inventory,
		Networks:  w.account,
		Events:    w.completed.EventRecorder,
		NetworkID: w.config.LoadBalancer.NetworkID,
		Announcer: cmp.Or(w.config.LoadBalancer.Announcer, contract.AnnouncerNone),
		Selector:  w.config.ServiceNodeSelector,

		ManagesMembership: w.config.ManageMembership,
		Changes:           w.changes,
	})
}

// carriers is the rule by which Nodes may carry traffic of load balancers.
func (w *wiring) carriers() contract.Carriers {
	return contract.Carriers{
		NetworkID: w.config.LoadBalancer.NetworkID, Announcer: w.config.LoadBalancer.Announcer,
		Selector: w.config.ServiceNodeSelector,
	}
}

func (w *wiring) labeller() (loop, error) {
	return metadata.NewLabeller(w.completed.Client, w.core().Nodes(),
		w.completed.EventRecorder, w.carriers())
}

func (w *wiring) agentWatch() (loop, error) {
	return metadata.NewAgentWatch(w.completed.Client, w.core().Nodes(),
		w.completed.EventRecorder), nil
}

func (w *wiring) serverWatch() (loop, error) {
	return metadata.NewServerWatch(w.completed.Client, w.core().Nodes(), w.inventory, w.instances), nil
}

// conditionMetrics exports the conditions of Nodes and Services as metrics.
func (w *wiring) conditionMetrics() (loop, error) {
	return conditionmetrics.New(w.metrics.conditions, w.core().Nodes(), w.core().Services()), nil
}

func (w *wiring) services() (loop, error) {
	return service.New(service.Config{
		Kube:      w.completed.Client,
		Services:  w.core().Services(),
		Nodes:     w.core().Nodes(),
		Balancer:  w.balancer(),
		Events:    w.completed.EventRecorder,
		Metrics:   w.metrics.services,
		Workers:   int(w.completed.ComponentConfig.ServiceController.ConcurrentServiceSyncs),
		Carriers:  w.carriers(),
		Announcer: w.config.LoadBalancer.Announcer,
	}), nil
}

func (w *wiring) balancer() *reconcile.Balancer {
	return reconcile.New(reconcile.Config{
		Cloud:    w.api,
		Account:  w.account,
		Ledgers:  w.ledgers,
		Buyer:    w.buyer,
		Kube:     w.completed.Client,
		Services: w.core().Services().Lister(),
		Nodes:    w.core().Nodes().Lister(),
		Events:   w.completed.EventRecorder,
		Metrics:  w.metrics.balancer,

		NetworkID: w.config.LoadBalancer.NetworkID,
		Options: plan.Options{
			Announcer:          w.config.LoadBalancer.Announcer,
			Selector:           w.config.ServiceNodeSelector,
			DryRun:             w.config.DryRun,
			Location:           w.config.Location,
			LocationAnnotation: w.config.AnnotationIPLocation,
			Allocation:         w.config.Allocation,
			BlockSize:          w.config.BlockSize,
			OwnBlocks:          w.config.OwnBlocks,
			NodeBlock:          w.config.NodeIPBlock,
			MaxBlocks:          w.config.MaxIPBlocks,
			MaxRetained:        w.config.MaxRetained,

			MaxRetainedPerNamespace: w.config.MaxRetainedPerNamespace,
		},
	})
}

// heartbeatKey is needed where the agents announce.
func (w *wiring) heartbeatKey() (loop, error) {
	if w.config.LoadBalancer.Announcer != contract.AnnouncerAgent {
		return nil, nil
	}
	core := w.completed.Client.CoreV1()
	return &announcer.HeartbeatKey{
		Secrets: core.Secrets(metav1.NamespaceSystem), ConfigMaps: core.ConfigMaps(metav1.NamespaceSystem),
		Events: w.completed.EventRecorder,
	}, nil
}

// admission runs without an announcer, too: it switches off what an earlier configuration switched on.
func (w *wiring) admission() (loop, error) {
	bindings := w.completed.Client.RbacV1().RoleBindings(metav1.NamespaceSystem)
	return announcer.PolicySwitch{Bindings: bindings, Announcing: w.config.LoadBalancer.Enabled()}, nil
}

func (w *wiring) membership() (loop, error) {
	if !w.config.ManageMembership {
		return nil, nil
	}
	return membership.New(membership.Config{
		Kube:    w.completed.Client,
		Nodes:   w.core().Nodes(),
		Events:  w.completed.EventRecorder,
		Servers: w.inventory,
		Account: w.account,
		Cloud:   w.api,
		Buyer:   w.buyer,
		Ledgers: w.ledgers,
		Metrics: w.metrics.membership,

		NetworkID:      w.config.LoadBalancer.NetworkID,
		NodeIPBlock:    w.config.NodeIPBlock,
		WithoutAddress: w.config.NodeAddress == config.NodeAddressNone,
		Selector:       w.config.ServiceNodeSelector,
		MaxBlocks:      w.config.MaxIPBlocks,
	})
}

func (w *wiring) orphans() (loop, error) {
	return orphans.New(orphans.Config{
		Account:   w.account,
		Cloud:     w.api,
		Ledgers:   w.ledgers,
		Kube:      w.completed.Client,
		Services:  w.core().Services(),
		Events:    w.completed.EventRecorder,
		Metrics:   w.metrics.orphans,
		NetworkID: w.config.LoadBalancer.NetworkID,
		Brought:   w.config.OwnBlocks,
		MaxBlocks: w.config.MaxIPBlocks, MaxRetained: w.config.MaxRetained,
		Collect: w.config.CollectOrphans,
		Grace:   w.config.OrphanGrace,
		NodesKept: w.config.ManageMembership && w.config.NodeIPBlock == "" &&
			w.config.NodeAddress != config.NodeAddressNone,
	}), nil
}

// accountFailures says why the account cannot be read where orphans does not: without an announcer.
func (w *wiring) accountFailures() (loop, error) {
	if w.config.LoadBalancer.Enabled() {
		return nil, nil
	}
	failures := account.NewFailures(w.completed.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem), time.Now)
	return account.NewFailureWatch(failures, func(ctx context.Context) error {
		_, err := w.inventory.Recent(ctx, account.Unhurried)
		return err
	}), nil
}

// controlPlane is built without the option, too: it removes what it made while the option was on.
func (w *wiring) controlPlane() (loop, error) {
	certificates, err := apiserver.NewProbe(w.completed.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return apiserver.New(apiserver.Config{
		Kube:         w.completed.Client,
		Services:     w.core().Services(),
		Events:       w.completed.EventRecorder,
		Certificates: certificates,
		Port:         w.config.APIServerPort,
		Enabled:      w.config.ControlPlaneEndpoint,
	})
}

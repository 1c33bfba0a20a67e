package controllers

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/apiserver"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/orphans"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/publicnetwork"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/service"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/node/conditionmetrics"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/node/membership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/node/metadata"
)

func (c *Controllers) networkPublisher() (Controller, error) {
	return metadata.NewNetworkPublisher(metadata.NetworkConfig{
		Client:    c.config.Client,
		Nodes:     c.core().Nodes(),
		Servers:   c.inventory,
		Networks:  c.account,
		Events:    c.config.Events,
		Published: c.published,
		Changes:   c.changes,
		Now:       c.config.Now,
	})
}

func (c *Controllers) labeller() (Controller, error) {
	return metadata.NewLabeller(c.config.Client, c.core().Nodes(),
		c.config.Events, c.carriersOf)
}

func (c *Controllers) agentWatch() (Controller, error) {
	return metadata.NewAgentWatch(c.config.Client, c.core().Nodes(),
		c.config.Events), nil
}

func (c *Controllers) serverWatch() (Controller, error) {
	return metadata.NewServerWatch(c.config.Client, c.core().Nodes(), c.inventory, c.instances), nil
}

// conditionMetrics exports the conditions of Nodes and Services as metrics.
func (c *Controllers) conditionMetrics() (Controller, error) {
	return conditionmetrics.New(c.config.Metrics.Conditions, c.core().Nodes(), c.core().Services()), nil
}

func (c *Controllers) services() (Controller, error) {
	return service.New(service.Config{
		Kube:      c.config.Client,
		Services:  c.core().Services(),
		Nodes:     c.core().Nodes(),
		Balancer:  c.router(),
		Events:    c.config.Events,
		Metrics:   c.config.Metrics.services,
		Workers:   c.config.Workers,
		Carriers:  c.carriersOf,
		Announcer: c.options.LoadBalancer.Announcer,
		NetworkIn: func(location string) string { return c.places().In(location) },
	}), nil
}

// router has the Balancer of the public network of each Service serve it.
func (c *Controllers) router() *reconcile.Router {
	config := c.balancerConfig()
	return reconcile.NewRouter(config, newBalancers(config, c.further).of)
}

func (c *Controllers) balancerConfig() reconcile.Config {
	return reconcile.Config{
		Places:   c.places,
		Cloud:    c.config.API,
		Account:  c.account,
		Ledgers:  c.ledgers,
		Buyer:    c.buyer,
		Kube:     c.config.Client,
		Services: c.core().Services().Lister(),
		Nodes:    c.core().Nodes().Lister(),
		Events:   c.config.Events,
		Metrics:  c.config.Metrics.balancer,

		Network: c.options.LoadBalancer.Network,
		Now:     c.config.Now,
		Options: plan.Options{
			Announcer:          c.options.LoadBalancer.Announcer,
			Selector:           c.options.ServiceNodeSelector,
			DryRun:             c.options.DryRun,
			Location:           c.options.Location,
			LocationOfNetwork:  c.options.Location == "",
			LocationAnnotation: c.options.AnnotationIPLocation,
			Allocation:         c.options.Allocation,
			BlockSize:          c.options.BlockSize,
			MaxBlocks:          c.options.MaxIPBlocks,
			MaxRetained:        c.options.MaxRetained,

			MaxRetainedPerNamespace: c.options.MaxRetainedPerNamespace,
		},
	}
}

// publicNetwork runs without a public network, too: what an earlier configuration made is not served any more. In a dry
// run there is nothing to preview: the object changes nothing.
func (c *Controllers) publicNetwork() (Controller, error) {
	if c.options.DryRun {
		return nil, nil
	}
	return publicnetwork.New(publicnetwork.Config{
		Objects:  c.config.PublicNetworks,
		Networks: c.account,
		Nodes:    c.core().Nodes(),
		Events:   c.config.Events,
		Options:  c.options,
		Further:  c.further,
		Now:      c.config.Now,
	}), nil
}

// announcerObjects maintains the objects that the announcer needs.
func (c *Controllers) announcerObjects() (Controller, error) {
	announces := announcer.For(c.options.LoadBalancer.Announcer, announcer.Deps{
		Kube: c.config.Client, Events: c.config.Events,
	})
	return announces.Objects(), nil
}

// admission runs without an announcer, too: it switches off what an earlier configuration switched on.
func (c *Controllers) admission() (Controller, error) {
	bindings := c.config.Client.RbacV1().RoleBindings(metav1.NamespaceSystem)
	return announcer.PolicySwitch{Bindings: bindings, Announcing: c.options.LoadBalancer.Enabled()}, nil
}

func (c *Controllers) membership() (Controller, error) {
	return membership.New(membership.Config{
		Kube:      c.config.Client,
		Nodes:     c.core().Nodes(),
		Events:    c.config.Events,
		Servers:   c.inventory,
		Account:   c.account,
		Cloud:     c.config.API,
		Buyer:     c.buyer,
		Ledgers:   c.ledgers,
		Metrics:   c.config.Metrics.membership,
		Networks:  c.managed,
		Elsewhere: func(location string) bool { return c.places().In(location) != "" },
		Now:       c.config.Now,
	})
}

func (c *Controllers) orphans() (Controller, error) {
	return orphans.New(orphans.Config{
		Account:   c.account,
		Cloud:     c.config.API,
		Ledgers:   c.ledgers,
		Kube:      c.config.Client,
		Services:  c.core().Services(),
		Events:    c.config.Events,
		Metrics:   c.config.Metrics.orphans,
		Network:   c.options.LoadBalancer.Network,
		Networks:  func() []network.Named { return c.places().Named() },
		Now:       c.config.Now,
		Collect:   c.options.CollectOrphans,
		Grace:     c.options.OrphanGrace,
		NodesKept: c.nodesKept,
	}), nil
}

// controlPlane is built without the option, too: it removes what it made while the option was on.
func (c *Controllers) controlPlane() (Controller, error) {
	certificates, err := apiserver.NewProbe(c.config.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return apiserver.New(apiserver.Config{
		Kube:         c.config.Client,
		Services:     c.core().Services(),
		Events:       c.config.Events,
		Certificates: certificates,
		Port:         c.options.APIServerPort,
		Enabled:      c.options.ControlPlaneEndpoint,
	})
}

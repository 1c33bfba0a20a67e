// Package controllers builds the controllers of this project, and all that they share, of a client of the phoenixNAP
// API and one of the Kubernetes API: the same ones for the process and for tests that judge it from outside.
package controllers

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/cloud-provider/names"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/provider"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/config"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/publicnetwork"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/node/instances"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/node/metadata"
)

// Config is what the controllers are built of.
type Config struct {
	Options *config.Config
	API     *pnap.Client
	Client  kubernetes.Interface
	// IPBlocks are the objects of the cluster's IP blocks.
	IPBlocks allocation.IPBlocks
	// PublicNetworks are the objects of public networks.
	PublicNetworks publicnetwork.Objects
	// Informers are started by the caller, after New and the builders.
	Informers informers.SharedInformerFactory
	Events    record.EventRecorder
	Metrics   Metrics
	// Kubeconfig leads to the API server whose certificate has to name the address of the control plane.
	Kubeconfig *rest.Config
	// Workers is how many Services are worked on at a time.
	Workers int
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Controllers are what the controllers are built of, with what they share.
type Controllers struct {
	// Provider is the cloud provider of the framework's controllers.
	*provider.Cloud

	config    Config
	options   *config.Config
	inventory *instances.Inventory
	instances *instances.Instances
	changes   *metadata.NetworkChanges
	account   *account.Account
	further   *publicnetwork.Further
	ledgers   *allocation.Store
	buyer     *purchase.Buyer
}

// Controller runs until its context ends, and then returns nil.
type Controller interface {
	Run(ctx context.Context) error
}

// builder returns a controller for the leader to run, or nil when the configuration has no use for it.
type builder func(*Controllers) (Controller, error)

// New builds what the controllers share. It asks nothing of either API.
func New(c Config) *Controllers {
	changes := metadata.NewNetworkChanges()
	all := &Controllers{
		config: c, options: c.Options, changes: changes,
		inventory: instances.NewInventory(instances.InventoryConfig{Source: c.API, Metrics: c.Metrics.instances,
			Now: c.Now}),
		account: account.New(account.Config{Cloud: c.API, Metrics: c.Metrics.account, OnNetwork: changes.Notice,
			Now: c.Now}),
		further: &publicnetwork.Further{},
		buyer:   purchase.New(purchase.Config{Cloud: c.API, Now: c.Now}),
		ledgers: ledgers(c),
	}
	all.instances = instances.New(instances.Config{
		Inventory: all.inventory,
		Nodes:     all.core().Nodes().Lister(),
		Live:      c.Client.CoreV1(),
		Networks:  all.account,
		Network:   c.Options.LoadBalancer.Network,
		Events:    c.Events,
		Metrics:   c.Metrics.instances,
		Now:       c.Now,

		ProviderIDFormat: c.Options.ProviderIDFormat,
	})
	all.Cloud = provider.New(all.instances)
	return all
}

func ledgers(c Config) *allocation.Store {
	if c.Options.DryRun {
		return allocation.NewStore(allocation.Preview{IPBlocks: c.IPBlocks}, c.Now)
	}
	return allocation.NewStore(allocation.WithEvents(c.IPBlocks, c.Events), c.Now)
}

// ControlPlane is the name of the controller of the address of the control plane, the only one that needs a Kubeconfig.
const ControlPlane = "phoenixnap-control-plane"

// builders are those of all controllers by name. The one for Services has the name of the framework's own, whose place
// it takes.
var builders = map[string]builder{
	names.ServiceLBController:      whereBalancing((*Controllers).services),
	"phoenixnap-node-network":      (*Controllers).networkPublisher,
	"phoenixnap-vlan-ready":        whereBalancing((*Controllers).labeller),
	"phoenixnap-agent-watch":       whereBalancing((*Controllers).agentWatch),
	"phoenixnap-server-watch":      (*Controllers).serverWatch,
	"phoenixnap-heartbeat-key":     (*Controllers).announcerObjects,
	"phoenixnap-admission":         (*Controllers).admission,
	"phoenixnap-membership":        whereBalancing((*Controllers).membership),
	"phoenixnap-public-network":    (*Controllers).publicNetwork,
	"phoenixnap-orphans":           whereBalancing((*Controllers).orphans),
	"phoenixnap-condition-metrics": whereBalancing((*Controllers).conditionMetrics),
	ControlPlane:                   whereBalancing((*Controllers).controlPlane),
}

// whereBalancing builds only where Services of type LoadBalancer are served.
func whereBalancing(build builder) builder {
	return func(c *Controllers) (Controller, error) {
		if !c.options.LoadBalancer.Enabled() {
			return nil, nil
		}
		return build(c)
	}
}

// Names are the names of all controllers.
func Names() []string { return slices.Sorted(maps.Keys(builders)) }

// Build returns the controller of a name for the leader to run, or nil when the configuration has no use for it.
func (c *Controllers) Build(name string) (Controller, error) { return builders[name](c) }

func (c *Controllers) core() coreinformers.Interface { return c.config.Informers.Core().V1() }

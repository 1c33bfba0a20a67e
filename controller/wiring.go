package main

import (
	"errors"
	"fmt"
	"slices"

	appconfig "k8s.io/cloud-provider/app/config"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/provider"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/config"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/leader"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/orphans"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/service"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/node/conditionmetrics"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/node/instances"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/node/membership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/node/metadata"
)

// allMetrics are the metrics of all packages.
type allMetrics struct {
	account    *account.Metrics
	api        *pnap.Metrics
	balancer   *reconcile.Metrics
	conditions *conditionmetrics.Metrics
	instances  *instances.Metrics
	membership *membership.Metrics
	orphans    *orphans.Metrics
	services   *service.Metrics
}

// registerMetrics exposes them under /metrics, beside those of the framework.
func registerMetrics() (allMetrics, error) {
	a := allMetrics{
		account:    account.NewMetrics(),
		api:        pnap.NewMetrics(),
		balancer:   reconcile.NewMetrics(),
		conditions: conditionmetrics.NewMetrics(),
		instances:  instances.NewMetrics(),
		membership: membership.NewMetrics(),
		orphans:    orphans.NewMetrics(),
		services:   service.NewMetrics(),
	}
	err := legacyregistry.CustomRegister(a.conditions)
	for _, each := range slices.Concat(a.account.All(), a.api.All(), a.balancer.All(), a.instances.All(),
		a.membership.All(), a.orphans.All(), a.services.All()) {
		err = errors.Join(err, legacyregistry.Register(each))
	}
	if err != nil {
		return a, fmt.Errorf("register metrics: %w", err)
	}
	return a, nil
}

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
func connect(leadership *leader.Leadership, loaded *config.Config) (*connection, error) {
	metrics, err := registerMetrics()
	if err != nil {
		return nil, err
	}
	api, err := pnap.New(pnap.Config{
		BaseURL:     loaded.BaseURL,
		TokenURL:    loaded.TokenURL,
		Credentials: loaded.Credentials,
		UserAgent:   program + "/" + version.Get().GitVersion,

		DryRun:            loaded.DryRun,
		RequestsPerSecond: loaded.RequestsPerSecond,
		Wrap:              leadership.WrapCloud,
		Fence:             leadership.MayChange,
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

// wiring is the provider, which the framework passes to each controller, and all that the loops are built of.
type wiring struct {
	*connection
	*provider.Cloud
	completed *appconfig.CompletedConfig
	instances *instances.Instances
	ledgers   *allocation.Store
}

// newWiring guards the framework's clients, serves, and builds the provider, on every replica, before the election.
func newWiring(lifecycle *lifecycle, c *connection, completed *appconfig.CompletedConfig) *wiring {
	loaded := c.config
	err := lifecycle.guard(completed, loaded.DryRun)
	if err == nil {
		err = lifecycle.serve(completed, c.api.Health, loaded.MetricsPrivate)
	}
	if err != nil {
		klog.Fatal(err) //nolint:forbidigo // the framework has no other way out
	}
	klog.FromContext(lifecycle.ctx).Info("Starting", "version", version.Get().GitVersion, "config", loaded.String())
	completed.EventRecorder = boundedRecorder{completed.EventRecorder}
	for _, warning := range loaded.Warnings {
		klog.FromContext(lifecycle.ctx).Info("Warning about the configuration", "warning", warning)
	}
	provided := instances.New(instances.Config{
		Inventory: c.inventory,
		Nodes:     completed.SharedInformers.Core().V1().Nodes().Lister(),
		Live:      completed.Client.CoreV1(),
		Networks:  c.account,
		NetworkID: c.config.LoadBalancer.NetworkID,
		Events:    completed.EventRecorder,
		Metrics:   c.metrics.instances,

		ProviderIDFormat: loaded.ProviderIDFormat,
	})
	return &wiring{connection: c, Cloud: provider.New(provided), completed: completed, instances: provided,
		ledgers: allocation.NewStore(completed.Client)}
}

package main

import (
	"k8s.io/client-go/rest"
	appconfig "k8s.io/cloud-provider/app/config"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/config"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/controllers"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/leader"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/client"
)

// connection is what needs no Kubernetes client.
type connection struct {
	config  *config.Config
	metrics controllers.Metrics
	api     *pnap.Client
}

// connect asks nothing of the API yet.
func connect(leadership *leader.Leadership, loaded *config.Config) (*connection, error) {
	metrics := controllers.NewMetrics()
	if err := metrics.Register(); err != nil {
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
		Metrics:           metrics.API,
	})
	if err != nil {
		return nil, err
	}
	return &connection{config: loaded, metrics: metrics, api: api}, nil
}

// newControllers guards the framework's clients, serves, and builds the provider, on every replica, before the
// election.
func newControllers(lifecycle *lifecycle, c *connection, completed *appconfig.CompletedConfig,
) *controllers.Controllers {
	loaded := c.config
	err := lifecycle.guard(completed, loaded.DryRun)
	if err == nil {
		err = lifecycle.serve(completed, c.api.Health, loaded.MetricsPrivate)
	}
	access := rest.AddUserAgent(rest.CopyConfig(completed.Kubeconfig), program)
	var blocks *client.IPBlocks
	if err == nil {
		blocks, err = client.New(access)
	}
	var networks *client.PublicNetworks
	if err == nil {
		networks, err = client.NewPublicNetworks(access)
	}
	if err != nil {
		klog.Fatal(err) //nolint:forbidigo // the framework has no other way out
	}
	klog.FromContext(lifecycle.ctx).Info("Starting", "version", version.Get().GitVersion, "config", loaded.String())
	completed.EventRecorder = boundedRecorder{completed.EventRecorder}
	for _, warning := range loaded.Warnings {
		klog.FromContext(lifecycle.ctx).Info("Warning about the configuration", "warning", warning)
	}
	return controllers.New(controllers.Config{
		Options:        loaded,
		API:            c.api,
		Client:         completed.Client,
		IPBlocks:       blocks,
		PublicNetworks: networks,
		Informers:      completed.SharedInformers,
		Events:         completed.EventRecorder,
		Metrics:        c.metrics,
		Kubeconfig:     completed.Kubeconfig,
		Workers:        int(completed.ComponentConfig.ServiceController.ConcurrentServiceSyncs),
	})
}

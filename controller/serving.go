package main

import (
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
	appconfig "k8s.io/cloud-provider/app/config"
	"k8s.io/component-base/metrics/prometheus/slis"
	genericcontrollermanager "k8s.io/controller-manager/app"
	controllerhealthz "k8s.io/controller-manager/pkg/healthz"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/health"
)

// serve serves health, metrics and the rest in place of the framework, which does not serve a
// single check, so there would be no way to learn what is wrong with the phoenixNAP API. It ends with the process.
func (l *life) serve(completed *appconfig.CompletedConfig, details ...healthz.HealthChecker) error {
	serving := completed.SecureServing
	if serving == nil {
		return nil
	}
	completed.SecureServing = nil
	checks := details
	if election := completed.ComponentConfig.Generic.LeaderElection; election.LeaderElect {
		checks = append(checks, health.NewElection(election.LeaseDuration.Duration, l.handover.Renewed, time.Now))
	}
	handler := controllerhealthz.NewMutableHealthzHandler(checks...)
	base := genericcontrollermanager.NewBaseHandler(&completed.ComponentConfig.Generic.Debugging, handler)
	base.HandlePrefix("/healthz/", handler)
	slis.SLIMetricsWithReset{}.Install(base)
	_, _, err := serving.Serve(genericcontrollermanager.BuildHandlerChain(base, &completed.Authorization,
		&completed.Authentication), 0, l.ctx.Done())
	return err
}

package main

import (
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/server/healthz"
	appconfig "k8s.io/cloud-provider/app/config"
	"k8s.io/component-base/metrics/prometheus/slis"
	genericcontrollermanager "k8s.io/controller-manager/app"
	controllerhealthz "k8s.io/controller-manager/pkg/healthz"
)

// apiDetail is the name under which /healthz/… reports the health of the phoenixNAP API.
const apiDetail = "phoenixnap-api"

// newDetail reports the state of the phoenixNAP API: err returns nil while it works, and every client that may read the
// detail gets the text of the error. The process is healthy without it: a liveness probe on /healthz must not restart
// the process because another service is down. Only /healthz/<name> returns the detail.
func newDetail(err func() error) healthz.HealthChecker {
	return healthz.NamedCheck(apiDetail, func(request *http.Request) error {
		if !strings.HasSuffix(request.URL.Path, "/"+apiDetail) {
			return nil
		}
		return err()
	})
}

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
		checks = append(checks, healthz.NamedCheck("leaderElection", // the name that the framework gives it
			func(*http.Request) error { return l.handover.CheckRenewal(election.LeaseDuration.Duration) }))
	}
	handler := controllerhealthz.NewMutableHealthzHandler(checks...)
	base := genericcontrollermanager.NewBaseHandler(&completed.ComponentConfig.Generic.Debugging, handler)
	base.HandlePrefix("/healthz/", handler)
	slis.SLIMetricsWithReset{}.Install(base)
	_, _, err := serving.Serve(genericcontrollermanager.BuildHandlerChain(base, &completed.Authorization,
		&completed.Authentication), 0, l.ctx.Done())
	return err
}

package main

import (
	"fmt"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/balancer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/census"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/instances"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/membership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/orphans"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/services"
)

// allMetrics are the metrics of all packages.
type allMetrics struct {
	account    *account.Metrics
	api        *pnap.Metrics
	balancer   *balancer.Metrics
	census     *census.Metrics
	instances  *instances.Metrics
	membership *membership.Metrics
	orphans    *orphans.Metrics
	services   *services.Metrics
}

func newMetrics() allMetrics {
	return allMetrics{
		account:    account.NewMetrics(),
		api:        pnap.NewMetrics(),
		balancer:   balancer.NewMetrics(),
		census:     census.NewMetrics(),
		instances:  instances.NewMetrics(),
		membership: membership.NewMetrics(),
		orphans:    orphans.NewMetrics(),
		services:   services.NewMetrics(),
	}
}

// register exposes them under /metrics, beside those of the framework.
func (a allMetrics) register() error {
	for _, each := range []interface {
		Register(func(metrics.Registerable) error) error
	}{a.account, a.api, a.balancer, a.instances, a.membership, a.orphans, a.services} {
		if err := each.Register(legacyregistry.Register); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	if err := legacyregistry.CustomRegister(a.census); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}

package main

import (
	"fmt"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/orphans"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/service"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/node/conditionmetrics"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/node/instances"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/node/membership"
)

// allMetrics are the metrics of all packages.
type allMetrics struct {
	account    *account.Metrics
	api        *pnap.Metrics
	balancer   *reconcile.Metrics
	census     *conditionmetrics.Metrics
	instances  *instances.Metrics
	membership *membership.Metrics
	orphans    *orphans.Metrics
	services   *service.Metrics
}

func newMetrics() allMetrics {
	return allMetrics{
		account:    account.NewMetrics(),
		api:        pnap.NewMetrics(),
		balancer:   reconcile.NewMetrics(),
		census:     conditionmetrics.NewMetrics(),
		instances:  instances.NewMetrics(),
		membership: membership.NewMetrics(),
		orphans:    orphans.NewMetrics(),
		services:   service.NewMetrics(),
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

package controllers

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/orphans"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/service"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/node/conditionmetrics"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/node/instances"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/node/membership"
)

// Metrics are those of all controllers.
type Metrics struct {
	// API are those of the client of the phoenixNAP API.
	API *pnap.Metrics
	// Conditions are those of Nodes and Services.
	Conditions *conditionmetrics.Metrics

	account    *account.Metrics
	balancer   *reconcile.Metrics
	instances  *instances.Metrics
	membership *membership.Metrics
	orphans    *orphans.Metrics
	services   *service.Metrics
}

// NewMetrics returns metrics that are not exposed yet.
func NewMetrics() Metrics {
	return Metrics{
		API:        pnap.NewMetrics(),
		account:    account.NewMetrics(),
		balancer:   reconcile.NewMetrics(),
		Conditions: conditionmetrics.NewMetrics(),
		instances:  instances.NewMetrics(),
		membership: membership.NewMetrics(),
		orphans:    orphans.NewMetrics(),
		services:   service.NewMetrics(),
	}
}

// All are the metrics but those of conditions.
func (m Metrics) All() []metrics.Registerable {
	return slices.Concat(m.account.All(), m.API.All(), m.balancer.All(), m.instances.All(), m.membership.All(),
		m.orphans.All(), m.services.All())
}

// Register exposes them under /metrics, beside those of the framework.
func (m Metrics) Register() error {
	err := legacyregistry.CustomRegister(m.Conditions)
	for _, each := range m.All() {
		err = errors.Join(err, legacyregistry.Register(each))
	}
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}

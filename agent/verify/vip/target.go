package vip

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// Target is an address that should be announced.
type Target struct {
	// Address of the Service.
	Address netip.Addr
	// Service is namespace and name of the Service, joined by "/".
	Service string
}

// Targets returns the published IPv4 addresses of Services, sorted. A Service that is being deleted is left out: its
// address may still answer, or already be silent, and both are right.
func Targets(services []*corev1.Service) []Target {
	var targets []Target
	for _, s := range services {
		if s.Spec.Type != corev1.ServiceTypeLoadBalancer || s.DeletionTimestamp != nil {
			continue
		}
		addr, err := netip.ParseAddr(s.Annotations[contract.ServiceIPAddress])
		if err != nil || !addr.Is4() {
			continue
		}
		targets = append(targets, Target{Address: addr, Service: s.Namespace + "/" + s.Name})
	}
	slices.SortFunc(targets, func(a, b Target) int {
		if c := a.Address.Compare(b.Address); c != 0 {
			return c
		}
		return strings.Compare(a.Service, b.Service)
	})
	return targets
}

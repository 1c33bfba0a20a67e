package reconcile

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// silenceWaited is how long at most a release waits for the agents to stop answering for an address.
const silenceWaited = 10 * time.Second

// answering tells whether to wait for the agents to stop answering for the address of a Service that is
// leaving. kube-vip is not waited for: it withdraws an address only after the Service is gone.
// since is what is to be remembered as the time from which the Service is leaving; the zero Time where nothing is.
func (s observed) answering() (answers bool, since time.Time) {
	if s.options.announcer != contract.AnnouncerAgent {
		return false, time.Time{}
	}
	since = s.leavingSince
	if since.IsZero() {
		since = s.now
	}
	began := since
	if s.service.DeletionTimestamp != nil && s.service.DeletionTimestamp.Time.Before(began) {
		began = s.service.DeletionTimestamp.Time
	}
	if s.now.Sub(began) >= silenceWaited {
		return false, since
	}
	return slices.ContainsFunc(s.nodes, s.reportedBy), since
}

// reportedBy reports whether the agent of a Node reports that somebody answers for an address of the Service.
func (s observed) reportedBy(node *corev1.Node) bool {
	reported, err := contract.ParseReportedAddresses(node.Annotations[contract.NodeReportedAddresses])
	if err != nil {
		return false // an agent of another version; the others are heard
	}
	for address, entry := range reported {
		if (entry.State == contract.AddressAnswered || entry.State == contract.AddressDuplicate) && s.hadAddress(address) {
			return true
		}
	}
	return false
}

// hadAddress reports whether the address is, or was until a moment ago, that of the Service. A Service that became one
// of another type has neither annotation nor status any more.
func (s observed) hadAddress(address netip.Addr) bool {
	if lastAddress(s.service) == address {
		return true
	}
	for _, l := range s.ledgers {
		if held, holds := l.AddressOf(s.holder); holds && held == address {
			return true
		}
	}
	return slices.ContainsFunc(s.owned(), func(i plan.Sighting) bool { return i.Block.CIDR.Contains(address) })
}

// lastAddress is the address of the Service, in our annotation or in its status; the zero Addr when it
// has none.
func lastAddress(service *corev1.Service) netip.Addr {
	if address := claimed(service); address.IsValid() {
		return address
	}
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		if address, err := netip.ParseAddr(ingress.IP); err == nil {
			return address.Unmap()
		}
	}
	return netip.Addr{}
}

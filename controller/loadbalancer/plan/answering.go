package plan

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// silenceWaited is how long at most a release waits for the agents to stop answering for an address.
const silenceWaited = 10 * time.Second

// answering reports whether to wait for the agents to stop answering for the address of a Service that is
// leaving. kube-vip is not waited for: it withdraws an address only after the Service is gone.
// since must be remembered as the time from which the Service is leaving; the zero Time where nothing is.
func (s Observed) answering() (answers bool, since time.Time) {
	if s.Options.Announcer != contract.AnnouncerAgent {
		return false, time.Time{}
	}
	since = s.LeavingSince
	if since.IsZero() {
		since = s.Now
	}
	began := since
	if s.Service.DeletionTimestamp != nil && s.Service.DeletionTimestamp.Time.Before(began) {
		began = s.Service.DeletionTimestamp.Time
	}
	if s.Now.Sub(began) >= silenceWaited {
		return false, since
	}
	return slices.ContainsFunc(s.Nodes, s.reportedBy), since
}

// reportedBy reports whether the agent of a Node reports that a machine answers for an address of the Service.
func (s Observed) reportedBy(node *corev1.Node) bool {
	reported, err := contract.ParseReportedAddresses(node.Annotations[contract.NodeReportedAddresses])
	if err != nil {
		return false // an agent of another version; the others are heard
	}
	for address, entry := range reported {
		if (entry.State == contract.AddressAnswered || entry.State == contract.AddressDuplicate) &&
			s.hadAddress(address) {
			return true
		}
	}
	return false
}

// hadAddress reports whether the address is, or was until a moment ago, that of the Service. A Service that became one
// of another type has neither annotation nor status any more.
func (s Observed) hadAddress(address netip.Addr) bool {
	if lastAddress(s.Service) == address {
		return true
	}
	for _, l := range s.Ledgers {
		if held, holds := l.AddressOf(s.Holder); holds && held == address {
			return true
		}
	}
	return slices.ContainsFunc(s.Owned(), func(i Sighting) bool { return i.Block.CIDR.Contains(address) })
}

// lastAddress is the address of the Service, in our annotation or in its status; the zero Addr when it
// has none.
func lastAddress(service *corev1.Service) netip.Addr {
	if address := ClaimedAddress(service); address.IsValid() {
		return address
	}
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		if address, err := netip.ParseAddr(ingress.IP); err == nil {
			return address.Unmap()
		}
	}
	return netip.Addr{}
}

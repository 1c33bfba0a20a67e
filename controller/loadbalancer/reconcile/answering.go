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
func (b *Balancer) answering(s scene) bool {
	if b.config.Announcer != contract.AnnouncerAgent {
		return false
	}
	since := b.pace.leavingSince(s.service.UID, s.now)
	if s.service.DeletionTimestamp != nil && s.service.DeletionTimestamp.Time.Before(since) {
		since = s.service.DeletionTimestamp.Time
	}
	if s.now.Sub(since) >= silenceWaited {
		return false
	}
	return slices.ContainsFunc(s.nodes, s.hears)
}

// hears tells whether the agent of a Node reports that somebody answers for an address of the Service.
func (s scene) hears(node *corev1.Node) bool {
	reported, err := contract.ParseReportedAddresses(node.Annotations[contract.NodeReportedAddresses])
	if err != nil {
		return false // an agent of another version; the others are heard
	}
	for address, entry := range reported {
		if (entry.State == contract.AddressAnswered || entry.State == contract.AddressDuplicate) && s.had(address) {
			return true
		}
	}
	return false
}

// had tells whether the address is, or was until a moment ago, that of the Service. A Service that became one
// of another type bears neither annotation nor status any more.
func (s scene) had(address netip.Addr) bool {
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

// lastAddress is the address that the Service bears, in our annotation or in its status; the zero Addr when it
// bears none.
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

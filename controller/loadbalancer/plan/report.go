package plan

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/announcer/reports"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// answering reports whether to wait until no machine answers for the address of a Service that is leaving.
// since must be remembered as the time from which the Service is leaving; the zero Time where nothing is.
func (obs Observed) answering() (answers bool, since time.Time) {
	if obs.Options.ReleaseWait == 0 {
		return false, time.Time{}
	}
	since = obs.LeavingSince
	if since.IsZero() {
		since = obs.Now
	}
	began := since
	if obs.Service.DeletionTimestamp != nil && obs.Service.DeletionTimestamp.Time.Before(began) {
		began = obs.Service.DeletionTimestamp.Time
	}
	if obs.Now.Sub(began) >= obs.Options.ReleaseWait {
		return false, since
	}
	return slices.ContainsFunc(obs.Nodes, obs.reportedBy), since
}

// reportedBy reports whether the agent of a Node reports that a machine answers for an address of the Service.
func (obs Observed) reportedBy(node *corev1.Node) bool {
	// The report of an agent of another version, which cannot be read, says nothing of any address.
	reported, _ := contract.ParseReportedAddresses(node.Annotations[contract.NodeReportedAddresses])
	for address, entry := range reported {
		if (entry.State == contract.AddressAnswered || entry.State == contract.AddressDuplicate) &&
			obs.hadAddress(address) {
			return true
		}
	}
	return false
}

// hadAddress reports whether the address is, or was until a moment ago, that of the Service. A Service that became one
// of another type has neither annotation nor status any more.
func (obs Observed) hadAddress(address netip.Addr) bool {
	switch {
	case obs.othersHave(address): // and answer for it
		return false
	case lastAddress(obs.Service) == address:
		return true
	}
	for _, l := range obs.Ledgers {
		if held, holds := l.AddressOf(obs.Holder); holds && held == address {
			return true
		}
	}
	return obs.ownHolds(address)
}

// lastAddress is the address of the Service, in our annotation or in its status; the zero Addr when it has none.
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

// WithdrawalAllowed is how long kube-vip has to take back an address whose Service is gone, before that is reported.
const WithdrawalAllowed = 45 * time.Second

// StaleAddress is what is remembered of an address that answers though no Service has it.
type StaleAddress struct {
	// Since is when it was first seen to answer.
	Since time.Time
	// Reported is true once that was reported.
	Reported bool
}

// DueStale returns those of the addresses that answer at the moment which have done so for long enough and were not
// reported yet, and what to remember of all of them. remembered is what it returned the last time.
func DueStale(
	remembered map[netip.Addr]StaleAddress, answering []netip.Addr, now time.Time,
) (due []netip.Addr, next map[netip.Addr]StaleAddress) {
	next = make(map[netip.Addr]StaleAddress, len(answering))
	for _, a := range answering {
		seen, known := remembered[a]
		if !known {
			seen.Since = now
		}
		if !seen.Reported && now.Sub(seen.Since) >= WithdrawalAllowed {
			seen.Reported = true
			due = append(due, a)
		}
		next[a] = seen
	}
	return due, next
}

// AnsweringUnassigned are the addresses of blocks of the cluster that answer though no Service has them, in their
// order. named reports whether a Service has an announcer answer for an address.
func (obs Observed) AnsweringUnassigned(named func(*corev1.Service, netip.Addr) bool) []netip.Addr {
	found := map[netip.Addr]bool{}
	for _, node := range obs.Nodes {
		if !reports.KnowsNetwork(node) {
			continue
		}
		// A report that cannot be read says nothing of any address.
		reported, _ := contract.ParseReportedAddresses(node.Annotations[contract.NodeReportedAddresses])
		for address, entry := range reported {
			if entry.State != contract.AddressSilent && obs.ownsAddress(address) && !obs.assigned(address, named) {
				found[address] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(found), netip.Addr.Compare)
}

// ownsAddress reports whether the address lies in a block of the cluster, or in one of which a ledger is kept.
func (obs Observed) ownsAddress(address netip.Addr) bool {
	return slices.ContainsFunc(obs.Blocks, func(b network.Block) bool {
		return network.OfCluster(b, obs.Owner.Cluster) && b.CIDR.IsValid() && b.CIDR.Contains(address)
	}) || slices.ContainsFunc(obs.Ledgers, func(l ipblock.Ledger) bool {
		return l.CIDR.IsValid() && l.CIDR.Contains(address)
	})
}

// assigned reports whether a Service has the address still, in whatever way: one that is leaving may answer for it.
func (obs Observed) assigned(address netip.Addr, named func(*corev1.Service, netip.Addr) bool) bool {
	return slices.ContainsFunc(obs.Services, func(service *corev1.Service) bool {
		return lastAddress(service) == address || named(service, address)
	})
}

// LastOwner is the Service that had the address last and lives on; nil when it is gone.
func (obs Observed) LastOwner(address netip.Addr) *corev1.Service {
	for _, l := range obs.Ledgers {
		released, known := l.Quarantined[address]
		lives := func(service *corev1.Service) bool { return string(service.UID) == released.Holder.UID }
		if service, found := find(obs.Services, lives); known && found {
			return service
		}
	}
	return nil
}

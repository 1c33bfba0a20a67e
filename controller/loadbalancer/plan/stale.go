package plan

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

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
// order.
func (s Observed) AnsweringUnassigned() []netip.Addr {
	found := map[netip.Addr]bool{}
	for _, node := range s.Nodes {
		if !ReportsNetwork(node) {
			continue
		}
		// A report that cannot be read says nothing of any address.
		reported, _ := contract.ParseReportedAddresses(node.Annotations[contract.NodeReportedAddresses])
		for address, entry := range reported {
			if entry.State != contract.AddressSilent && s.ownsAddress(address) && !s.assigned(address) {
				found[address] = true
			}
		}
	}
	addresses := make([]netip.Addr, 0, len(found))
	for a := range found {
		addresses = append(addresses, a)
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	return addresses
}

// ownsAddress reports whether the address lies in a block of the cluster, or in one of which a ledger is kept.
func (s Observed) ownsAddress(address netip.Addr) bool {
	return slices.ContainsFunc(s.Blocks, func(b Block) bool {
		return OfCluster(b, s.Owner.Cluster) && b.CIDR.IsValid() && b.CIDR.Contains(address)
	}) || slices.ContainsFunc(s.Ledgers, func(l Ledger) bool { return l.CIDR.IsValid() && l.CIDR.Contains(address) })
}

// assigned reports whether a Service has the address still, in whatever way: one that is leaving may answer for it.
func (s Observed) assigned(address netip.Addr) bool {
	return slices.ContainsFunc(s.Services, func(service *corev1.Service) bool {
		if lastAddress(service) == address {
			return true
		}
		return slices.Contains(strings.Split(service.Annotations[contract.KubeVIPAddresses], ","), address.String())
	})
}

// LastOwner is the Service that had the address last and lives on; nil when it is gone.
func (s Observed) LastOwner(address netip.Addr) *corev1.Service {
	for _, l := range s.Ledgers {
		rest, resting := l.Resting[address]
		if !resting {
			continue
		}
		for _, service := range s.Services {
			if string(service.UID) == rest.Holder.UID {
				return service
			}
		}
	}
	return nil
}

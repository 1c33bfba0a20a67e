package plan

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// AddressReport is what the agent of one Node reports of an address.
type AddressReport struct {
	contract.ReportedAddress
	// Node is the name of the Node.
	Node string
}

// ReportsOf gathers what agents report of an address. A Node whose agent is silent, or does not know the state of its
// own network, is no witness: what its annotation says may be long past.
func ReportsOf(nodes []*corev1.Node, address netip.Addr) []AddressReport {
	var all []AddressReport
	text := address.String()
	for _, node := range nodes {
		raw := node.Annotations[contract.NodeReportedAddresses]
		if !strings.Contains(raw, text) || !ReportsNetwork(node) {
			continue // most Nodes report a few addresses or none; they need not be decoded
		}
		reported, err := contract.ParseReportedAddresses(raw)
		if err != nil {
			continue // an agent of another version; the others are heard
		}
		if entry, watched := reported[address]; watched {
			all = append(all, AddressReport{ReportedAddress: entry, Node: node.Name})
		}
	}
	return all
}

// ReportsNetwork reports whether the agent of a Node runs and knows the state of its own network.
func ReportsNetwork(node *corev1.Node) bool {
	condition := contract.FindNodeCondition(node, contract.ConditionVLANReady)
	return condition == nil || condition.Status != corev1.ConditionUnknown
}

// Reporting are the names of those who report a state.
func Reporting(all []AddressReport, state contract.AddressState) []string {
	var said []string
	for _, r := range all {
		if r.State == state {
			said = append(said, r.Node)
		}
	}
	return said
}

// LatestAnswer is the report of an answer that is the newest: a Node that was cut off may not have taken its own back.
// Of several the one by the holder counts, then the first by name; the zero
// AddressReport without an answer.
func LatestAnswer(all []AddressReport) AddressReport {
	var latest AddressReport
	for _, r := range all {
		if r.State != contract.AddressAnswered {
			continue
		}
		newer := r.Since.Compare(latest.Since)
		if latest.Node == "" || r.Held && !latest.Held ||
			r.Held == latest.Held && (newer > 0 || newer == 0 && r.Node < latest.Node) {
			latest = r
		}
	}
	return latest
}

// Silent reports whether it is reported that no machine answers for the address, and no agent reports otherwise.
func Silent(nodes []*corev1.Node, address netip.Addr) bool {
	all := ReportsOf(nodes, address)
	return len(all) > 0 && len(Reporting(all, contract.AddressSilent)) == len(all)
}

// Machine is the Node that answers by this report; empty when it is not known.
func (r AddressReport) Machine(nodes []*corev1.Node) string {
	if r.Held {
		return r.Node
	}
	return NodeWithMAC(nodes, r.MAC)
}

// NodeWithMAC names the Node to which a hardware address belongs, as the agents report; empty when it is none's.
func NodeWithMAC(nodes []*corev1.Node, mac string) string {
	if mac == "" {
		return ""
	}
	for _, node := range nodes {
		raw := node.Annotations[contract.NodeReportedIdentity]
		var id contract.Identity
		if strings.Contains(raw, mac) && json.Unmarshal([]byte(raw), &id) == nil && slices.Contains(id.MACs, mac) {
			return node.Name
		}
	}
	return ""
}

// silenceWaited is how long at most a release waits for the agents to stop answering for an address.
const silenceWaited = 10 * time.Second

// answering reports whether to wait for the agents to stop answering for the address of a Service that is
// leaving. kube-vip is not waited for: it withdraws an address only after the Service is gone.
// since must be remembered as the time from which the Service is leaving; the zero Time where nothing is.
func (obs Observed) answering() (answers bool, since time.Time) {
	if obs.Options.Announcer != contract.AnnouncerAgent {
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
	if obs.Now.Sub(began) >= silenceWaited {
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
	if lastAddress(obs.Service) == address {
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
// order.
func (obs Observed) AnsweringUnassigned() []netip.Addr {
	found := map[netip.Addr]bool{}
	for _, node := range obs.Nodes {
		if !ReportsNetwork(node) {
			continue
		}
		// A report that cannot be read says nothing of any address.
		reported, _ := contract.ParseReportedAddresses(node.Annotations[contract.NodeReportedAddresses])
		for address, entry := range reported {
			if entry.State != contract.AddressSilent && obs.ownsAddress(address) && !obs.assigned(address) {
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
	}) || slices.ContainsFunc(obs.Ledgers, func(l Ledger) bool { return l.CIDR.IsValid() && l.CIDR.Contains(address) })
}

// assigned reports whether a Service has the address still, in whatever way: one that is leaving may answer for it.
func (obs Observed) assigned(address netip.Addr) bool {
	return slices.ContainsFunc(obs.Services, func(service *corev1.Service) bool {
		if lastAddress(service) == address {
			return true
		}
		return slices.Contains(strings.Split(service.Annotations[contract.KubeVIPAddresses], ","), address.String())
	})
}

// LastOwner is the Service that had the address last and lives on; nil when it is gone.
func (obs Observed) LastOwner(address netip.Addr) *corev1.Service {
	for _, l := range obs.Ledgers {
		rest, resting := l.Resting[address]
		lives := func(service *corev1.Service) bool { return string(service.UID) == rest.Holder.UID }
		if service, found := find(obs.Services, lives); resting && found {
			return service
		}
	}
	return nil
}

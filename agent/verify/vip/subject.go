package vip

import (
	"cmp"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Target is an address that should be announced.
type Target struct {
	Address netip.Addr
	// Service is namespace and name of the Service, joined by "/".
	Service string
}

// Targets returns the published IPv4 addresses of Services, sorted, without those of Services that are being deleted.
func Targets(services []*corev1.Service) []Target {
	var targets []Target
	for _, s := range services {
		addr, err := netip.ParseAddr(s.Annotations[contract.ServiceIPAddress])
		if s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.DeletionTimestamp == nil && err == nil && addr.Is4() {
			targets = append(targets, Target{Address: addr, Service: s.Namespace + "/" + s.Name})
		}
	}
	slices.SortFunc(targets, func(a, b Target) int {
		return cmp.Or(a.Address.Compare(b.Address), strings.Compare(a.Service, b.Service))
	})
	return targets
}

// phase is where the address of a Service stands.
type phase int

const (
	// published: a Service has the address and intends to keep it.
	published phase = iota
	// leaving: its Service is being deleted or changed its type. It may answer or be silent; both are right.
	leaving
	// gone: no Service has it any more.
	gone
)

const (
	// remembered is how long an address is watched after its Service is gone: longer than the controller's quarantine.
	remembered = 15 * time.Minute
	// withdrawalTime is how long kube-vip has to remove an address when its Service is gone.
	withdrawalTime = 15 * time.Second
	// spread is the time within which nodes that are not involved report an address, so that most find it reported.
	spread = 10 * time.Second
)

// subject is an address that is watched.
type subject struct {
	Target
	phase phase
	// service has the address; nil when it is gone.
	service *corev1.Service
}

// subjects are the addresses to be watched, in their order: those of Services, those of which this node still reports
// something, and those that its kernel carries.
func subjects(services []*corev1.Service, view View, reported contract.ReportedAddresses) []subject {
	known := map[netip.Addr]subject{}
	byName := map[string]*corev1.Service{}
	for _, s := range services {
		byName[s.Namespace+"/"+s.Name] = s
		for _, a := range addressesOf(s) {
			known[a] = subject{Target: Target{Address: a, Service: s.Namespace + "/" + s.Name}, phase: leaving,
				service: s}
		}
	}
	// In reverse, so that the first of several Services with one address wins.
	for _, t := range slices.Backward(Targets(services)) {
		known[t.Address] = subject{Target: t, phase: published, service: byName[t.Service]}
	}
	for _, a := range slices.AppendSeq(staleAddresses(view), maps.Keys(reported)) {
		if _, found := known[a]; !found && a.Is4() {
			known[a] = subject{Target: Target{Address: a}, phase: gone}
		}
	}
	return slices.SortedFunc(maps.Values(known), func(a, b subject) int { return a.Address.Compare(b.Address) })
}

// addressesOf are all IPv4 addresses of a Service, for whatever reason.
func addressesOf(s *corev1.Service) []netip.Addr {
	texts := append([]string{s.Annotations[contract.ServiceIPAddress]},
		strings.Split(s.Annotations[contract.KubeVIPAddresses], ",")...)
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		texts = append(texts, ingress.IP)
	}
	var all []netip.Addr
	for _, text := range texts {
		if a, err := netip.ParseAddr(strings.TrimSpace(text)); err == nil && a.Is4() {
			all = append(all, a)
		}
	}
	return all
}

// staleAddresses are addresses that the kernel carries as announcers add them, a single address (/32) of the network's
// blocks, and that are not the node's own.
func staleAddresses(view View) []netip.Addr {
	network := view.Expected.Network
	var all []netip.Addr
	for _, a := range view.Snapshot.Addresses {
		addr := a.Prefix.Addr()
		if !addr.Is4() || !a.Prefix.IsSingleIP() || slices.Contains(network.IPs, addr) ||
			slices.Contains(view.Expected.NodeAddresses, addr) {
			continue
		}
		if l := view.Snapshot.LinkIndexed(a.LinkIndex); l == nil || l.Name == ipvsInterface {
			continue
		}
		if slices.ContainsFunc(network.Blocks, func(b contract.NetworkBlock) bool { return b.CIDR.Contains(addr) }) {
			all = append(all, addr)
		}
	}
	return all
}

// named reports whether the announcer names a node on the Service.
func (s subject) named(by announcer.Announcer, node string) bool {
	if s.service == nil || node == "" {
		return false
	}
	named, _ := by.Named(s.service)
	return strings.EqualFold(named, node)
}

// reported reports whether the Service's condition already shows what this node would report.
func (s subject) reported(state contract.AddressState) bool {
	if s.service == nil {
		return false
	}
	condition := meta.FindStatusCondition(s.service.Status.Conditions, contract.ServiceConditionAnnounced)
	switch {
	case condition == nil:
		return false
	case state == contract.AddressAnswered:
		return condition.Status == metav1.ConditionTrue || condition.Reason == contract.AnnouncedForeign
	case state == contract.AddressSilent:
		return condition.Reason == string(state) || condition.Reason == contract.AnnouncedHolderSilent ||
			condition.Reason == contract.AnnouncedNoEndpoints
	case state == contract.AddressDuplicate:
		return condition.Reason == string(state) || condition.Reason == contract.AnnouncedForeign
	default:
		return false
	}
}

// WithoutEndpoints reports whether the controller found no endpoints of a Service. The agents may not read them.
func WithoutEndpoints(service *corev1.Service) bool {
	if service == nil {
		return false
	}
	condition := meta.FindStatusCondition(service.Status.Conditions, contract.ServiceConditionAnnounced)
	return condition != nil && condition.Reason == contract.AnnouncedNoEndpoints
}

// turn is how long a node waits before it reports an address that does not involve it: another time for each pair.
func turn(node string, address netip.Addr) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(node + "/" + address.String())) // never fails
	return spread * time.Duration(h.Sum32()%1000) / 1000
}

// StaleAddresses are the addresses that this node's kernel carries as announcers add them and that no Service has.
func StaleAddresses(services []*corev1.Service, view View) []Target {
	var found []Target
	for _, s := range subjects(services, view, nil) {
		if s.phase == gone {
			found = append(found, s.Target)
		}
	}
	return found
}

package reconcile

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// withdrawalAllowed is how long kube-vip has to take back an address whose Service is gone, before that is told.
const withdrawalAllowed = 45 * time.Second

// sighted is what is remembered of an address that answers though no Service has it.
type sighted struct {
	since time.Time
	told  bool
}

// staleness keeps what is remembered of addresses that answer though no Service has them.
type staleness struct {
	mu   sync.Mutex
	seen map[netip.Addr]sighted
}

func newStaleness() *staleness { return &staleness{seen: map[netip.Addr]sighted{}} }

// due returns the addresses that are to be told of now and records that they are.
func (s *staleness) due(answering []netip.Addr, now time.Time) []netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	due, next := dueStale(s.seen, answering, now)
	s.seen = next
	return due
}

// dueStale returns those of the addresses that answer at the moment which have done so for long enough and were not told
// of yet, and what is to be remembered of all of them. remembered is what it returned the last time.
func dueStale(
	remembered map[netip.Addr]sighted, answering []netip.Addr, now time.Time,
) (due []netip.Addr, next map[netip.Addr]sighted) {
	next = make(map[netip.Addr]sighted, len(answering))
	for _, a := range answering {
		seen, known := remembered[a]
		if !known {
			seen.since = now
		}
		if !seen.told && now.Sub(seen.since) >= withdrawalAllowed {
			seen.told = true
			due = append(due, a)
		}
		next[a] = seen
	}
	return due, next
}

// tellStale tells of addresses that answer though they were given back: an announcer was killed, or somebody took one by
// hand. They rest in their ledgers meanwhile. It is told on the Service that had the address last, or, when that is gone,
// on the Nodes that answer.
func (b *Balancer) tellStale(ctx context.Context, s observed) error {
	nodes, err := b.config.Nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	s.nodes = nodes
	for _, address := range b.stale.due(s.answeringUnassigned(), s.now) {
		all := reportsOf(nodes, address)
		where := names(answerers(nodes, all))
		klog.FromContext(ctx).Info("An address answers that no Service has", "address", address, "nodes", where)
		text := "Address %s was given back, but still answers (%s); it rests until it is silent. Delete it there: ip address delete %s/32 dev <interface>"
		if service := s.lastOwner(address); service != nil {
			b.config.Events.Eventf(service, corev1.EventTypeWarning, eventStale, text, address, where, address)
			continue
		}
		for _, name := range answerers(nodes, all) {
			reference := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name}
			if i := slices.IndexFunc(nodes, func(n *corev1.Node) bool { return n.Name == name }); i >= 0 {
				reference.UID = nodes[i].UID
			}
			b.config.Events.Eventf(reference, corev1.EventTypeWarning, eventStale, text, address, where, address)
		}
	}
	return nil
}

// answeringUnassigned are the addresses of blocks of the cluster that answer though no Service has them, in their order.
func (s observed) answeringUnassigned() []netip.Addr {
	found := map[netip.Addr]bool{}
	for _, node := range s.nodes {
		if !reportsNetwork(node) {
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

// ownsAddress tells whether the address lies in a block of the cluster, or in one of which a ledger is kept.
func (s observed) ownsAddress(address netip.Addr) bool {
	return slices.ContainsFunc(s.blocks, func(b plan.Block) bool {
		return plan.OfCluster(b, s.owner.Cluster) && b.CIDR.IsValid() && b.CIDR.Contains(address)
	}) || slices.ContainsFunc(s.ledgers, func(l plan.Ledger) bool { return l.CIDR.IsValid() && l.CIDR.Contains(address) })
}

// assigned reports whether a Service has the address still, in whatever way: one that is leaving may answer for it.
func (s observed) assigned(address netip.Addr) bool {
	return slices.ContainsFunc(s.services, func(service *corev1.Service) bool {
		if lastAddress(service) == address {
			return true
		}
		return slices.Contains(strings.Split(service.Annotations[contract.KubeVIPAddresses], ","), address.String())
	})
}

// lastOwner is the Service that had the address last and lives on; nil when it is gone.
func (s observed) lastOwner(address netip.Addr) *corev1.Service {
	for _, l := range s.ledgers {
		rest, resting := l.Resting[address]
		if !resting {
			continue
		}
		for _, service := range s.services {
			if string(service.UID) == rest.Holder.UID {
				return service
			}
		}
	}
	return nil
}

// answerers are the Nodes that answer for an address: those that hold it, else those to which the hardware address belongs
// that answers, else those that hear it.
func answerers(nodes []*corev1.Node, all []addressReport) []string {
	var held, owners, hearing []string
	for _, h := range all {
		if h.State == contract.AddressSilent {
			continue
		}
		hearing = append(hearing, h.node)
		if h.Held {
			held = append(held, h.node)
		}
		if name := owner(nodes, h.MAC); name != "" {
			owners = append(owners, name)
		}
	}
	for _, found := range [][]string{held, owners, hearing} {
		if len(found) > 0 {
			slices.Sort(found)
			return slices.Compact(found)
		}
	}
	return nil
}

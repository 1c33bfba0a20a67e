package reconcile

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// staleness keeps what is remembered of addresses that answer though no Service has them.
type staleness struct {
	mu   sync.Mutex
	seen map[netip.Addr]plan.StaleAddress
}

func newStaleness() *staleness { return &staleness{seen: map[netip.Addr]plan.StaleAddress{}} }

// due returns the addresses that must be reported now and records them as reported.
func (s *staleness) due(answering []netip.Addr, now time.Time) []netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	due, next := plan.DueStale(s.seen, answering, now)
	s.seen = next
	return due
}

// tellStale reports addresses that answer though they were given back: an announcer was killed, or someone took one by
// hand. They rest in their ledgers meanwhile. The event is on the Service that had the address last, or, when that is
// gone, on the Nodes that answer.
func (b *Balancer) tellStale(ctx context.Context, s plan.Observed) error {
	nodes, err := b.config.Nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	s.Nodes = nodes
	for _, address := range b.stale.due(s.AnsweringUnassigned(), s.Now) {
		all := plan.ReportsOf(nodes, address)
		where := names(answerers(nodes, all))
		klog.FromContext(ctx).Info("An address answers that no Service has", "address", address, "nodes", where)
		text := "Address %s was given back, but still answers (%s); it rests until it is silent. Delete it there: ip " +
			"address delete %s/32 dev <interface>"
		if service := s.LastOwner(address); service != nil {
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

// answerers are the Nodes that answer for an address: those that hold it, else those to which the hardware address
// belongs that answers, else those that hear it.
func answerers(nodes []*corev1.Node, all []plan.AddressReport) []string {
	var held, owners, hearing []string
	for _, h := range all {
		if h.State == contract.AddressSilent {
			continue
		}
		hearing = append(hearing, h.Node)
		if h.Held {
			held = append(held, h.Node)
		}
		if name := plan.NodeWithMAC(nodes, h.MAC); name != "" {
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

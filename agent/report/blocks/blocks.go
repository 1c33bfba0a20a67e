// Package blocks keeps what IPBlocks say: which blocks the public network has, and which Service has which address.
package blocks

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Answer says whether an address is allocated to a Service.
type Answer int

// The answers.
const (
	// Unknown: the allocations of the block are not known, because the definition of IPBlock is missing, or they were
	// lost and not made again yet.
	Unknown Answer = iota
	// Allocated: the address is allocated to the Service.
	Allocated
	// NotAllocated: it is not.
	NotAllocated
)

// Known is what IPBlocks say, or said last: absence is unknown. The zero Known knows nothing. It is not safe for
// concurrent use.
type Known struct{ records map[string]record }

// record is what one IPBlock says.
type record struct {
	block contract.NetworkBlock
	// network is the name of the public network to which the block is attached.
	network string
	// assigned reports whether the block is assigned to the public network, and stays so.
	// unsaid is set where the object does not say so.
	assigned, unsaid bool
	// allocations are the Services that have each address; nil while they are not known.
	allocations map[netip.Addr][]v1beta1.ServiceReference
	// gone reports that the object is gone although addresses of the block were in use.
	gone bool
}

// inUse reports whether someone has an address of the block. Before a block is given up, its object says that no one
// has: an object that went while it said something else went with its definition, or by force.
func (r record) inUse() bool { return r.assigned && len(r.allocations) > 0 }

// See takes a version of an IPBlock. One that says nothing of allocations changes nothing while addresses of the block
// are in use: it was restored without its status, or was created again. If one does not say whether its block is
// assigned, because its allocations were just made again, what was known of that counts.
func (k *Known) See(object *v1beta1.IPBlock) {
	next := recordOf(object)
	if next.allocations == nil && k.records[object.Name].inUse() {
		return
	}
	if next.unsaid {
		next.assigned = k.assigned(next.block.CIDR)
	}
	if k.records == nil {
		k.records = map[string]record{}
	}
	k.records[object.Name] = next
	k.forget()
}

// Lose takes the deletion of an IPBlock.
func (k *Known) Lose(name string) {
	last := k.records[name]
	delete(k.records, name)
	if last.inUse() {
		last.gone = true
		k.records[name] = last
		k.forget()
	}
}

// forget drops what is remembered of blocks about which another object speaks.
func (k *Known) forget() {
	maps.DeleteFunc(k.records, func(_ string, r record) bool { return r.gone && k.speaks(r.block.CIDR) })
}

func (k *Known) speaks(cidr netip.Prefix) bool {
	return k.has(func(r record) bool { return !r.gone && r.allocations != nil && r.block.CIDR.Overlaps(cidr) })
}

func (k *Known) assigned(cidr netip.Prefix) bool {
	return k.has(func(r record) bool { return r.assigned && r.block.CIDR == cidr })
}

func (k *Known) has(holds func(record) bool) bool {
	for _, r := range k.records {
		if holds(r) {
			return true
		}
	}
	return false
}

// KnowsAllocations reports whether any object says who has which address.
func (k *Known) KnowsAllocations() bool {
	return k.has(func(r record) bool { return r.allocations != nil })
}

// Network returns the blocks that are assigned to the public network of a name, sorted. While no object says who has
// which address, those that published Services name count as blocks of the default one, too.
func (k *Known) Network(name string, services []*corev1.Service) []contract.NetworkBlock {
	network := k.Networks()[name]
	if !k.KnowsAllocations() && name == v1beta1.DefaultNetwork {
		network = append(network, named(services)...)
	}
	return Merged(network)
}

// Networks returns the blocks that IPBlocks say are assigned, by the name of their public network, sorted.
func (k *Known) Networks() map[string][]contract.NetworkBlock {
	networks := map[string][]contract.NetworkBlock{}
	for _, r := range k.records {
		if r.assigned {
			networks[r.network] = Merged(networks[r.network], []contract.NetworkBlock{r.block})
		}
	}
	return networks
}

// Merged returns blocks sorted, each once.
func Merged(all ...[]contract.NetworkBlock) []contract.NetworkBlock {
	merged := slices.Concat(all...)
	slices.SortFunc(merged, func(a, b contract.NetworkBlock) int { return a.CIDR.Compare(b.CIDR) })
	return slices.CompactFunc(merged, func(a, b contract.NetworkBlock) bool { return a.CIDR == b.CIDR })
}

// Allocated reports whether an address is allocated to a Service.
func (k *Known) Allocated(service *corev1.Service, address netip.Addr) Answer {
	answer := NotAllocated
	if !k.KnowsAllocations() {
		answer = Unknown
	}
	for _, r := range k.records {
		switch {
		case !r.block.CIDR.Contains(address):
		case r.allocations == nil:
			answer = Unknown
		case r.assigned && slices.ContainsFunc(r.allocations[address], isOf(service)):
			return Allocated
		default:
		}
	}
	return answer
}

// isOf returns whether a reference is to a Service. One without a UID is to any Service of the name.
func isOf(service *corev1.Service) func(v1beta1.ServiceReference) bool {
	return func(r v1beta1.ServiceReference) bool {
		return r.Namespace == service.Namespace && r.Name == service.Name && (r.UID == "" || r.UID == service.UID)
	}
}

// recordOf reads an object. What cannot be read is not known.
func recordOf(object *v1beta1.IPBlock) (r record) {
	allocations, readable := allocationsOf(object.Status.Allocations)
	block, ok := parse(object.Status.CIDR, object.Status.Gateway)
	if !ok {
		return record{}
	}
	r.block = block
	r.network = cmp.Or(object.Spec.Attachment.Name, v1beta1.DefaultNetwork)
	if readable {
		r.allocations = allocations
	}
	conditions := object.Status.Conditions
	switch assigned := meta.FindStatusCondition(conditions, v1beta1.ConditionAssigned); {
	case meta.IsStatusConditionFalse(conditions, v1beta1.ConditionAllocatable):
	case assigned == nil:
		r.unsaid = true
	default:
		dedicated := object.Spec.Purpose == v1beta1.PurposeService && len(allocations) > 0
		r.assigned = assigned.Status == metav1.ConditionTrue || dedicated && !isUnassigned(*assigned)
	}
	return r
}

// isUnassigned reports whether a block of one Service, whose address was published once the block was assigned, is not
// assigned any more. Else the condition says what the Service waits for.
func isUnassigned(c metav1.Condition) bool {
	return c.Status == metav1.ConditionFalse && slices.Contains(v1beta1.UnassignedReasons(), c.Reason)
}

// allocationsOf are the Services that have each address; readable is false when an address is none, or nothing is said.
func allocationsOf(status *[]v1beta1.Allocation) (all map[netip.Addr][]v1beta1.ServiceReference, readable bool) {
	if status == nil {
		return nil, false
	}
	all = map[netip.Addr][]v1beta1.ServiceReference{}
	for _, a := range *status {
		address, err := netip.ParseAddr(a.Address)
		if err != nil {
			return nil, false
		}
		all[address] = a.Services
	}
	return all, true
}

func parse(cidr, gateway string) (b contract.NetworkBlock, ok bool) {
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return b, false
	}
	address, err := netip.ParseAddr(gateway)
	return contract.NetworkBlock{CIDR: prefix.Masked(), Gateway: address}, err == nil && prefix.Contains(address)
}

// maxNamed is the largest block, as a prefix length, that is believed on the word of a Service.
const maxNamed = 22

// named returns the blocks that published Services name, each around the address in the status, which authors of
// Services cannot write.
func named(services []*corev1.Service) []contract.NetworkBlock {
	var all []contract.NetworkBlock
	for _, s := range services {
		b, ok := parse(s.Annotations[contract.ServiceIPBlockCIDR], s.Annotations[contract.ServiceIPGateway])
		if !ok || b.CIDR.Bits() < maxNamed {
			continue
		}
		address, err := netip.ParseAddr(s.Annotations[contract.ServiceIPAddress])
		if err == nil && b.CIDR.Contains(address) && Published(s, address) {
			all = append(all, b)
		}
	}
	return all
}

// Published reports whether an address is in the status of a Service.
func Published(service *corev1.Service, address netip.Addr) bool {
	return slices.ContainsFunc(service.Status.LoadBalancer.Ingress, func(i corev1.LoadBalancerIngress) bool {
		published, err := netip.ParseAddr(i.IP)
		return err == nil && published == address
	})
}

package allocation

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// newObject is the object of a ledger that is to be created, without its status.
func newObject(l ipblock.Ledger, network string) *v1beta1.IPBlock {
	spec := v1beta1.IPBlockSpec{Attachment: attachedTo(network), Source: v1beta1.SourceBought,
		Purpose: v1beta1.PurposeShared, BlockID: l.BlockID}
	if l.Brought {
		spec.Source = v1beta1.SourceBrought
	}
	if l.Nodes {
		spec.Purpose = v1beta1.PurposeNodes
	}
	return &v1beta1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: v1beta1.NamePrefix + l.BlockID}, Spec: spec}
}

// withLedger is the object with a status that says what the ledger says.
func withLedger(base *v1beta1.IPBlock, l ipblock.Ledger, now time.Time) *v1beta1.IPBlock {
	object := base.DeepCopy()
	status := &object.Status
	allocations := allocationsOf(l, status.Allocations, now)
	status.CIDR = l.CIDR.String()
	status.Gateway = network.Gateway(l.CIDR).String()
	held, quarantined, free := l.Count()
	status.Used = fmt.Sprintf("%d/%d", held, held+quarantined+free)
	status.AssignedHere = l.AssignedHere
	status.Allocations = &allocations
	status.Quarantined = quarantineOf(l)
	meta.SetStatusCondition(&status.Conditions, allocatable(l, now))
	return object
}

func allocatable(l ipblock.Ledger, now time.Time) metav1.Condition {
	c := metav1.Condition{
		Type: v1beta1.ConditionAllocatable, Status: metav1.ConditionTrue, Reason: v1beta1.AllocatableOpen,
		Message: "Addresses of the block are allocated", LastTransitionTime: metav1.NewTime(now),
	}
	if l.Closed {
		c.Status = metav1.ConditionFalse
		c.Reason = v1beta1.AllocatableClosed
		c.Message = "The block is being released"
	}
	return c
}

// allocationsOf are the held addresses, each since it was first stored for one of its holders.
func allocationsOf(l ipblock.Ledger, before *[]v1beta1.Allocation, now time.Time) []v1beta1.Allocation {
	all := []v1beta1.Allocation{}
	for _, address := range sorted(l.Held) {
		services, server := holders(l.Holders(address)...)
		allocated := v1beta1.Allocation{Address: address.String(), Services: services,
			SharedAs: l.Groups[address].Name, Server: server, Since: metav1.NewTime(now)}
		if before != nil {
			for _, known := range *before {
				if known.Address == allocated.Address && known.Server == server &&
					(server != "" || overlap(known.Services, services)) {
					allocated.Since = known.Since
				}
			}
		}
		all = append(all, allocated)
	}
	return all
}

// overlap reports whether a Service is in both lists.
func overlap(a, b []v1beta1.ServiceReference) bool {
	return slices.ContainsFunc(a, func(one v1beta1.ServiceReference) bool { return slices.Contains(b, one) })
}

func quarantineOf(l ipblock.Ledger) []v1beta1.Quarantine {
	var all []v1beta1.Quarantine
	for _, address := range sorted(l.Quarantined) {
		released := l.Quarantined[address]
		services, server := holders(released.Holder)
		all = append(all, v1beta1.Quarantine{Address: address.String(), Services: services, Server: server,
			Since: metav1.NewMicroTime(stored(released.Since))})
	}
	return all
}

// stored is a time with the precision of the API, which is a microsecond, and not earlier: an agent's report from
// before a release would count as one from after it.
func stored(t time.Time) time.Time {
	return t.Add(time.Microsecond - time.Nanosecond).Truncate(time.Microsecond).UTC()
}

func sorted[T any](of map[netip.Addr]T) []netip.Addr {
	return slices.SortedFunc(maps.Keys(of), netip.Addr.Compare)
}

func holders(all ...ipblock.Holder) (services []v1beta1.ServiceReference, server string) {
	for _, h := range all {
		if h.Namespace == "" {
			return nil, h.Name
		}
		services = append(services,
			v1beta1.ServiceReference{Namespace: h.Namespace, Name: h.Name, UID: types.UID(h.UID)})
	}
	return services, ""
}

// sameLedger reports whether what is stored says the same as a ledger.
func sameLedger(kept, l ipblock.Ledger) bool {
	quarantined := map[netip.Addr]ipblock.Released{}
	for address, r := range l.Quarantined {
		quarantined[address] = ipblock.Released{Holder: r.Holder, Since: stored(r.Since)}
	}
	return kept.BlockID == l.BlockID && kept.CIDR == l.CIDR && kept.Closed == l.Closed &&
		kept.AssignedHere == l.AssignedHere && maps.Equal(kept.Held, l.Held) &&
		maps.EqualFunc(kept.Groups, l.Groups, func(a, b ipblock.Group) bool {
			return a.Name == b.Name && slices.Equal(a.Others, b.Others)
		}) &&
		maps.EqualFunc(kept.Quarantined, quarantined, func(a, b ipblock.Released) bool {
			return a.Holder == b.Holder && a.Since.Equal(b.Since)
		})
}

// hasLedger reports whether an object is one in which the controller records addresses: it has named it, the block is
// brought or a person has ordered it, it knows the block, and that is not one Service's own.
func hasLedger(object *v1beta1.IPBlock) bool {
	return object.Spec.Purpose != v1beta1.PurposeService && object.Spec.BlockID != "" &&
		(isOwn(object) || object.Spec.Source == v1beta1.SourceBrought || ordered(object))
}

// ownName reports whether a name is one that the controller gives to blocks of a public network.
func ownName(name, network string) bool {
	return slices.ContainsFunc([]string{v1beta1.ServicePrefix, v1beta1.SharedPrefix(network),
		v1beta1.NodesPrefix(network), v1beta1.NamePrefix}, func(p string) bool { return strings.HasPrefix(name, p) })
}

// isOwn reports whether an object has a name that the controller gives.
func isOwn(object *v1beta1.IPBlock) bool { return ownName(object.Name, networkOf(object)) }

// networkOf is the name of the public network that a block is for.
func networkOf(object *v1beta1.IPBlock) string {
	return cmp.Or(object.Spec.Attachment.Name, v1beta1.DefaultNetwork)
}

func attachedTo(network string) v1beta1.Attachment {
	return v1beta1.Attachment{Kind: "PublicNetwork", Name: network}
}

// brings reports whether a person says in an object that a brought block has a purpose. What the controller named is
// not from a person.
func brings(object *v1beta1.IPBlock, purpose v1beta1.Purpose) bool {
	return !isOwn(object) && object.Spec.Source == v1beta1.SourceBrought && object.Spec.Purpose == purpose
}

// broughtIn is what a person says in an object about a brought block for Services.
func broughtIn(object *v1beta1.IPBlock) (d ipblock.BroughtBlock, declared bool) {
	if !brings(object, v1beta1.PurposeShared) {
		return ipblock.BroughtBlock{}, false
	}
	return ipblock.BroughtBlock{Object: object.Name, BlockID: object.Spec.BlockID,
		Namespaces: object.Spec.AllowedNamespaces, Deleted: object.DeletionTimestamp != nil}, true
}

// decode reads the ledger in an object; ErrNotFound, and only what block it is, when it has none.
func decode(object *v1beta1.IPBlock) (ipblock.Ledger, error) {
	if object.Status.Allocations == nil {
		return identity(object), fmt.Errorf("IPBlock %s has no allocations: %w", object.Name, ErrNotFound)
	}
	l, err := parse(object)
	if err == nil {
		err = l.Check()
	}
	if id, named := strings.CutPrefix(object.Name, v1beta1.NamePrefix); err == nil && named && id != l.BlockID {
		err = fmt.Errorf("it is the ledger of IP block %q", l.BlockID)
	}
	if err != nil {
		again := "delete it"
		if !isOwn(object) && !ordered(object) {
			again = "delete it and create it again"
		}
		return identity(object), fmt.Errorf("IPBlock %s: %w: %w; repair its status, or give it the annotation %s=true "+
			"and %s: then it is made again from the addresses that are in use", object.Name, ErrUnreadable, err,
			contract.AllowDeletion, again)
	}
	return l, nil
}

// identity is what a specification says of a block.
func identity(object *v1beta1.IPBlock) ipblock.Ledger {
	nodes := object.Spec.Purpose == v1beta1.PurposeNodes
	brought := object.Spec.Source == v1beta1.SourceBrought
	return ipblock.Ledger{
		BlockID: object.Spec.BlockID, Object: object.Name, Version: object.ResourceVersion,
		Brought: brought, Nodes: nodes,
		// a block that was bought for nodes is released when none needs it, deleted or not
		Deleted: object.DeletionTimestamp != nil && (!nodes || brought),
	}
}

// parse reads what a status says, whether or not that keeps the rules of a ledger.
func parse(object *v1beta1.IPBlock) (ipblock.Ledger, error) {
	status := object.Status
	l := identity(object)
	l.AssignedHere = status.AssignedHere
	l.Closed = meta.IsStatusConditionFalse(status.Conditions, v1beta1.ConditionAllocatable)
	l.Held = map[netip.Addr]ipblock.Holder{}
	l.Quarantined = map[netip.Addr]ipblock.Released{}
	var err error
	if l.CIDR, err = netip.ParsePrefix(status.CIDR); err != nil {
		return l, fmt.Errorf("status.cidr: %w", err)
	}
	for _, allocated := range *status.Allocations {
		first, others := apart(allocated)
		address, holder, err := holderIn(allocated.Address, first, allocated.Server)
		if err == nil && holder == (ipblock.Holder{}) {
			err = fmt.Errorf("address %s belongs to no Service and no server", address)
		}
		if err := hold(l.Held, address, holder, err); err != nil {
			return l, fmt.Errorf("status.allocations: %w", err)
		}
		if allocated.SharedAs != "" && allocated.Server == "" {
			l = l.WithGroup(address, ipblock.Group{Name: allocated.SharedAs, Others: others})
		}
	}
	for _, quarantined := range status.Quarantined {
		address, holder, err := holderIn(quarantined.Address, quarantined.Services, quarantined.Server)
		released := ipblock.Released{Holder: holder, Since: quarantined.Since.UTC()}
		if err := hold(l.Quarantined, address, released, err); err != nil {
			return l, fmt.Errorf("status.quarantined: %w", err)
		}
	}
	return l, nil
}

// apart is the first of the Services that may have an address together, and the others.
func apart(a v1beta1.Allocation) (first []v1beta1.ServiceReference, others []ipblock.Holder) {
	if a.SharedAs == "" || len(a.Services) == 0 {
		return a.Services, nil
	}
	for _, s := range a.Services[1:] {
		others = append(others, ipblock.Holder{Namespace: s.Namespace, Name: s.Name, UID: string(s.UID)})
	}
	return a.Services[:1], others
}

// holderIn is an address, and the one Service or server that has it, or had it; the zero Holder where none is named.
func holderIn(text string, services []v1beta1.ServiceReference, server string) (netip.Addr, ipblock.Holder, error) {
	address, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		return address, ipblock.Holder{}, err
	case len(services) == 1 && server == "":
		one := services[0]
		return address, ipblock.Holder{Namespace: one.Namespace, Name: one.Name, UID: string(one.UID)}, nil
	case len(services) == 0:
		return address, ipblock.Holder{Name: server}, nil
	default:
		return address, ipblock.Holder{}, fmt.Errorf("address %s belongs to %d Services and server %q; it belongs to "+
			"one of either", address, len(services), server)
	}
}

// hold adds an address that was read, once.
func hold[T any](to map[netip.Addr]T, address netip.Addr, as T, err error) error {
	if err != nil {
		return err
	}
	if _, twice := to[address]; twice {
		return fmt.Errorf("address %s is there twice", address)
	}
	to[address] = as
	return nil
}

package plan

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// keyOf is the key with which a Service has its address together with others; empty for none.
func keyOf(service *corev1.Service) string {
	return strings.TrimSpace(service.Annotations[contract.ServiceSharedAddress])
}

// group is the name of the group with which the Service is to have its address; empty for none.
func (obs Observed) group() string {
	if obs.Desired.KeepGroup {
		return obs.HeldIn.Groups[obs.Held].Name
	}
	return obs.groupOf(obs.Service)
}

// groupOf is the name of the group of a Service: the key, if it names an IPBlock that lists its namespace, whose
// Services an administrator lets share then; else the key with the namespace, so that authors join only what is in a
// namespace of theirs.
func (obs Observed) groupOf(service *corev1.Service) string {
	key := keyOf(service)
	if key == "" || obs.listed(service) {
		return key
	}
	return service.Namespace + "/" + key
}

// listed reports whether the IPBlock that a Service names lists its namespace.
func (obs Observed) listed(service *corev1.Service) bool {
	name := namedBy(service)
	brought, _ := find(obs.BroughtBlocks, func(d ipblock.BroughtBlock) bool { return d.Object == name })
	return slices.Contains(brought.Namespaces, service.Namespace) ||
		slices.Contains(obs.Records.SharedAs(name).Namespaces, service.Namespace)
}

// sharing is the ledger in which the group of the Service has its address. The group of an IPBlock has one only there.
func (obs Observed) sharing() (l ipblock.Ledger, address netip.Addr, found bool) {
	group := obs.group()
	named := obs.namedID()
	for _, l := range obs.Ledgers {
		if address, found := l.SharedAs(group); found && (l.BlockID == named || !obs.listed(obs.Service)) {
			return l, address, true
		}
	}
	return ipblock.Ledger{}, netip.Addr{}, false
}

// namedID is the ID of the block whose IPBlock the Service names; empty when it names none.
func (obs Observed) namedID() string { return cmp.Or(obs.NamedBlock, obs.NamedShared.BlockID) }

// hasGroup reports whether others have the address already that the Service is to get.
func (obs Observed) hasGroup() bool {
	_, _, found := obs.sharing()
	return found
}

// leavesGroup reports whether the Service has an address of a ledger beside others with whom it does not ask to share:
// only its name had it, before it was deleted and created again, or its author changed the key before it was published.
func (obs Observed) leavesGroup(l ipblock.Ledger) bool {
	address, found := l.AddressOf(obs.Holder)
	name := l.Groups[address].Name
	has := contract.WrittenForThis(obs.Service) && ClaimedAddress(obs.Service) == address
	return found && !has && !obs.Desired.KeepGroup && name != obs.groupOf(obs.Service) && !obs.sameKey(name) &&
		len(obs.others(l, address)) > 0
}

// shown reports whether the status of the Service has the address that was written for it, which no author writes.
func (obs Observed) shown() bool {
	return obs.Published.IsValid() && contract.WrittenForThis(obs.Service) && shows(obs.Service, obs.Published)
}

// othersHave reports whether others than the Service have an address.
func (obs Observed) othersHave(address netip.Addr) bool {
	return slices.ContainsFunc(obs.Ledgers, func(l ipblock.Ledger) bool { return len(obs.others(l, address)) > 0 })
}

// others are those who have an address beside the Service.
func (obs Observed) others(l ipblock.Ledger, address netip.Addr) []ipblock.Holder {
	return slices.DeleteFunc(l.Holders(address), obs.Holder.SameName)
}

// parted takes a shared address from a Service that cannot have it any more beside an older one: an edit of either has
// made that so. The older one keeps it.
func (obs Observed) parted() (p ServicePlan, parts bool) {
	l, address := obs.sharedBefore()
	if l.Groups[address].Name == "" {
		return ServicePlan{}, false
	}
	older := func(other *corev1.Service) bool { return WantsAddress(other) && before(other, obs.Service) }
	why := obs.conflict(l, address, older)
	if why == "" {
		return ServicePlan{}, false
	}
	p = refusedPlan(ipblock.AddressConflict, "%s", why)
	if p.Leave = obs.Published.IsValid() || len(obs.Service.Status.LoadBalancer.Ingress) > 0; !p.Leave {
		p.Save = obs.leave("")
	}
	return p, true
}

// sharedBefore is the ledger of the address that the Service has, by that ledger or by what it publishes.
func (obs Observed) sharedBefore() (l ipblock.Ledger, address netip.Addr) {
	if obs.Held.IsValid() {
		return obs.HeldIn, obs.Held
	}
	l, _ = find(obs.Ledgers, func(l ipblock.Ledger) bool { return l.Groups[obs.Published].Name != "" })
	if group := l.Groups[obs.Published].Name; group != obs.group() && !obs.shown() {
		return ipblock.Ledger{}, obs.Published
	}
	return l, obs.Published
}

// before reports whether a Service is older than another one.
func before(one, other *corev1.Service) bool {
	return cmp.Or(one.CreationTimestamp.Compare(other.CreationTimestamp.Time),
		cmp.Compare(one.UID, other.UID)) < 0
}

// refuseToShare refuses a Service that cannot have the address of its group, before anything is written.
func (obs Observed) refuseToShare() (refusal ServicePlan, refused bool) {
	if obs.group() == "" || obs.Held.IsValid() {
		return ServicePlan{}, false
	}
	if why := obs.unannounced(); why != "" {
		return refusedPlan(ipblock.AddressConflict, "%s", why), true
	}
	l, address, found := obs.sharing()
	if !found || address == obs.Published {
		return ServicePlan{}, false
	}
	if why := obs.unreachable(l, address); why != "" {
		return refusedPlan(ipblock.AddressConflict, "the Services with %s=%s have address %s%s",
			contract.ServiceSharedAddress, obs.Desired.SharedAddress, address, why), true
	}
	why := obs.conflict(l, address, func(*corev1.Service) bool { return true })
	return refusedPlan(ipblock.AddressConflict, "%s", why), why != ""
}

// unreachable says why the Service cannot get the address that its group has, whatever it serves; empty when it can.
func (obs Observed) unreachable(l ipblock.Ledger, address netip.Addr) string {
	requested := obs.Desired.Requested
	switch {
	case requested.IsValid() && requested != address:
		return fmt.Sprintf(", and %s is %s; clear that or set it to the other", obs.Desired.RequestedSource, requested)
	case obs.Desired.IPBlock != "" && l.BlockID != obs.namedID(), obs.Desired.IPBlock == "" && l.Brought:
		return fmt.Sprintf(" of IPBlock %s; set annotation %s to %s, or choose another key", l.Object,
			contract.ServiceIPBlock, l.Object)
	case l.Deleted:
		return fmt.Sprintf(" of IPBlock %s, which is being deleted; choose another key", l.Object)
	case len(l.Holders(address)) >= ipblock.MaxGroup:
		return fmt.Sprintf(", and are %d, which is all that one address can have; choose another key", ipblock.MaxGroup)
	default:
		return ""
	}
}

// conflict says why the Service cannot have an address beside those others who count; empty when it can.
func (obs Observed) conflict(l ipblock.Ledger, address netip.Addr, counts func(*corev1.Service) bool) string {
	if why := obs.unannounced(); why != "" {
		return why
	}
	for _, h := range obs.others(l, address) {
		other, found := find(obs.Services, func(s *corev1.Service) bool { return HolderOf(s).SameName(h) })
		if !found || !counts(other) {
			continue
		}
		if why := clash(obs.Service, other); why != "" {
			return fmt.Sprintf("Service %s has the address of %s=%s, and %s, or choose another key", h,
				contract.ServiceSharedAddress, keyOf(obs.Service), why)
		}
	}
	return ""
}

// unannounced says why the announcer would not announce a shared address for the Service; empty when it would.
func (obs Observed) unannounced() string {
	if obs.Options.Announcer != contract.AnnouncerByLease || !isLocal(obs.Service) {
		return ""
	}
	return fmt.Sprintf("%s announces no shared address for externalTrafficPolicy Local: set it to Cluster, or "+
		"remove annotation %s", obs.Options.Announcer, contract.ServiceSharedAddress)
}

func isLocal(service *corev1.Service) bool {
	return service.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// clash says what keeps two Services from having one address, and what to do; empty when nothing does. kube-proxy finds
// a Service by address, protocol and port. With externalTrafficPolicy Local the address has to be where the pods are,
// which is one place only if they have the same ones.
func clash(one, other *corev1.Service) string {
	for _, port := range one.Spec.Ports {
		if slices.ContainsFunc(other.Spec.Ports, func(p corev1.ServicePort) bool {
			return p.Port == port.Port && protocol(p) == protocol(port)
		}) {
			return fmt.Sprintf("both have port %d/%s: change that of one of them", port.Port, protocol(port))
		}
	}
	switch {
	case isLocal(one) != isLocal(other):
		return "only one of them has externalTrafficPolicy Local: set it to the same for both"
	case isLocal(one) && (len(one.Spec.Selector) == 0 || !maps.Equal(one.Spec.Selector, other.Spec.Selector)):
		return "with externalTrafficPolicy Local both need the same selector: set it to Cluster"
	default:
		return ""
	}
}

func protocol(p corev1.ServicePort) corev1.Protocol { return cmp.Or(p.Protocol, corev1.ProtocolTCP) }

// regrouped says why a Service that has an address cannot have it as it now asks for; empty when it can. Who has it
// without others may change the key, and remove it; they would have to follow.
func (obs Observed) regrouped(kind Kind) string {
	have := obs.HeldIn.Groups[obs.Held].Name
	want := obs.group()
	others := obs.others(obs.HeldIn, obs.Held)
	_, elsewhere, found := obs.sharing()
	switch {
	case have == want || obs.Held != obs.Published && kind != Dedicated:
		return ""
	case len(others) > 0 && !obs.sameKey(have):
		return fmt.Sprintf("the Service has address %s together with Service %s, and annotation %s asks for another",
			obs.Published, others[0], contract.ServiceSharedAddress)
	case want != "" && kind == Dedicated:
		return fmt.Sprintf("the Service has address %s of %s, and annotation %s asks for a shared one", obs.Published,
			kind, contract.ServiceSharedAddress)
	case found && elsewhere != obs.Published:
		return fmt.Sprintf("the Service has address %s, and those with annotation %s=%s have %s", obs.Published,
			contract.ServiceSharedAddress, obs.Desired.SharedAddress, elsewhere)
	case obs.Options.Announcer == contract.AnnouncerByLease && want != "" &&
		(have == "" || strings.Contains(have, "/") != strings.Contains(want, "/")):
		return fmt.Sprintf("%s goes on with the Lease with which it began to announce address %s, and "+
			"annotation %s asks for another", obs.Options.Announcer, obs.Published, contract.ServiceSharedAddress)
	default:
		return ""
	}
}

// sameKey reports whether a group has the key of the Service: an administrator may list its namespace later.
func (obs Observed) sameKey(group string) bool {
	key := obs.Desired.SharedAddress
	return key != "" && (group == key || group == obs.Holder.Namespace+"/"+key)
}

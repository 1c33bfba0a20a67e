package plan

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Said is what a version of a Service says beside what it asks for, to be compared.
type Said struct {
	// Wants is true when the Service is to have an address from us.
	Wants bool
	// Asked is what its author has written.
	Asked Asked
	// Address is the one that the controller wrote for this Service; the zero Addr when it has none.
	Address netip.Addr
	// Assigned and Published are its conditions.
	Assigned, Published ipblock.Condition
}

// SaidBy reads what a version of a Service says.
func (opts Options) SaidBy(service *corev1.Service) Said {
	said := Said{Wants: WantsAddress(service), Asked: opts.askedBy(service),
		Assigned:  conditionOf(service, contract.ServiceConditionBlockAssigned),
		Published: conditionOf(service, contract.ServiceConditionAddressPublished)}
	if contract.WrittenForThis(service) {
		said.Address = ClaimedAddress(service)
	}
	return said
}

// Subject is what an observation is about.
type Subject struct {
	// Service is the Service; nil for the pool of the network.
	Service *corev1.Service
	// Releasing is true when what the Service asks for matters no more, only what it has.
	Releasing bool
	// Declared is what its author asked for when that was looked at last.
	Declared Declared
}

// Declared is what the author of a Service asks for.
type Declared struct {
	// Asked is what the author has written, and Desired what that asks for. Problem is what is wrong with it.
	Asked   Asked
	Desired Desired
	Problem error
}

// Declared reads what the author of a Service asks for. It is not read again where the author has written the same as
// before.
func (opts Options) Declared(service *corev1.Service, before Declared) Declared {
	d := Declared{Asked: opts.askedBy(service), Desired: before.Desired, Problem: before.Problem}
	if d.Asked != before.Asked {
		d.Desired, d.Problem = ReadDesired(service, opts)
	}
	return d
}

// About is what the cluster and the list of blocks show of a subject, with what its author asks for, and what else to
// look for in the account.
func (obs Observed) About(subject Subject) (about Observed, declared Declared, wanted Search) {
	if subject.Service == nil {
		obs.Desired.Shared = true
	} else {
		obs, declared = obs.of(subject.Service, subject.Declared)
		if subject.Releasing {
			obs.Desired.IPBlock = ""
		}
	}
	obs = obs.Complete()
	return obs, declared, obs.search()
}

// of is the observation as one about a Service; before is what its author asked for when it was looked at last.
func (obs Observed) of(service *corev1.Service, before Declared) (Observed, Declared) {
	declared := obs.Options.Declared(service, before)
	obs.Service = service
	obs.Owner = OwnerOf(service, obs.Owner.Cluster)
	obs.Holder = HolderOf(service)
	obs.Desired = declared.Desired
	obs.Problem = declared.Problem
	obs.Purchase = obs.Records.Of(obs.Holder)
	return obs, declared
}

// OwnerOf is the owner of the blocks that are bought for the Service only.
func OwnerOf(service *corev1.Service, cluster string) network.Owner {
	return network.Owner{Cluster: cluster, Namespace: service.Namespace, Name: service.Name}
}

// HolderOf is the name of the Service in ledgers.
func HolderOf(service *corev1.Service) ipblock.Holder {
	return ipblock.Holder{Namespace: service.Namespace, Name: service.Name, UID: string(service.UID)}
}

// ClaimedAddress returns the address that the controller's annotation names, whoever wrote it; the zero Addr when
// there is none.
func ClaimedAddress(service *corev1.Service) netip.Addr {
	address, err := netip.ParseAddr(service.Annotations[contract.ServiceIPAddress])
	if err != nil {
		return netip.Addr{}
	}
	return address.Unmap()
}

// UsersLoadBalancerIP returns spec.loadBalancerIP unless the controller wrote it, in this life or another.
func UsersLoadBalancerIP(service *corev1.Service) string {
	if service.Spec.LoadBalancerIP == service.Annotations[contract.ServiceIPAddress] {
		return ""
	}
	return service.Spec.LoadBalancerIP
}

// WantsAddress reports whether a Service is ours and is not being deleted.
func WantsAddress(service *corev1.Service) bool {
	return service.DeletionTimestamp == nil && contract.Served(&service.Spec)
}

// cleanupFinalizer is the framework's finalizer of load balancers (k8s.io/cloud-provider/service/helpers, which imports
// too much for this package).
const cleanupFinalizer = "service.kubernetes.io/load-balancer-cleanup"

// NeedsBlock reports whether the Service needs its block: it must have an address from us, or has not released it yet.
// A Service of another class, and the framework's finalizer on it, are not ours.
func NeedsBlock(service *corev1.Service) bool {
	ours := service.Spec.LoadBalancerClass == nil || contract.HasOwnClass(&service.Spec)
	return slices.Contains(service.Finalizers, contract.LoadBalancerFinalizer) || contract.Served(&service.Spec) ||
		(ours && slices.Contains(service.Finalizers, cleanupFinalizer))
}

package plan

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Declared is what a version of a Service says: what its author asks for.
type Declared struct {
	// Asked is what the author has written, and Desired what that asks for. Problem is what is wrong with it.
	Asked   Asked
	Desired Desired
	Problem error
}

// Declared reads what a version of a Service says. What its author asks for is not read again where that is the same
// as before.
func (opts Options) Declared(service *corev1.Service, before Declared) Declared {
	d := Declared{Asked: opts.AskedBy(service), Desired: before.Desired, Problem: before.Problem}
	if d.Asked != before.Asked {
		d.Desired, d.Problem = ReadDesired(service, opts)
	}
	return d
}

// About is the observation as one about a Service, with what that says; before is what it said when it was read last.
func (obs Observed) About(service *corev1.Service, before Declared) (Observed, Declared) {
	said := obs.Options.Declared(service, before)
	obs.Service = service
	obs.Owner = OwnerOf(service, obs.Owner.Cluster)
	obs.Holder = HolderOf(service)
	obs.Desired = said.Desired
	obs.Problem = said.Problem
	return obs, said
}

// OwnerOf is the owner of the blocks that are bought for the Service only.
func OwnerOf(service *corev1.Service, cluster string) network.Owner {
	return network.Owner{Cluster: cluster, Namespace: service.Namespace, Name: service.Name}
}

// HolderOf is the name of the Service in ledgers.
func HolderOf(service *corev1.Service) Holder {
	return Holder{Namespace: service.Namespace, Name: service.Name, UID: string(service.UID)}
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

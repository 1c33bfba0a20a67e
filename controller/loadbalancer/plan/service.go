package plan

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

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

// RecordedPurchase reads the intent to buy that stands on the Service; nil when there is none, or one that was
// written for another Service.
func RecordedPurchase(service *corev1.Service) (*contract.Purchase, error) {
	if !contract.WrittenForThis(service) {
		return nil, nil
	}
	recorded, err := contract.ParsePurchase(service.Annotations[contract.ServiceIPPurchase])
	if err != nil {
		return nil, fmt.Errorf("%w; remove the annotation if no IP block was bought", err)
	}
	return recorded, nil
}

package balancer

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/ipblock"
)

// wish reads what the Service is to get. Releasing a block does not ask for it.
func (b *Balancer) wish(owner ipblock.Owner, service *corev1.Service, seen observation) (ipblock.Wish, error) {
	requested, err := parseAddress("spec.loadBalancerIP", service.Spec.LoadBalancerIP)
	if err != nil {
		return ipblock.Wish{}, err
	}
	published, err := parseAddress("annotation "+contract.ServiceIPAddress, service.Annotations[contract.ServiceIPAddress])
	if err != nil {
		return ipblock.Wish{}, err
	}
	reserved, err := b.reserved(owner, service, seen)
	if err != nil {
		return ipblock.Wish{}, err
	}
	location, source := b.location(service)
	return ipblock.Wish{
		Location:       location,
		LocationSource: source,
		Published:      published,
		Requested:      requested,
		MaxBlocks:      b.config.MaxBlocks,
		Bought:         len(seen.cluster),
		Reserved:       reserved,
	}, nil
}

func parseAddress(field, raw string) (netip.Addr, error) {
	if raw == "" {
		return netip.Addr{}, nil
	}
	address, err := netip.ParseAddr(raw)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%s %q is no IP address; clear it: %w", field, raw, err)
	}
	return address.Unmap(), nil
}

// location returns where to buy, in upper case as the API spells it, and where that was or can be set.
func (b *Balancer) location(service *corev1.Service) (location, source string) {
	const option = "the option location (PNAP_LOCATION)"
	if b.config.Location != "" {
		return strings.ToUpper(b.config.Location), option
	}
	annotation := "the annotation " + b.config.LocationAnnotation + " of the Service"
	if value := strings.TrimSpace(service.Annotations[b.config.LocationAnnotation]); value != "" {
		return strings.ToUpper(value), annotation
	}
	return "", annotation + " or " + option
}

// reserved counts the blocks of other living Services that are bought and not yet in the network: each
// will need a place in it.
func (b *Balancer) reserved(owner ipblock.Owner, service *corev1.Service, seen observation) (int, error) {
	services, err := b.config.Services.List(labels.Everything())
	if err != nil {
		return 0, fmt.Errorf("list Services: %w", err)
	}
	network := seen.networks[b.config.NetworkID]
	reserved := 0
	for _, other := range services {
		if other.UID == service.UID || !wantsBlock(other) {
			continue
		}
		for _, block := range seen.cluster {
			if block.ResourceID == "" && !network.Listed(block.ID) && ownerOf(other, owner.Cluster).Owns(block) {
				reserved++
			}
		}
	}
	return reserved, nil
}

func ownerOf(service *corev1.Service, cluster string) ipblock.Owner {
	return ipblock.Owner{Cluster: cluster, Namespace: service.Namespace, Name: service.Name}
}

// wantsBlock tells whether a Service is ours to serve and stays so.
func wantsBlock(service *corev1.Service) bool {
	return service.DeletionTimestamp == nil &&
		service.Spec.Type == corev1.ServiceTypeLoadBalancer && service.Spec.LoadBalancerClass == nil
}

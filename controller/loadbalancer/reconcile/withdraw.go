package reconcile

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// withdrawal removes what publication wrote. A value that a user chose stays. The record of a purchase and
// its owner stay until nothing is left that they would find.
func withdrawal(service *corev1.Service, vlanInterface string) patch {
	address := service.Annotations[contract.ServiceIPAddress]
	wanted := map[string]any{}
	for _, name := range contract.OwnedServiceAnnotations() {
		if name != contract.ServiceIPPurchase && name != contract.ServiceIPOwner {
			wanted[name] = nil
		}
	}
	if address != "" && service.Annotations[contract.KubeVIPAddresses] == address {
		wanted[contract.KubeVIPAddresses] = nil
	}
	if vlanInterface != "" && address != "" && service.Annotations[contract.KubeVIPInterface] == vlanInterface {
		wanted[contract.KubeVIPInterface] = nil
	}
	changes := patch{annotations: differing(service.Annotations, wanted)}
	if address != "" && service.Spec.LoadBalancerIP == address {
		changes.spec = map[string]any{"loadBalancerIP": nil}
	}
	return changes
}

// removeForeign takes off a Service what the controller wrote on another one, of which this is a copy:
// whoever announces it would answer for an address of someone else.
func (b *Balancer) removeForeign(ctx context.Context, s plan.Observed) (*corev1.Service, error) {
	foreign := s.Service.Annotations[contract.ServiceIPAddress]
	changes := withdrawal(s.Service, commonInterface(s.Nodes, s.NetworkID))
	changes.exactly = true
	for _, name := range []string{contract.ServiceIPPurchase, contract.ServiceIPOwner} {
		if _, there := s.Service.Annotations[name]; there {
			changes.annotations[name] = nil
		}
	}
	service, err := b.patchService(ctx, s.Service, changes)
	if err != nil {
		return nil, err
	}
	klog.FromContext(ctx).Info("Removed annotations of another Service", "service", klog.KObj(service), "address",
		foreign)
	b.config.Events.Eventf(service, corev1.EventTypeWarning, eventForeign,
		"Removed address %q, which was written for another Service: this one was restored from a backup or copied",
		foreign)
	if len(service.Status.LoadBalancer.Ingress) == 0 {
		return service, nil
	}
	if err := b.patchStatus(ctx, service, map[string]any{"loadBalancer": map[string]any{"ingress": nil}}); err != nil {
		return nil, err
	}
	live, err := b.current(ctx, service)
	if err == nil && live == nil {
		err = errOutdated
	}
	return live, err
}

// clear removes what the controller wrote on the Service, now that nothing of it is left.
func (b *Balancer) clear(ctx context.Context, live *corev1.Service) error {
	if live == nil {
		return nil
	}
	klog.FromContext(ctx).Info("No IP block is left", "service", klog.KObj(live))
	wanted := map[string]any{}
	for _, name := range contract.OwnedServiceAnnotations() {
		wanted[name] = nil
	}
	if live.DeletionTimestamp != nil {
		// kube-vip goes by these until the object is gone.
		wanted = map[string]any{contract.ServiceIPPurchase: nil, contract.ServiceIPAddress: nil,
			contract.ServiceIPOwner: nil}
	}
	cleared, err := b.patchService(ctx, live, patch{annotations: differing(live.Annotations, wanted)})
	if err != nil {
		return err
	}
	return b.silence(ctx, cleared)
}

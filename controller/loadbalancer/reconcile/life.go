package reconcile

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// claimed returns the address that the controller's annotation names, whoever wrote it; the zero Addr when
// there is none.
func claimed(service *corev1.Service) netip.Addr {
	address, err := netip.ParseAddr(service.Annotations[contract.ServiceIPAddress])
	if err != nil {
		return netip.Addr{}
	}
	return address.Unmap()
}

// usersLoadBalancerIP returns spec.loadBalancerIP unless the controller wrote it, in this life or another.
func usersLoadBalancerIP(service *corev1.Service) string {
	if service.Spec.LoadBalancerIP == service.Annotations[contract.ServiceIPAddress] {
		return ""
	}
	return service.Spec.LoadBalancerIP
}

// recordedPurchase reads the intent to buy that stands on the Service; nil when there is none, or one of
// another life.
func recordedPurchase(service *corev1.Service) (*contract.Purchase, error) {
	if !contract.WrittenForThis(service) {
		return nil, nil
	}
	recorded, err := contract.ParsePurchase(service.Annotations[contract.ServiceIPPurchase])
	if err != nil {
		return nil, fmt.Errorf("%w; remove the annotation if no IP block was bought", err)
	}
	return recorded, nil
}

// purchaseToRelease is recordedPurchase where nothing that can be written into a Service may keep it from
// being deleted: tags find the block without the record.
func purchaseToRelease(ctx context.Context, service *corev1.Service) *contract.Purchase {
	recorded, err := recordedPurchase(service)
	if err != nil {
		klog.FromContext(ctx).Info("Ignoring the record of a purchase", "service", klog.KObj(service), "err", err)
		return nil
	}
	return recorded
}

// serviceRecord is the record of a purchase on the Service itself.
type serviceRecord struct {
	balancer *Balancer
	service  *corev1.Service
}

var _ purchase.Record = (*serviceRecord)(nil)

// Load implements purchase.Record.
func (r *serviceRecord) Load(ctx context.Context) (*contract.Purchase, error) {
	live, err := r.balancer.current(ctx, r.service)
	if err != nil {
		return nil, err
	}
	if live == nil {
		return nil, fmt.Errorf("read Service %s/%s, which is gone: %w", r.service.Namespace, r.service.Name, purchase.ErrOutdated)
	}
	r.service = live
	return recordedPurchase(live)
}

// Save implements purchase.Record.
func (r *serviceRecord) Save(ctx context.Context, intent *contract.Purchase) error {
	wanted := map[string]any{contract.ServiceIPPurchase: nil}
	if intent != nil {
		encoded, err := intent.Encode()
		if err != nil {
			return err
		}
		wanted = map[string]any{contract.ServiceIPPurchase: encoded, contract.ServiceIPOwner: string(r.service.UID)}
	}
	updated, err := r.balancer.patchService(ctx, r.service, patch{exactly: true, annotations: wanted})
	if errors.Is(err, errOutdated) {
		return fmt.Errorf("%w (%w)", purchase.ErrOutdated, err)
	}
	if err != nil {
		return err
	}
	r.service = updated
	return nil
}

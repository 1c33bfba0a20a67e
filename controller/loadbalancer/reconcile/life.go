package reconcile

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// purchaseToRelease is recordedPurchase where nothing that can be written into a Service may keep it from
// being deleted: tags find the block without the record.
func purchaseToRelease(ctx context.Context, service *corev1.Service) *contract.Purchase {
	recorded, err := plan.RecordedPurchase(service)
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
	return plan.RecordedPurchase(live)
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

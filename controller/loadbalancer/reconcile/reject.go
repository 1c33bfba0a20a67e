package reconcile

import (
	"context"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// reject refuses the Service. When its block is lost, the published address is withdrawn as well: phoenixNAP
// may sell it to another customer, and whoever announces it would answer in their place. What shows that there was
// one stays, so that another one is bought only where the user allows it.
func (b *Balancer) reject(ctx context.Context, s plan.Observed, step plan.Step) (*corev1.LoadBalancerStatus, error) {
	address := s.Published()
	if step.Reason != plan.BlockLost || !s.Abandoned(address) {
		return nil, b.refuse(ctx, s.Service, step)
	}
	service, err := b.patchService(ctx, s.Service, silence(s.Service, address))
	if err != nil {
		return nil, err
	}
	if service != s.Service {
		klog.FromContext(ctx).Info("Withdrew the address of a lost block", "service", klog.KObj(service), "address",
			address)
	}
	return &corev1.LoadBalancerStatus{}, b.refuse(ctx, service, step)
}

// silence takes off a Service what announcers read.
func silence(service *corev1.Service, address netip.Addr) patch {
	wanted := map[string]any{contract.ServiceIPBlockAssigned: "false"}
	if service.Annotations[contract.KubeVIPAddresses] == address.String() {
		wanted[contract.KubeVIPAddresses] = nil
	}
	changes := patch{exactly: true, annotations: differing(service.Annotations, wanted)}
	if service.Spec.LoadBalancerIP == address.String() && plan.UsersLoadBalancerIP(service) == "" {
		changes.spec = map[string]any{"loadBalancerIP": nil}
	}
	return changes
}

package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// errOutdated says that the Service changed since it was read. The next look sees the change.
var errOutdated = errors.New("the Service changed meanwhile")

// current reads the Service as it is now; nil when it is gone or another one has taken its name.
func (b *Balancer) current(ctx context.Context, service *corev1.Service) (*corev1.Service, error) {
	live, err := b.byName(ctx, service)
	if err != nil || live == nil || live.UID != service.UID {
		return nil, err
	}
	return live, nil
}

// byName reads whichever Service bears the name now; nil when none does.
func (b *Balancer) byName(ctx context.Context, service *corev1.Service) (*corev1.Service, error) {
	live, err := b.config.Kube.CoreV1().Services(service.Namespace).Get(ctx, service.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Service %s/%s: %w", service.Namespace, service.Name, err)
	}
	return live, nil
}

// patch is a JSON merge patch (RFC 7386) of a Service: a nil value removes a field.
type patch struct {
	// Exactly demands that the Service is still the version that was read: compare-and-swap.
	exactly     bool
	annotations map[string]any
	spec        map[string]any
}

func (p patch) empty() bool { return len(p.annotations) == 0 && len(p.spec) == 0 }

// apply patches the Service and returns the new version. errOutdated when the compare-and-swap failed
// or the Service is gone.
func (b *Balancer) patchService(ctx context.Context, service *corev1.Service, p patch) (*corev1.Service, error) {
	if p.empty() {
		return service, nil
	}
	metadata := map[string]any{"annotations": p.annotations, "uid": service.UID}
	if p.exactly {
		metadata["resourceVersion"] = service.ResourceVersion
	}
	body := map[string]any{"metadata": metadata}
	if len(p.spec) > 0 {
		body["spec"] = p.spec
	}
	return b.send(ctx, service, types.MergePatchType, body)
}

func (b *Balancer) send(ctx context.Context, service *corev1.Service, kind types.PatchType, body map[string]any,
	subresources ...string) (*corev1.Service, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode a patch of Service %s/%s: %w", service.Namespace, service.Name, err)
	}
	updated, err := b.config.Kube.CoreV1().Services(service.Namespace).Patch(ctx, service.Name, kind, raw,
		metav1.PatchOptions{}, subresources...)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil, fmt.Errorf("patch Service %s/%s: %w (%w)", service.Namespace, service.Name, errOutdated, err)
	case err != nil:
		return nil, fmt.Errorf("patch Service %s/%s: %w", service.Namespace, service.Name, err)
	default:
		return updated, nil
	}
}

// differing keeps of wanted what the annotations do not say already; nil stands for an absent annotation.
func differing(have map[string]string, wanted map[string]any) map[string]any {
	changes := map[string]any{}
	for name, value := range wanted {
		old, present := have[name]
		if (value == nil && present) || (value != nil && (!present || old != value)) {
			changes[name] = value
		}
	}
	return changes
}

// withdrawal removes what publication wrote. A value that a user chose stays. The record of a purchase and
// its owner stay until nothing is left that they would find.
func (b *Balancer) withdrawal(service *corev1.Service, nodes []*corev1.Node) patch {
	address := service.Annotations[contract.ServiceIPAddress]
	wanted := b.announcer.Withdraw(service, address, nodes)
	for _, name := range contract.OwnedServiceAnnotations() {
		if name != contract.ServiceIPPurchase && name != contract.ServiceIPOwner {
			wanted[name] = nil
		}
	}
	changes := patch{annotations: differing(service.Annotations, wanted)}
	if address != "" && service.Spec.LoadBalancerIP == address {
		changes.spec = map[string]any{"loadBalancerIP": nil}
	}
	return changes
}

// removeForeign takes off a Service what the controller wrote on another one, of which this is a copy:
// whoever announces it would answer for an address of someone else.
func (b *Balancer) removeForeign(ctx context.Context, o plan.Observed) (*corev1.Service, error) {
	foreign := o.Service.Annotations[contract.ServiceIPAddress]
	changes := b.withdrawal(o.Service, o.Nodes)
	changes.exactly = true
	for _, name := range []string{contract.ServiceIPPurchase, contract.ServiceIPOwner} {
		if _, there := o.Service.Annotations[name]; there {
			changes.annotations[name] = nil
		}
	}
	service, err := b.patchService(ctx, o.Service, changes)
	if err != nil {
		return nil, err
	}
	klog.FromContext(ctx).Info("Removed annotations of another Service", "service", klog.KObj(service), "address",
		foreign)
	b.config.Events.Eventf(service, corev1.EventTypeNormal, eventForeign,
		"Removed address %q, which was written for another Service: this one was restored from a backup or copied, and "+
			"gets an address of its own",
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

// reject refuses the Service. When its block is lost, the published address is withdrawn as well: phoenixNAP
// may sell it to another customer, and whoever announces it would answer in their place. What shows that there was
// one stays, so that another one is bought only where the user allows it.
func (b *Balancer) reject(ctx context.Context, o plan.Observed, step plan.Step) (*corev1.LoadBalancerStatus, error) {
	address := o.Published
	if step.Reason != plan.BlockLost || !o.Abandoned(address) {
		return nil, b.refuse(ctx, o.Service, step)
	}
	service, err := b.patchService(ctx, o.Service, b.withdrawAnnouncement(o.Service, address))
	if err != nil {
		return nil, err
	}
	if service != o.Service {
		klog.FromContext(ctx).Info("Withdrew the address of a lost block", "service", klog.KObj(service), "address",
			address)
	}
	return &corev1.LoadBalancerStatus{}, b.refuse(ctx, service, step)
}

// withdrawAnnouncement takes off a Service what announcers read.
func (b *Balancer) withdrawAnnouncement(service *corev1.Service, address netip.Addr) patch {
	wanted := b.announcer.Withdraw(service, address.String(), nil)
	wanted[contract.ServiceIPBlockAssigned] = "false"
	changes := patch{exactly: true, annotations: differing(service.Annotations, wanted)}
	if service.Spec.LoadBalancerIP == address.String() && plan.UsersLoadBalancerIP(service) == "" {
		changes.spec = map[string]any{"loadBalancerIP": nil}
	}
	return changes
}

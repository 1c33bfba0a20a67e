package reconcile

import (
	"context"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// fields are what is to be changed of a Service beside its status.
type fields struct {
	// annotations to set; nil removes one.
	annotations map[string]any
	// loadBalancerIP to set in the spec, if respec is true.
	loadBalancerIP string
	respec         bool
}

func (f fields) empty() bool { return len(f.annotations) == 0 && !f.respec }

// apply changes the Service of a draft.
func (f fields) apply(d *Draft) {
	d.Set(f.annotations)
	if f.respec {
		d.Service.Spec.LoadBalancerIP = f.loadBalancerIP
	}
}

// withdrawal removes what publication wrote. A value that a user chose stays, and the owner
// until nothing is left.
func (b *Balancer) withdrawal(service *corev1.Service, nodes []*corev1.Node) fields {
	address := service.Annotations[contract.ServiceIPAddress]
	wanted := b.announcer.Withdraw(service, address, nodes)
	for _, name := range contract.OwnedServiceAnnotations() {
		if name != contract.ServiceIPOwner {
			wanted[name] = nil
		}
	}
	return fields{annotations: differing(service, wanted),
		respec: address != "" && service.Spec.LoadBalancerIP == address}
}

// removeForeign takes off a Service what the controller wrote on another one, of which this is a copy:
// whoever announces it would answer for an address of someone else.
func (b *Balancer) removeForeign(ctx context.Context, d *Draft, nodes []*corev1.Node) {
	foreign := d.Service.Annotations[contract.ServiceIPAddress]
	changes := b.withdrawal(d.Service, nodes)
	changes.annotations[contract.ServiceIPOwner] = nil
	changes.apply(d)
	d.Service.Status.LoadBalancer.Ingress = nil
	d.AfterSave(func() {
		klog.FromContext(ctx).Info("Removed annotations of another Service", "service", klog.KObj(d.Service), "address",
			foreign)
		b.config.Events.Eventf(d.Service, corev1.EventTypeNormal, eventForeign,
			"Removed address %q, which was written for another Service: this one was restored from a backup or "+
				"copied, and gets an address of its own",
			foreign)
	})
}

// clear removes what the controller wrote on the Service, now that nothing of it is left.
func (b *Balancer) clear(ctx context.Context, d *Draft) {
	klog.FromContext(ctx).Info("No IP block is left", "service", klog.KObj(d.Service))
	wanted := map[string]any{}
	for _, name := range contract.OwnedServiceAnnotations() {
		wanted[name] = nil
	}
	if d.Service.DeletionTimestamp != nil {
		// kube-vip goes by these until the object is gone.
		wanted = map[string]any{contract.ServiceIPAddress: nil, contract.ServiceIPOwner: nil}
	}
	d.Set(wanted)
	for _, kind := range contract.OwnedServiceConditions() {
		meta.RemoveStatusCondition(&d.Service.Status.Conditions, kind)
	}
}

// leave takes off a Service the address that others keep. Their record says so once that is saved.
func (b *Balancer) leave(ctx context.Context, r *reconciliation) {
	address := r.Service.Annotations[contract.ServiceIPAddress]
	b.withdrawal(r.Service, r.observed.Nodes).apply(r.Draft)
	r.Service.Status.LoadBalancer.Ingress = nil
	r.status = &corev1.LoadBalancerStatus{}
	meta.RemoveStatusCondition(&r.Service.Status.Conditions, contract.ServiceConditionAnnounced)
	r.AfterSave(func() {
		klog.FromContext(ctx).Info("Withdrew the address of others", "service", klog.KObj(r.Service), "address",
			address, "reason", r.plan.Step.Detail)
	})
}

// withdrawLost withdraws a published address whose block is lost: phoenixNAP may sell it to another customer, and
// whoever announces it would answer in their place. What shows that there was one stays, so that another one is bought
// only where the user allows it.
func (b *Balancer) withdrawLost(ctx context.Context, r *reconciliation) {
	address := r.observed.Published
	if changes := b.withdrawAnnouncement(r.Service, address); !changes.empty() {
		changes.apply(r.Draft)
		r.AfterSave(func() {
			klog.FromContext(ctx).Info("Withdrew the address of a lost block", "service", klog.KObj(r.Service),
				"address", address)
		})
	}
	r.status = &corev1.LoadBalancerStatus{}
	// Agents report only published addresses, so no report would ever correct what it says of this one.
	meta.RemoveStatusCondition(&r.Service.Status.Conditions, contract.ServiceConditionAnnounced)
}

// withdrawAnnouncement takes off a Service what announcers read.
func (b *Balancer) withdrawAnnouncement(service *corev1.Service, address netip.Addr) fields {
	wanted := b.announcer.Withdraw(service, address.String(), nil)
	wanted[contract.ServiceIPBlockAssigned] = "false"
	return fields{annotations: differing(service, wanted),
		respec: service.Spec.LoadBalancerIP == address.String() && plan.UsersLoadBalancerIP(service) == ""}
}

package reconcile

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/announcer/reports"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// publish makes the address of an assigned block known to the announcer, and, once a node can carry the traffic, to
// users, by the status.
func (b *Balancer) publish(ctx context.Context, r *reconciliation) error {
	o := r.observed
	p := r.plan
	changes := b.publication(o, p.Step)
	b.recordPublished(ctx, r, changes)
	changes.apply(r.Draft)
	ready, why := o.NodeReady()
	ready = ready || hasAddress(r.Service, p.Step.Address.String())
	rejected := p.Rejects() && !hasRefusal(r.Service, p.Rejected)
	conditions := publishedConditions(o, p, ready, why)
	for i := range conditions {
		conditions[i] = b.explained(ctx, r.Service, conditions[i])
	}
	b.setConditions(r.Draft, conditions...)
	refusal := &plan.Refusal{Reason: p.Rejected.Reason, Detail: p.Rejected.Detail, Reported: !rejected}
	if rejected {
		b.report(r.Draft, refusal)
	}
	if ready {
		r.status = statusFor(r.Service, p.Step.Address)
	}
	switch {
	case p.Tags != nil || len(p.Surplus) > 0:
		return b.applyRemainingChange(ctx, r)
	case p.Rejects():
		return refusal
	case !ready:
		return b.waitFor(r.Service, ipblock.NoNodeReady)
	default:
		return nil
	}
}

// publishedConditions are what the Service says once its block is assigned. why is why no Node is ready.
func publishedConditions(o plan.Observed, p plan.ServicePlan, ready bool, why string) []metav1.Condition {
	block := blockCondition(ipblock.BlockAssigned, words(ipblock.BlockAssigned))
	if p.Rejects() {
		block = blockCondition(p.Rejected.Reason, p.Rejected.Detail)
		block.Status = metav1.ConditionTrue
	}
	published := publishedCondition(ready, ipblock.NoNodeReady, why)
	before := meta.FindStatusCondition(o.Service.Status.Conditions, contract.ServiceConditionAnnounced)
	return []metav1.Condition{block, published, reports.Condition(o.Nodes, p.Step.Address, before)}
}

// recordPublished reports, once it is written, that the Service has another address, or has its own again.
func (b *Balancer) recordPublished(ctx context.Context, r *reconciliation, changes fields) {
	before := r.observed.Published
	step := r.plan.Step
	if before == step.Address {
		if changes.respec || changesAnnouncement(r.Service, changes, step.Address) {
			r.AfterSave(func() { b.config.Metrics.repaired(repairRepublished) })
		}
		return
	}
	r.AfterSave(func() {
		klog.FromContext(ctx).Info("Published an address", "service", klog.KObj(r.Service), "address", step.Address,
			"block", step.Block.ID)
		b.config.Events.Eventf(r.Service, corev1.EventTypeNormal, eventAssigned,
			"IP block %s (%s) is assigned to public network %s; the address is %s",
			step.Block.ID, step.Block.CIDR, step.Network, step.Address)
		if before.IsValid() {
			b.config.Events.Eventf(r.Service, corev1.EventTypeNormal, eventReplaced,
				"The address is %s now and was %s", step.Address, before)
		}
	})
}

// changesAnnouncement reports whether annotations change which annotations name the address.
func changesAnnouncement(service *corev1.Service, changes fields, address netip.Addr) bool {
	for name, value := range changes.annotations {
		if value == address.String() || value == nil && service.Annotations[name] == address.String() {
			return true
		}
	}
	return false
}

// publication is what the Service's metadata and spec lack.
func (b *Balancer) publication(o plan.Observed, step ipblock.Step) fields {
	service := o.Service
	address := step.Address.String()
	wanted := map[string]any{
		contract.ServiceIPAddress:       address,
		contract.ServiceIPBlockCIDR:     step.Block.CIDR.String(),
		contract.ServiceIPGateway:       network.Gateway(step.Block.CIDR).String(),
		contract.ServiceIPBlockAssigned: "true",
		contract.ServiceIPOwner:         string(service.UID),
	}
	maps.Copy(wanted, b.announcer.Publish(service, step.Address, step.SharedAs, o.Nodes))
	return fields{annotations: differing(service, wanted), loadBalancerIP: address,
		respec: service.Spec.LoadBalancerIP != address && plan.UsersLoadBalancerIP(service) == ""}
}

// statusFor is the status of a published Service, with its ports in the order of the spec: kube-vip withdraws the
// address when they differ.
func statusFor(service *corev1.Service, address netip.Addr) *corev1.LoadBalancerStatus {
	mode := corev1.LoadBalancerIPModeVIP
	ingress := corev1.LoadBalancerIngress{IP: address.String(), IPMode: &mode}
	for _, port := range service.Spec.Ports {
		ingress.Ports = append(ingress.Ports, corev1.PortStatus{Port: port.Port, Protocol: port.Protocol})
	}
	return &corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{ingress}}
}

func hasAddress(service *corev1.Service, address string) bool {
	return address != "" && slices.ContainsFunc(service.Status.LoadBalancer.Ingress,
		func(i corev1.LoadBalancerIngress) bool { return i.IP == address })
}

// applyRemainingChange changes what else is due of the account for a Service whose address is published already: one
// change for each call.
func (b *Balancer) applyRemainingChange(ctx context.Context, r *reconciliation) error {
	if r.plan.Tags != nil {
		if err := b.retag(ctx, r.Service, r.plan.Retag, r.plan.Tags); err != nil {
			return err
		}
		return b.waitFor(r.Service, reasonRetagging)
	}
	if _, err := b.takeFirst(ctx, r.Service, r.plan.Surplus); err != nil {
		return err
	}
	return b.waitFor(r.Service, waitSurplus)
}

// markUnassigned corrects the annotation of a published Service whose block is not assigned any more.
func markUnassigned(d *Draft, step ipblock.Step) {
	if d.Service.Annotations[contract.ServiceIPBlockAssigned] == "true" && step.Block.ID != "" &&
		step.Block.Status != network.Assigned && step.Reason != ipblock.BlockInvisible {
		d.Set(map[string]any{contract.ServiceIPBlockAssigned: "false"})
	}
}

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
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/announcer/reports"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// publish makes the address of an assigned block known: first to the announcer, by one patch of the Service,
// then to users, by the status, once a node can carry the traffic.
func (b *Balancer) publish(
	ctx context.Context, o plan.Observed, p plan.ServicePlan,
) (*corev1.LoadBalancerStatus, error) {
	changes := b.publication(o, p.Step)
	service, err := b.patchService(ctx, o.Service, changes)
	if err != nil {
		return nil, err
	}
	b.recordPublished(ctx, o, p.Step, changes)
	status := statusFor(service, p.Step.Address)
	ready, why := o.NodeReady()
	ready = ready || hasAddress(service, p.Step.Address)
	said := says(service, blockCondition(p.Rejected.Reason, p.Rejected.Detail))
	conditions := publishedConditions(o, p, ready, why)
	for i := range conditions {
		conditions[i] = b.explained(ctx, o.Service, conditions[i])
	}
	changed := b.say(ctx, service, conditions...)
	if p.Rejects() && changed && !said {
		b.config.Events.Event(service, corev1.EventTypeWarning, eventOf(p.Rejected.Reason), p.Rejected.Detail)
	}
	if !ready {
		status = nil
	}
	switch {
	case p.Rejects() || p.Tags != nil || len(p.Surplus) > 0:
		return status, b.besides(ctx, service, p, said || changed)
	case !ready:
		return nil, b.retry(service, because(plan.NoNodeReady))
	default:
		return status, nil
	}
}

// publishedConditions are what the Service says once its block is assigned. why is why no Node is ready.
func publishedConditions(o plan.Observed, p plan.ServicePlan, ready bool, why string) []metav1.Condition {
	block := blockCondition(plan.BlockAssigned, words(plan.BlockAssigned))
	if p.Rejects() {
		block = blockCondition(p.Rejected.Reason, p.Rejected.Detail)
		block.Status = metav1.ConditionTrue
	}
	published := publishedCondition(ready, plan.NoNodeReady, why)
	before := meta.FindStatusCondition(o.Service.Status.Conditions, contract.ServiceConditionAnnounced)
	return []metav1.Condition{block, published, reports.Condition(o.Nodes, p.Step.Address, before)}
}

func (b *Balancer) recordPublished(ctx context.Context, o plan.Observed, step plan.Step, changes patch) {
	if changes.empty() {
		return
	}
	before := o.Published
	if before == step.Address {
		if changes.spec != nil || changesAnnouncement(o.Service, changes, step.Address) {
			b.config.Metrics.repaired(repairRepublished)
		}
		return
	}
	klog.FromContext(ctx).Info("Published an address", "service", klog.KObj(o.Service), "address", step.Address,
		"block", step.Block.ID)
	b.config.Events.Eventf(o.Service, corev1.EventTypeNormal, eventAssigned,
		"IP block %s (%s) is assigned to public network %s; the address is %s",
		step.Block.ID, step.Block.CIDR, step.Network, step.Address)
	if before.IsValid() {
		b.config.Events.Eventf(o.Service, corev1.EventTypeNormal, eventReplaced, "The address is %s now and was %s",
			step.Address, before)
	}
}

// changesAnnouncement reports whether a patch changes which annotations name the address.
func changesAnnouncement(service *corev1.Service, changes patch, address netip.Addr) bool {
	for name, value := range changes.annotations {
		if value == address.String() || value == nil && service.Annotations[name] == address.String() {
			return true
		}
	}
	return false
}

// publication is what the Service's metadata and spec lack. It is a compare-and-swap, because "where the
// user left it empty" is judged on the version that was read.
func (b *Balancer) publication(o plan.Observed, step plan.Step) patch {
	service := o.Service
	address := step.Address.String()
	wanted := map[string]any{
		contract.ServiceIPAddress:       address,
		contract.ServiceIPBlock:         step.Block.CIDR.String(),
		contract.ServiceIPGateway:       network.Gateway(step.Block.CIDR).String(),
		contract.ServiceIPBlockAssigned: "true",
		contract.ServiceIPOwner:         string(service.UID),
	}
	maps.Copy(wanted, b.announcer.Publish(service, step.Address, o.Nodes))
	if o.Purchase == nil || o.Listed(step.Block.ID) && (o.Purchase.BlockID == step.Block.ID ||
		o.Purchase.BlockID == "") || !o.Now.Before(o.Purchase.Time.Add(plan.PurchaseSettles)) {
		// From now on tags find the block; until then the recorded ID must.
		wanted[contract.ServiceIPPurchase] = nil
	}
	changes := patch{exactly: true, annotations: differing(service.Annotations, wanted)}
	if have := service.Spec.LoadBalancerIP; have != address && plan.UsersLoadBalancerIP(service) == "" {
		changes.spec = map[string]any{"loadBalancerIP": address}
	}
	return changes
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

func hasAddress(service *corev1.Service, address netip.Addr) bool {
	return slices.ContainsFunc(service.Status.LoadBalancer.Ingress, func(i corev1.LoadBalancerIngress) bool {
		return i.IP == address.String()
	})
}

// besides does what remains to be done for a Service whose address is published already: one change of the
// account for each call. reported is true when an event was sent for the rejected request.
func (b *Balancer) besides(ctx context.Context, service *corev1.Service, p plan.ServicePlan, reported bool) error {
	switch {
	case p.Tags != nil:
		if err := b.retag(ctx, service, p.Retag, p.Tags); err != nil && !pnap.IsTagFresh(err) {
			return err
		}
		return b.retry(service, because(reasonRetagging))
	case len(p.Surplus) > 0:
		if _, err := b.takeFirst(ctx, service, p.Surplus); err != nil {
			return err
		}
		return b.retry(service, because(waitSurplus))
	default:
		return &plan.Refusal{Reason: p.Rejected.Reason, Detail: p.Rejected.Detail, Reported: reported}
	}
}

// markUnassigned corrects the annotation of a published Service whose block is not assigned any more.
func (b *Balancer) markUnassigned(
	ctx context.Context, service *corev1.Service, step plan.Step,
) (*corev1.Service, error) {
	if service.Annotations[contract.ServiceIPBlockAssigned] != "true" || step.Block.ID == "" ||
		step.Block.Status == network.Assigned || step.Reason == plan.BlockInvisible {
		return service, nil
	}
	return b.patchService(ctx, service, patch{annotations: map[string]any{contract.ServiceIPBlockAssigned: "false"}})
}

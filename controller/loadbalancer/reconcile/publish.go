package reconcile

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// publish makes the address of an assigned block known: first to the announcer, by one patch of the Service,
// then to users, by the status, once a node can carry the traffic.
func (b *Balancer) publish(ctx context.Context, s plan.Observed, v plan.ServicePlan) (*corev1.LoadBalancerStatus,
	error) {
	changes := publication(s, v.Step)
	service, err := b.patchService(ctx, s.Service, changes)
	if err != nil {
		return nil, err
	}
	b.recordPublished(ctx, s, v.Step, changes)
	status := statusFor(service, v.Step.Address)
	ready := hasAddress(service, v.Step.Address) || anyNodeReady(s.Nodes, s.NetworkID)
	said := says(service, blockCondition(v.Rejected.Reason, v.Rejected.Detail))
	changed := b.say(ctx, service, publishedConditions(s, v, ready)...)
	if v.Rejects() && changed && !said {
		b.config.Events.Event(service, corev1.EventTypeWarning, eventOf(v.Rejected.Reason), v.Rejected.Detail)
	}
	if !ready {
		status = nil
	}
	switch {
	case v.Rejects() || v.Tags != nil || len(v.Surplus) > 0:
		return status, b.besides(ctx, service, v, said || changed)
	case !ready:
		return nil, b.retry(service, reasonNoNodeReady)
	default:
		return status, nil
	}
}

// publishedConditions are what the Service says once its block is assigned.
func publishedConditions(s plan.Observed, v plan.ServicePlan, ready bool) []metav1.Condition {
	block := blockCondition(plan.BlockAssigned, words(plan.BlockAssigned))
	if v.Rejects() {
		block.Reason = string(v.Rejected.Reason)
		block.Message = v.Rejected.Detail
	}
	published := publishedCondition(ready, reasonNoNodeReady, words(reasonNoNodeReady))
	before := meta.FindStatusCondition(s.Service.Status.Conditions, contract.ServiceConditionAnnounced)
	return []metav1.Condition{block, published, announcement(s.Nodes, v.Step.Address, before)}
}

func (b *Balancer) recordPublished(ctx context.Context, s plan.Observed, step plan.Step, changes patch) {
	if changes.empty() {
		return
	}
	before := s.Published()
	if before == step.Address {
		if _, repaired := changes.annotations[contract.KubeVIPAddresses]; repaired || changes.spec != nil {
			b.config.Metrics.repaired(repairRepublished)
		}
		return
	}
	klog.FromContext(ctx).Info("Published an address", "service", klog.KObj(s.Service), "address", step.Address,
		"block", step.Block.ID)
	b.config.Events.Eventf(s.Service, corev1.EventTypeNormal, eventAssigned,
		"IP block %s (%s) is assigned to public network %s; the address is %s",
		step.Block.ID, step.Block.CIDR, step.Network, step.Address)
	if before.IsValid() {
		b.config.Events.Eventf(s.Service, corev1.EventTypeWarning, eventReplaced, "The address is %s now and was %s",
			step.Address, before)
	}
}

// publication is what the Service's metadata and spec lack. It is a compare-and-swap, because "where the
// user left it empty" is judged on the version that was read.
func publication(s plan.Observed, step plan.Step) patch {
	service := s.Service
	address := step.Address.String()
	wanted := map[string]any{
		contract.ServiceIPAddress:       address,
		contract.ServiceIPBlock:         step.Block.CIDR.String(),
		contract.ServiceIPGateway:       plan.Gateway(step.Block.CIDR).String(),
		contract.ServiceIPBlockAssigned: "true",
		contract.ServiceIPOwner:         string(service.UID),
	}
	maps.Copy(wanted, forKubeVIP(s, address))
	maps.Copy(wanted, forPeople(s, step.Address))
	if s.Purchase == nil || s.Listed(step.Block.ID) && (s.Purchase.BlockID == step.Block.ID ||
		s.Purchase.BlockID == "") || !s.Now.Before(s.Purchase.Time.Add(plan.PurchaseSettles)) {
		// From now on tags find the block; until then the recorded ID must.
		wanted[contract.ServiceIPPurchase] = nil
	}
	changes := patch{exactly: true, annotations: differing(service.Annotations, wanted)}
	if have := service.Spec.LoadBalancerIP; have != address && plan.UsersLoadBalancerIP(service) == "" {
		changes.spec = map[string]any{"loadBalancerIP": address}
	}
	return changes
}

// forKubeVIP is what kube-vip reads. Where the agents announce, it must not: what was written for it before is taken
// back.
func forKubeVIP(s plan.Observed, address string) map[string]any {
	if s.Options.Announcer == contract.AnnouncerAgent {
		if s.Service.Annotations[contract.KubeVIPAddresses] == address {
			return map[string]any{contract.KubeVIPAddresses: nil}
		}
		return nil
	}
	wanted := map[string]any{contract.KubeVIPAddresses: address}
	if vlanInterface := commonInterface(s.Nodes, s.NetworkID); vlanInterface != "" &&
		s.Service.Annotations[contract.KubeVIPInterface] == "" {
		wanted[contract.KubeVIPInterface] = vlanInterface
	}
	return wanted
}

// forPeople names the Node that announces the address, where kube-vip does not write that itself.
func forPeople(s plan.Observed, address netip.Addr) map[string]any {
	wanted := map[string]any{contract.ServiceAnnouncedBy: nil, contract.ServiceAnnouncedSince: nil}
	if s.Options.Announcer != contract.AnnouncerAgent {
		return wanted
	}
	node, since := announcerOf(s.Nodes, address)
	if node == "" {
		return wanted
	}
	wanted[contract.ServiceAnnouncedBy] = node
	wanted[contract.ServiceAnnouncedSince] = since.UTC().Format(time.RFC3339)
	have := s.Service.Annotations
	if before := have[contract.ServiceAnnouncedSince]; before != "" && have[contract.ServiceAnnouncedBy] == node {
		wanted[contract.ServiceAnnouncedSince] = before
	}
	return wanted
}

// statusFor is the status of a published Service. kube-vip compares the ports with those of the spec, in
// order, and withdraws the address when they differ.
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
func (b *Balancer) besides(ctx context.Context, service *corev1.Service, v plan.ServicePlan, reported bool) error {
	switch {
	case v.Tags != nil:
		if err := b.retag(ctx, service, v.Retag, v.Tags); err != nil && !isBadRequest(err) {
			return err
		}
		return b.retry(service, reasonRetagging)
	case len(v.Surplus) > 0:
		if _, err := b.takeFirst(ctx, service, v.Surplus); err != nil {
			return err
		}
		return b.retry(service, reasonSurplus)
	default:
		return &plan.Refusal{Reason: v.Rejected.Reason, Detail: v.Rejected.Detail, Reported: reported}
	}
}

// isBadRequest reports that the API did not understand, as it does not understand new tags for a while.
func isBadRequest(err error) bool {
	var failure *pnap.Error
	return errors.As(err, &failure) && failure.StatusCode == http.StatusBadRequest
}

// markUnassigned corrects the annotation of a published Service whose block is not assigned any more.
func (b *Balancer) markUnassigned(ctx context.Context, service *corev1.Service, step plan.Step) (*corev1.Service,
	error) {
	if service.Annotations[contract.ServiceIPBlockAssigned] != "true" || step.Block.ID == "" ||
		step.Block.Status == plan.Assigned {
		return service, nil
	}
	return b.patchService(ctx, service, patch{annotations: map[string]any{contract.ServiceIPBlockAssigned: "false"}})
}

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// publish tells the address of an assigned block: first to the announcer, by one patch of the Service,
// then to users, by the status, once a node can carry the traffic.
func (b *Balancer) publish(ctx context.Context, s observed, v servicePlan) (*corev1.LoadBalancerStatus, error) {
	changes := publication(s, v.step)
	service, err := b.patchService(ctx, s.service, changes)
	if err != nil {
		return nil, err
	}
	b.tellPublished(ctx, s, v.step, changes)
	status := statusFor(service, v.step.Address)
	ready := hasAddress(service, v.step.Address) || anyNodeReady(s.nodes, s.networkID)
	said := says(service, blockCondition(v.rejected.Reason, v.rejected.Detail))
	changed := b.say(ctx, service, publishedConditions(s, v, ready)...)
	if v.rejects() && changed && !said {
		b.config.Events.Event(service, corev1.EventTypeWarning, eventOf(v.rejected.Reason), v.rejected.Detail)
	}
	if !ready {
		status = nil
	}
	switch {
	case v.rejects() || v.tags != nil || len(v.surplus) > 0:
		return status, b.besides(ctx, service, v, said || changed)
	case !ready:
		return nil, b.retry(service, reasonNoNodeReady)
	default:
		return status, nil
	}
}

// publishedConditions are what the Service says once its block is assigned.
func publishedConditions(s observed, v servicePlan, ready bool) []metav1.Condition {
	block := blockCondition(plan.BlockAssigned, words(plan.BlockAssigned))
	if v.rejects() {
		block.Reason, block.Message = string(v.rejected.Reason), v.rejected.Detail
	}
	published := publishedCondition(ready, reasonNoNodeReady, words(reasonNoNodeReady))
	return []metav1.Condition{block, published, announcement(s.nodes, v.step.Address, announced(s.service))}
}

func (b *Balancer) tellPublished(ctx context.Context, s observed, step plan.Step, changes patch) {
	if changes.empty() {
		return
	}
	before := s.published()
	if before == step.Address {
		if _, repaired := changes.annotations[contract.KubeVIPAddresses]; repaired || changes.spec != nil {
			b.config.Metrics.repaired(repairRepublished)
		}
		return
	}
	klog.FromContext(ctx).Info("Published an address", "service", klog.KObj(s.service), "address", step.Address, "block", step.Block.ID)
	b.config.Events.Eventf(s.service, corev1.EventTypeNormal, eventAssigned, "IP block %s (%s) is assigned to public network %s; the address is %s",
		step.Block.ID, step.Block.CIDR, step.Network, step.Address)
	if before.IsValid() {
		b.config.Events.Eventf(s.service, corev1.EventTypeWarning, eventReplaced, "The address is %s now and was %s", step.Address, before)
	}
}

// publication is what the Service's metadata and spec lack. It is a compare-and-swap, because "where the
// user left it empty" is judged on the version that was read.
func publication(s observed, step plan.Step) patch {
	service, address := s.service, step.Address.String()
	wanted := map[string]any{
		contract.ServiceIPAddress:       address,
		contract.ServiceIPBlock:         step.Block.CIDR.String(),
		contract.ServiceIPGateway:       plan.Gateway(step.Block.CIDR).String(),
		contract.ServiceIPBlockAssigned: "true",
		contract.ServiceIPOwner:         string(service.UID),
	}
	maps.Copy(wanted, forKubeVIP(s, address))
	maps.Copy(wanted, forPeople(s, step.Address))
	if s.purchase == nil || s.listed(step.Block.ID) && (s.purchase.BlockID == step.Block.ID || s.purchase.BlockID == "") || !s.now.Before(s.purchase.Time.Add(plan.PurchaseSettles)) {
		// From now on tags find the block; until then the recorded ID must.
		wanted[contract.ServiceIPPurchase] = nil
	}
	changes := patch{exactly: true, annotations: differing(service.Annotations, wanted)}
	if have := service.Spec.LoadBalancerIP; have != address && usersLoadBalancerIP(service) == "" {
		changes.spec = map[string]any{"loadBalancerIP": address}
	}
	return changes
}

// forKubeVIP is what kube-vip reads. Where the agents announce, it must not: what was written for it before is taken back.
func forKubeVIP(s observed, address string) map[string]any {
	if s.options.announcer == contract.AnnouncerAgent {
		if s.service.Annotations[contract.KubeVIPAddresses] == address {
			return map[string]any{contract.KubeVIPAddresses: nil}
		}
		return nil
	}
	wanted := map[string]any{contract.KubeVIPAddresses: address}
	if vlanInterface := commonInterface(s.nodes, s.networkID); vlanInterface != "" && s.service.Annotations[contract.KubeVIPInterface] == "" {
		wanted[contract.KubeVIPInterface] = vlanInterface
	}
	return wanted
}

// forPeople names the Node that announces the address, where kube-vip does not write that itself.
func forPeople(s observed, address netip.Addr) map[string]any {
	wanted := map[string]any{contract.ServiceAnnouncedBy: nil, contract.ServiceAnnouncedSince: nil}
	if s.options.announcer != contract.AnnouncerAgent {
		return wanted
	}
	node, since := announcerOf(s.nodes, address)
	if node == "" {
		return wanted
	}
	wanted[contract.ServiceAnnouncedBy], wanted[contract.ServiceAnnouncedSince] = node, since.UTC().Format(time.RFC3339)
	have := s.service.Annotations
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
// account for each call. told reports whether users know of the rejected request.
func (b *Balancer) besides(ctx context.Context, service *corev1.Service, v servicePlan, told bool) error {
	switch {
	case v.tags != nil:
		if err := b.retag(ctx, service, v.retag, v.tags); err != nil && !isBadRequest(err) {
			return err
		}
		return b.retry(service, reasonRetagging)
	case len(v.surplus) > 0:
		if _, err := b.takeFirst(ctx, service, v.surplus); err != nil {
			return err
		}
		return b.retry(service, reasonSurplus)
	default:
		return &plan.Refusal{Reason: v.rejected.Reason, Detail: v.rejected.Detail, Reported: told}
	}
}

// isBadRequest tells that the API did not understand, as it does not understand new tags for a while.
func isBadRequest(err error) bool {
	var failure *pnap.Error
	return errors.As(err, &failure) && failure.StatusCode == http.StatusBadRequest
}

// markUnassigned corrects the annotation of a published Service whose block is not assigned any more.
func (b *Balancer) markUnassigned(ctx context.Context, service *corev1.Service, step plan.Step) (*corev1.Service, error) {
	if service.Annotations[contract.ServiceIPBlockAssigned] != "true" || step.Block.ID == "" || step.Block.Status == plan.Assigned {
		return service, nil
	}
	return b.patchService(ctx, service, patch{annotations: map[string]any{contract.ServiceIPBlockAssigned: "false"}})
}

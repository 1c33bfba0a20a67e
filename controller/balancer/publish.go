package balancer

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/ipblock"
)

// publish tells the address of an assigned block: first to the announcer, by one patch of the Service,
// then to users, by the status, once a node can carry the traffic.
func (b *Balancer) publish(ctx context.Context, e ensuring, step ipblock.Step) (*corev1.LoadBalancerStatus, error) {
	nodes, err := b.config.Nodes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	changes := publication(e, step, commonInterface(nodes, b.config.NetworkID))
	service, err := b.apply(ctx, e.service, changes)
	if err != nil {
		return nil, err
	}
	if _, isNew := changes.annotations[contract.ServiceIPAddress]; isNew {
		klog.FromContext(ctx).Info("Published an address", "service", klog.KObj(service), "address", step.Address, "block", step.Block.ID)
		b.config.Events.Eventf(service, corev1.EventTypeNormal, eventAssigned, "IP block %s (%s) is assigned to public network %s; the address is %s",
			step.Block.ID, step.Block.CIDR, step.Network, step.Address)
	}
	b.noteQuietly(ctx, service, ipblock.BlockAssigned, words(ipblock.BlockAssigned))

	status := statusFor(service, step.Address)
	ready := hasAddress(service, step.Address) || anyNodeReady(nodes, b.config.NetworkID)
	if duplicates := ipblock.Duplicates(e.owner, e.wish, e.view); len(duplicates) > 0 && duplicates[0].Action != ipblock.Refuse {
		return nil, b.collapse(ctx, service, duplicates, status, ready)
	}
	if !ready {
		return nil, api.NewRetryError(words(reasonNoNodeReady), b.config.Interval)
	}
	return status, nil
}

// publication is what the Service's metadata and spec lack. It is a compare-and-swap, because "where the
// user left it empty" is judged on the version that was read.
func publication(e ensuring, step ipblock.Step, vlanInterface string) patch {
	wanted := map[string]any{
		contract.KubeVIPAddresses:       step.Address.String(),
		contract.ServiceIPAddress:       step.Address.String(),
		contract.ServiceIPBlock:         step.Block.CIDR.String(),
		contract.ServiceIPGateway:       ipblock.Gateway(step.Block.CIDR).String(),
		contract.ServiceIPBlockAssigned: "true",
	}
	if vlanInterface != "" && e.service.Annotations[contract.KubeVIPInterface] == "" {
		wanted[contract.KubeVIPInterface] = vlanInterface
	}
	if e.seen.listed(step.Block.ID) {
		// From now on tags find the block; until then the recorded ID must.
		wanted[contract.ServiceIPPurchase] = nil
	}
	changes := patch{exactly: true, annotations: differing(e.service.Annotations, wanted)}
	if have := e.service.Spec.LoadBalancerIP; have == "" || (have != step.Address.String() && have == e.service.Annotations[contract.ServiceIPAddress]) {
		changes.spec = map[string]any{"loadBalancerIP": step.Address.String()}
	}
	return changes
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

// collapse gives back a block too many, one step for each call. Asking the framework to call again keeps
// it from writing the status, so that is written here.
func (b *Balancer) collapse(ctx context.Context, service *corev1.Service, steps []ipblock.Step, status *corev1.LoadBalancerStatus, ready bool) error {
	if ready && !hasAddress(service, netip.MustParseAddr(status.Ingress[0].IP)) {
		if err := b.patchStatus(ctx, service, false, map[string]any{"loadBalancer": status}); err != nil {
			return err
		}
	}
	if _, err := b.takeFirst(ctx, service, steps); err != nil {
		return err
	}
	return api.NewRetryError("waiting for an IP block too many to be released", b.config.Interval)
}

// markUnassigned corrects the annotation of a published Service whose block is not assigned any more.
func (b *Balancer) markUnassigned(ctx context.Context, service *corev1.Service, step ipblock.Step) (*corev1.Service, error) {
	if service.Annotations[contract.ServiceIPBlockAssigned] != "true" || step.Block.ID == "" || step.Block.Status == ipblock.Assigned {
		return service, nil
	}
	return b.apply(ctx, service, patch{annotations: map[string]any{contract.ServiceIPBlockAssigned: "false"}})
}

// bearsMarks tells whether the controller has written on the Service.
func bearsMarks(service *corev1.Service) bool {
	return service.Annotations[contract.ServiceIPAddress] != "" ||
		meta.FindStatusCondition(service.Status.Conditions, contract.ServiceConditionBlockAssigned) != nil
}

// withdrawal removes what publication wrote. A value that a user chose stays.
func withdrawal(service *corev1.Service, vlanInterface string) patch {
	address := service.Annotations[contract.ServiceIPAddress]
	wanted := map[string]any{
		contract.ServiceIPAddress:       nil,
		contract.ServiceIPBlock:         nil,
		contract.ServiceIPGateway:       nil,
		contract.ServiceIPBlockAssigned: nil,
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

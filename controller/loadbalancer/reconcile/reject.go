package reconcile

import (
	"context"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// reject refuses the Service. When its block is lost, the published address is withdrawn as well: phoenixNAP
// may sell it to anybody, and whoever announces it would answer in their place. What tells that there was
// one stays, so that another one is bought only where the user allows it.
func (b *Balancer) reject(ctx context.Context, s observed, step plan.Step) (*corev1.LoadBalancerStatus, error) {
	address := s.published()
	if step.Reason != plan.BlockLost || !s.abandoned(address) {
		return nil, b.refuse(ctx, s.service, step)
	}
	service, err := b.patchService(ctx, s.service, silence(s.service, address))
	if err != nil {
		return nil, err
	}
	if service != s.service {
		klog.FromContext(ctx).Info("Withdrew the address of a lost block", "service", klog.KObj(service), "address", address)
	}
	return &corev1.LoadBalancerStatus{}, b.refuse(ctx, service, step)
}

// abandoned tells whether an address certainly leads to nobody of ours: the public network can be read, so the
// credentials are those of the right account, and none of its blocks has the address, or one that bears
// somebody else's tags.
func (s observed) abandoned(address netip.Addr) bool {
	network, readable := s.networks[s.networkID]
	if !readable || !address.IsValid() {
		return false
	}
	return !slices.ContainsFunc(network.Blocks, func(n plan.NetworkBlock) bool {
		return (!n.CIDR.IsValid() || n.CIDR.Contains(address)) && !s.anothers(n.ID)
	})
}

// anothers tells whether a block bears the tags of another Service of the cluster.
func (s observed) anothers(blockID string) bool {
	block := s.block(blockID)
	return plan.OfCluster(block, s.owner.Cluster) && !s.owner.Owns(block) && purposed(block)
}

// silence takes off a Service what announcers read.
func silence(service *corev1.Service, address netip.Addr) patch {
	wanted := map[string]any{contract.ServiceIPBlockAssigned: "false"}
	if service.Annotations[contract.KubeVIPAddresses] == address.String() {
		wanted[contract.KubeVIPAddresses] = nil
	}
	changes := patch{exactly: true, annotations: differing(service.Annotations, wanted)}
	if service.Spec.LoadBalancerIP == address.String() && usersLoadBalancerIP(service) == "" {
		changes.spec = map[string]any{"loadBalancerIP": nil}
	}
	return changes
}

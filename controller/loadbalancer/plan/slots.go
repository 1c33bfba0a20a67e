package plan

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// explainFull completes the refusal of a Service for which the network has no slot. A block of which an address is
// published, or asked for, is never released.
func (obs Observed) explainFull(step ipblock.Step) ipblock.Step {
	if step.Reason != ipblock.NetworkFull {
		return step
	}
	if obs.couldShare() {
		step.Detail += fmt.Sprintf("; a shared IP block of this cluster has a free address: set the annotation "+
			"%s to %s",
			contract.ServiceIPAllocation, contract.AllocationShared)
	}
	if taken := obs.Public().Taken(obs.Owner.Cluster, obs.Known()); taken != "" {
		step.Detail += "; the slots are held: " + taken
	}
	b := step.Block
	if !b.CIDR.IsValid() || obs.Desired.Requested.IsValid() ||
		!network.OfCluster(b, obs.Owner.Cluster) ||
		slices.ContainsFunc(append([]*corev1.Service{obs.Service}, obs.Services...),
			func(s *corev1.Service) bool { return b.CIDR.Contains(lastAddress(s)) }) {
		return step
	}
	return obs.NetworkSlots.ReleaseUnassigned(step, obs.Now)
}

// couldShare reports whether the Service would get an address at once if it asked for a shared one. Elsewhere that is
// no advice for a full network: the first Service that shares needs a block, too.
func (obs Observed) couldShare() bool {
	if obs.Desired.Shared || obs.Desired.IPBlock != "" || obs.Published.IsValid() {
		return false
	}
	return slices.ContainsFunc(obs.Known(), func(b network.Block) bool {
		l, stored := obs.Ledger(b.ID)
		_, _, free := l.Count()
		return stored && obs.Pool().Owns(b) && b.Status == network.Assigned && b.ResourceID == obs.Network.ID &&
			!l.Closed && !l.Deleted && free > 0
	})
}

// boughtUnseen reports whether the list may lack the block that was bought for the Service: it lags, and a look at what
// is cached does not show that there is a block to be released.
func (obs Observed) boughtUnseen() bool {
	return !obs.Live && obs.Purchase != nil && obs.Purchase.BlockID != "" && !obs.Listed(obs.Purchase.BlockID) &&
		obs.Now.Sub(obs.Purchase.Time) < ipblock.UnassignedFor
}

// coming reports whether another block of the cluster is about to take a slot of the network.
func (obs Observed) coming() bool {
	return slices.ContainsFunc(obs.Known(), func(b network.Block) bool {
		return network.OfCluster(b, obs.Owner.Cluster) && obs.Public().Awaits(b) && obs.needsSlot(b) &&
			obs.NetworkSlots.Coming(b, obs.Now)
	})
}

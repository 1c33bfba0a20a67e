package plan

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// namedBy is the name of the IPBlock that a Service names; empty when it names none.
func namedBy(service *corev1.Service) string {
	return strings.TrimSpace(service.Annotations[contract.ServiceIPBlock])
}

// IsBrought reports whether Services of the cluster may name a block: of one namespace at least.
func (obs Observed) IsBrought(b network.Block) bool {
	return network.Brought(b, obs.Owner.Cluster, obs.BroughtBlocks.IDs())
}

// IsGivenUp reports whether a block is brought, or was until a person deleted its object.
func (obs Observed) IsGivenUp(b network.Block, l ipblock.Ledger) bool {
	return obs.IsBrought(b) || l.Deleted && l.Brought && network.Brought(b, obs.Owner.Cluster, []string{b.ID})
}

// blockID is the form of every ID of the API.
var blockID = regexp.MustCompile(`^[0-9a-f]{24}$`)

// refuseName refuses a Service that names an IPBlock which is not there, or which it may not name. Its author learns
// nothing of the block.
func (obs Observed) refuseName() (refusal ServicePlan, refused bool) {
	name := obs.Desired.IPBlock
	if obs.namesNoBrought() || obs.NamedBlock != "" {
		return ServicePlan{}, false
	}
	refuse := func(format string, args ...any) (ServicePlan, bool) {
		named := fmt.Sprintf("IPBlock %s, which annotation %s names, ", name, contract.ServiceIPBlock)
		return refusedPlan(ipblock.BlockUnusable, "%s%s", named, fmt.Sprintf(format, args...)), true
	}
	switch {
	case slices.ContainsFunc(obs.BroughtBlocks, func(d ipblock.BroughtBlock) bool { return d.Object == name }):
		return refuse("is not for namespace %s: name another one, or have an administrator add the namespace to "+
			"spec.allowedNamespaces of IPBlock %s", obs.Holder.Namespace, name)
	case slices.Contains(obs.IPBlocks, name):
		return refuse("is not for Services to name: name one with purpose Shared, or remove the annotation")
	case blockID.MatchString(name):
		return obs.refuseID(name), true
	case obs.Published.IsValid():
		return refuse("is not in the cluster any more: have an administrator create it again, with source Brought, "+
			"for the block of address %s", obs.Published)
	default:
		return refuse("is not in the cluster: name another one, or have an administrator create it with purpose Shared")
	}
}

// refuseID refuses a Service with the ID of a block in the place of a name.
func (obs Observed) refuseID(id string) ServicePlan {
	remedy := "have an administrator create an IPBlock with source Brought for the block, and set it to that name"
	if declared, found := obs.BroughtBlocks.Of(id, obs.Holder.Namespace); found {
		remedy = "set it to " + declared.Object
	}
	return refusedPlan(ipblock.BlockUnusable, "annotation %s takes the name of an IPBlock and not the ID of a block, "+
		"such as %s; %s", contract.ServiceIPBlock, id, remedy)
}

// refuseNamed refuses a Service whose IPBlock is of a block that no Service may use.
func (obs Observed) refuseNamed(b network.Block) (refusal ServicePlan, refused bool) {
	refuse := func(format string, args ...any) (ServicePlan, bool) {
		return refusedPlan(ipblock.BlockUnusable, "%s %s", obs.describeNamed(b.ID), fmt.Sprintf(format, args...)), true
	}
	switch _, allowed := obs.BroughtBlocks.Of(b.ID, obs.Holder.Namespace); {
	case obs.BroughtForNodes.Names(b.ID):
		return refuse("is that of the nodes by another IPBlock, with purpose Nodes; name another one")
	case !obs.IsBrought(b):
		return refuse("was bought for something else, or has the tag %s of another cluster; name another one, or "+
			"remove its tags in the phoenixNAP portal", contract.TagCluster)
	case !allowed:
		return refuse("is not for namespace %s: name another one, or have an administrator add the namespace to "+
			"spec.allowedNamespaces of its IPBlock", obs.Holder.Namespace)
	}
	return ServicePlan{}, false
}

// notOfNamed reports whether the Service has an address of another block of the account than its IPBlock is of, and no
// ledger says so: an administrator created the IPBlock again, for another block.
func (obs Observed) notOfNamed() bool {
	named, _ := obs.Sighting(obs.NamedBlock)
	return !obs.Held.IsValid() && named.Block.CIDR.IsValid() && !named.Block.CIDR.Contains(obs.Published) &&
		slices.ContainsFunc(obs.Known(), func(b network.Block) bool {
			return b.CIDR.IsValid() && b.CIDR.Contains(obs.Published) && !obs.anothers(b.ID)
		})
}

// describeNamed describes the block from which the Service is to get its address, as its author knows it.
func (obs Observed) describeNamed(id string) string {
	if obs.Desired.IPBlock == "" {
		return "IP block " + id
	}
	return fmt.Sprintf("IP block %s of IPBlock %s, which annotation %s names,", id, obs.Desired.IPBlock,
		contract.ServiceIPBlock)
}

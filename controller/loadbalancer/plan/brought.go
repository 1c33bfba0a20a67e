package plan

import (
	"fmt"
	"slices"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// BroughtBlock is an IPBlock of source Brought, with which a person says that Services may name a block of the account.
type BroughtBlock struct {
	// Object is the name of the IPBlock, and BlockID the block.
	Object, BlockID string
	// Namespaces are those whose Services may name the block; none for all.
	Namespaces []string
}

// BroughtBlocks are all of them.
type BroughtBlocks []BroughtBlock

// IDs are those of the declared blocks.
func (all BroughtBlocks) IDs() []string {
	ids := make([]string, 0, len(all))
	for _, d := range all {
		ids = append(ids, d.BlockID)
	}
	return ids
}

// of are the declarations of a block.
func (all BroughtBlocks) of(blockID string) BroughtBlocks {
	return slices.DeleteFunc(slices.Clone(all), func(d BroughtBlock) bool { return d.BlockID != blockID })
}

// allow reports whether one of the declarations lets Services of a namespace name its block.
func (all BroughtBlocks) allow(namespace string) bool {
	return slices.ContainsFunc(all, func(d BroughtBlock) bool {
		return len(d.Namespaces) == 0 || slices.Contains(d.Namespaces, namespace)
	})
}

// IsBrought reports whether Services of the cluster may name a block: of one namespace at least.
func (obs Observed) IsBrought(b network.Block) bool {
	return network.Brought(b, obs.Owner.Cluster, obs.BroughtBlocks.IDs())
}

// refuseNaming refuses a Service that names a block without permission.
func (obs Observed) refuseNaming(b network.Block) (refusal ServicePlan, refused bool) {
	declared := obs.BroughtBlocks.of(b.ID)
	refuse := func(format string, args ...any) (ServicePlan, bool) {
		named := fmt.Sprintf("IP block %s, which annotation %s names, ", b.ID, contract.ServiceIPBlockID)
		return refusedPlan(BlockUnusable, "%s%s", named, fmt.Sprintf(format, args...)), true
	}
	switch {
	case b.ID == obs.Options.NodeBlock:
		return refuse("is that of the nodes (option nodeIPBlock); name another block")
	case len(declared) == 0:
		return refuse("may not be named: have an administrator create an IPBlock with source Brought for it, or name " +
			"another block")
	case !obs.IsBrought(b):
		return refuse("was bought for something else, or has the tag %s of another cluster; name another block, or "+
			"remove its tags in the phoenixNAP portal", contract.TagCluster)
	case !declared.allow(obs.Holder.Namespace):
		return refuse("is not for namespace %s: name another block, or have an administrator add the namespace to "+
			"spec.allowedNamespaces of IPBlock %s", obs.Holder.Namespace, declared[0].Object)
	}
	return ServicePlan{}, false
}

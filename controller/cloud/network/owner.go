package network

import (
	"fmt"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Owner is what a bought block is for: a Service, a pool of shared addresses, or the nodes' own
// addresses. Exactly one of Name, Pool and Nodes is set. It is comparable and may be the key of a map.
type Owner struct {
	// Cluster is the UID of the namespace kube-system.
	Cluster string
	// Namespace and Name of the Service of a dedicated block.
	Namespace, Name string
	// Pool is the name of the pool of a shared block: that of the PublicNetwork that has it.
	Pool string
	// Nodes is the name of the PublicNetwork in which nodes get their own addresses from the block.
	Nodes string
}

// String says in words what the block is for.
func (o Owner) String() string {
	switch {
	case o.Nodes == v1beta1.DefaultNetwork:
		return "nodes"
	case o.Nodes != "":
		return "nodes of " + o.Nodes
	case o.Pool != "":
		return "pool " + o.Pool
	default:
		return "Service " + o.Namespace + "/" + o.Name
	}
}

// Description begins the description of every block that is bought for the owner. It stays with the block whatever
// happens to its tags.
func (o Owner) Description() string {
	return fmt.Sprintf("Kubernetes cluster %s, %s", o.Cluster, o)
}

// DescribedBy reports whether a block without any tag was bought for the owner according to its description. A person
// who gave it other tags has taken it.
func (o Owner) DescribedBy(b Block) bool {
	return len(b.Tags) == 0 && b.Sold() && strings.HasPrefix(b.Description, o.Description()+", ")
}

// Tag is the name and value of the tag that distinguishes the owner's blocks from others of the cluster.
func (o Owner) Tag() (name, value string) {
	switch {
	case o.Nodes != "":
		return contract.TagNodes, o.nodesTag()
	case o.Pool != "":
		return contract.TagPool, o.Pool
	default:
		return contract.TagService, contract.ServiceTag(o.Namespace, o.Name)
	}
}

// nodesTag is the value of the tag of a block of nodes: in the default network the cluster, as it was before there were
// others.
func (o Owner) nodesTag() string {
	if o.Nodes == v1beta1.DefaultNetwork {
		return o.Cluster
	}
	return o.Cluster + "_" + o.Nodes
}

// OfNodes reports whether the block was bought for the nodes of the cluster in any network.
func OfNodes(cluster string, b Block) bool {
	return OfCluster(b, cluster) && !taggedForService(b) && b.Tags[contract.TagPool] == "" && TaggedForNodes(cluster, b)
}

// TaggedForNodes reports whether the tag of nodes names the cluster, with whatever network.
func TaggedForNodes(cluster string, b Block) bool {
	return b.Tags[contract.TagNodes] == cluster || strings.HasPrefix(b.Tags[contract.TagNodes], cluster+"_")
}

// Tags are what a block bought for the owner carries.
func (o Owner) Tags() map[string]string {
	name, value := o.Tag()
	return map[string]string{contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: o.Cluster, name: value}
}

// Owns reports whether the block is provably the owner's: bought by this provider, for this cluster and for
// this purpose. A block that the account's owner brought has no owner. No two owners own the same block: a
// tag of a Service goes before one of a pool, and that before one of the nodes. Blocks of v1 of this
// provider carry two tags, namespace and name, in the place of one; they count, with their tags as they are.
func (o Owner) Owns(b Block) bool {
	if !OfCluster(b, o.Cluster) {
		return false
	}
	switch {
	case o.Nodes != "":
		return !taggedForService(b) && b.Tags[contract.TagPool] == "" && b.Tags[contract.TagNodes] == o.nodesTag()
	case o.Pool != "":
		return !taggedForService(b) && b.Tags[contract.TagPool] == o.Pool
	default:
		return o.ownsAsService(b)
	}
}

func (o Owner) ownsAsService(b Block) bool {
	if service, tagged := b.Tags[contract.TagService]; tagged {
		return o.Name != "" && service == contract.ServiceTag(o.Namespace, o.Name)
	}
	namespace := b.Tags[contract.TagServiceNamespace]
	name := b.Tags[contract.TagServiceName]
	return name != "" && namespace == o.Namespace && name == o.Name
}

func taggedForService(b Block) bool {
	_, tagged := b.Tags[contract.TagService]
	return tagged || b.Tags[contract.TagServiceName] != ""
}

// NodesOwner is the owner of the blocks from which nodes get their own addresses in a public network of a cluster.
func NodesOwner(cluster, network string) Owner { return Owner{Cluster: cluster, Nodes: network} }

// PoolOwner is the owner of the blocks that the Services of a public network of a cluster share.
func PoolOwner(cluster, network string) Owner { return Owner{Cluster: cluster, Pool: network} }

package ipblock

import "github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"

// Owner is the Service that a dedicated block belongs to.
type Owner struct {
	// Cluster is the UID of the namespace kube-system.
	Cluster string
	// Namespace and Name of the Service.
	Namespace, Name string
}

// Tags are what a block bought for the Service carries.
func (o Owner) Tags() map[string]string {
	return map[string]string{
		contract.TagUsage:   contract.TagUsageAuto,
		contract.TagCluster: o.Cluster,
		contract.TagService: contract.ServiceTag(o.Namespace, o.Name),
	}
}

// Owns tells whether the block is provably the Service's: bought by this provider, for this cluster and
// for this Service. A block that the account's owner brought is nobody's. Blocks of v1 of this provider
// carry two tags, namespace and name, in the place of one; they count, with their tags as they are.
func (o Owner) Owns(b Block) bool {
	if !OfCluster(b, o.Cluster) {
		return false
	}
	if service, tagged := b.Tags[contract.TagService]; tagged {
		return service == contract.ServiceTag(o.Namespace, o.Name)
	}
	namespace, name := b.Tags[contract.TagServiceNamespace], b.Tags[contract.TagServiceName]
	return name != "" && namespace == o.Namespace && name == o.Name
}

// OfCluster tells whether this provider bought the block for the cluster, for whichever purpose.
func OfCluster(b Block, cluster string) bool {
	return cluster != "" && !b.BringYourOwn &&
		b.Tags[contract.TagUsage] == contract.TagUsageAuto && b.Tags[contract.TagCluster] == cluster
}

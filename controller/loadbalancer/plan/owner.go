package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Owner is what a bought block is for: a Service, a pool of shared addresses, or the nodes' own
// addresses. Exactly one of Name, Pool and Nodes is set. It is comparable and may be the key of a map.
type Owner struct {
	// Cluster is the UID of the namespace kube-system.
	Cluster string
	// Namespace and Name of the Service of a dedicated block.
	Namespace, Name string
	// Pool is the name of the pool of a shared block, such as contract.PoolDefault.
	Pool string
	// Nodes marks the block from which nodes get their own addresses.
	Nodes bool
}

// String says in words what the block is for.
func (o Owner) String() string {
	switch {
	case o.Nodes:
		return "nodes"
	case o.Pool != "":
		return "pool " + o.Pool
	default:
		return "Service " + o.Namespace + "/" + o.Name
	}
}

// Description begins the description of every block that is bought for the owner. It stays with the block whatever
// happens to its tags.
func (o Owner) Description() string { return fmt.Sprintf("Kubernetes cluster %s, %s", o.Cluster, o) }

// describedBy reports whether a block without any tag was bought for the owner according to its description. A person
// who gave it other tags has taken it.
func (o Owner) describedBy(b Block) bool {
	return len(b.Tags) == 0 && b.sold() && strings.HasPrefix(b.Description, o.Description()+", ")
}

// Tag is the name and value of the tag that distinguishes the owner's blocks from others of the cluster.
func (o Owner) Tag() (name, value string) {
	switch {
	case o.Nodes:
		return contract.TagNodes, o.Cluster
	case o.Pool != "":
		return contract.TagPool, o.Pool
	default:
		return contract.TagService, contract.ServiceTag(o.Namespace, o.Name)
	}
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
	case o.Nodes:
		return !taggedForService(b) && b.Tags[contract.TagPool] == "" && b.Tags[contract.TagNodes] == o.Cluster
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

// OfCluster reports whether this provider bought the block for the cluster, for whichever purpose.
func OfCluster(b Block, cluster string) bool {
	return cluster != "" && b.sold() &&
		b.Tags[contract.TagUsage] == contract.TagUsageAuto && b.Tags[contract.TagCluster] == cluster
}

// Brought reports whether a Service of the cluster may name the block by its ID: it carries the tag of the
// cluster, or its ID is among the configured ones. A block that this provider bought, for whichever
// cluster, belongs to the life of something else and may not be named; parts of it may, for they were not bought.
func Brought(b Block, cluster string, configured []string) bool {
	if b.ID == "" || b.SystemManaged || b.Tags[contract.TagUsage] == contract.TagUsageAuto && !b.Part {
		return false
	}
	return (cluster != "" && b.Tags[contract.TagCluster] == cluster) || slices.Contains(configured, b.ID)
}

// Retained reports whether the block outlives its Service: it is never deleted.
func Retained(b Block) bool { return b.Tags[contract.TagRetain] == contract.TagTrue }

// RetainTags returns all tags that the block is to carry when it is, or is no longer, to outlive its
// Service, and whether that differs from what it carries.
func RetainTags(b Block, retain bool) (tags map[string]string, differ bool) {
	tags = maps.Collect(maps.All(b.Tags))
	delete(tags, contract.TagRetain)
	if retain {
		tags[contract.TagRetain] = contract.TagTrue
	}
	return tags, retain != Retained(b)
}

// OwnerOf is the owner of the blocks that are bought for the Service only.
func OwnerOf(service *corev1.Service, cluster string) Owner {
	return Owner{Cluster: cluster, Namespace: service.Namespace, Name: service.Name}
}

// PoolOwner is the owner of the blocks that the Services of a cluster share.
func PoolOwner(cluster string) Owner {
	return Owner{Cluster: cluster, Pool: contract.PoolDefault}
}

// HolderOf is the name of the Service in ledgers.
func HolderOf(service *corev1.Service) Holder {
	return Holder{Namespace: service.Namespace, Name: service.Name, UID: string(service.UID)}
}

// ClaimedAddress returns the address that the controller's annotation names, whoever wrote it; the zero Addr when
// there is none.
func ClaimedAddress(service *corev1.Service) netip.Addr {
	address, err := netip.ParseAddr(service.Annotations[contract.ServiceIPAddress])
	if err != nil {
		return netip.Addr{}
	}
	return address.Unmap()
}

// UsersLoadBalancerIP returns spec.loadBalancerIP unless the controller wrote it, in this life or another.
func UsersLoadBalancerIP(service *corev1.Service) string {
	if service.Spec.LoadBalancerIP == service.Annotations[contract.ServiceIPAddress] {
		return ""
	}
	return service.Spec.LoadBalancerIP
}

// RecordedPurchase reads the intent to buy that stands on the Service; nil when there is none, or one that was
// written for another Service.
func RecordedPurchase(service *corev1.Service) (*contract.Purchase, error) {
	if !contract.WrittenForThis(service) {
		return nil, nil
	}
	recorded, err := contract.ParsePurchase(service.Annotations[contract.ServiceIPPurchase])
	if err != nil {
		return nil, fmt.Errorf("%w; remove the annotation if no IP block was bought", err)
	}
	return recorded, nil
}

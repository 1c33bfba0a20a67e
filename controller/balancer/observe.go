package balancer

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/ipblock"
)

// observation is what the account shows about one Service.
type observation struct {
	// sightings are the blocks that may be the Service's.
	sightings []ipblock.Sighting
	// cluster are all blocks that were bought for the cluster, as listed.
	cluster []ipblock.Block
	// networks by ID, those that could be read.
	networks map[string]ipblock.Network
}

// listed tells whether the list of blocks names the block. A new block may take some seconds to show.
func (o observation) listed(blockID string) bool {
	return slices.ContainsFunc(o.cluster, func(b ipblock.Block) bool { return b.ID == blockID })
}

// owner names the Service to the account.
func (b *Balancer) owner(ctx context.Context, service *corev1.Service) (ipblock.Owner, error) {
	cluster, err := b.cluster(ctx)
	if err != nil {
		return ipblock.Owner{}, err
	}
	return ownerOf(service, cluster), nil
}

// cluster returns the UID of the namespace kube-system, which stays the same for the life of a cluster.
func (b *Balancer) cluster(ctx context.Context) (string, error) {
	b.clusterMu.Lock()
	defer b.clusterMu.Unlock()
	if b.clusterID != "" {
		return b.clusterID, nil
	}
	namespace, err := b.config.Kube.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read the UID of namespace %s, which names the cluster: %w", metav1.NamespaceSystem, err)
	}
	if namespace.UID == "" {
		return "", fmt.Errorf("namespace %s has no UID to name the cluster by", metav1.NamespaceSystem)
	}
	b.clusterID = string(namespace.UID)
	return b.clusterID, nil
}

// observe reads blocks and networks.
func (b *Balancer) observe(ctx context.Context, owner ipblock.Owner, purchase *contract.Purchase) (observation, error) {
	seen, err := b.observeBlocks(ctx, owner, purchase)
	if err != nil {
		return observation{}, err
	}
	seen.networks, err = b.observeNetworks(ctx, owner, seen.sightings)
	return seen, err
}

// observeBlocks finds the Service's blocks: by the tags in the list, by the ID that the purchase
// recorded and, when both show nothing, by the tag's own index. Each is then read by ID, because a list
// may lag behind.
func (b *Balancer) observeBlocks(ctx context.Context, owner ipblock.Owner, purchase *contract.Purchase) (observation, error) {
	listed, err := b.config.Cloud.Blocks(ctx, map[string]string{
		contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: owner.Cluster,
	})
	if err != nil {
		return observation{}, err
	}
	seen := observation{}
	for _, block := range listed {
		if ipblock.OfCluster(block, owner.Cluster) {
			seen.cluster = append(seen.cluster, block)
		}
	}
	if err := b.sightListed(ctx, owner, &seen); err != nil {
		return observation{}, err
	}
	if purchase != nil && purchase.BlockID != "" && !seen.listed(purchase.BlockID) {
		if err := b.sightUnlisted(ctx, purchase.BlockID, &seen); err != nil {
			return observation{}, err
		}
	}
	if len(seen.sightings) == 0 {
		if err := b.sightTagged(ctx, owner, &seen); err != nil {
			return observation{}, err
		}
	}
	return seen, nil
}

func (b *Balancer) sightListed(ctx context.Context, owner ipblock.Owner, seen *observation) error {
	for _, listed := range seen.cluster {
		if !owner.Owns(listed) {
			continue
		}
		block, err := b.config.Cloud.Block(ctx, listed.ID)
		switch {
		case err == nil:
			seen.sightings = append(seen.sightings, ipblock.Sighting{Block: block})
		case pnap.IsInaccessible(err):
			seen.sightings = append(seen.sightings, ipblock.Sighting{Block: listed, Hidden: true})
		default:
			return err
		}
	}
	return nil
}

// sightUnlisted reads a block that the list does not show. That it cannot be read either is no error:
// list and block agree.
func (b *Balancer) sightUnlisted(ctx context.Context, id string, seen *observation) error {
	block, err := b.config.Cloud.Block(ctx, id)
	switch {
	case err == nil:
		seen.sightings = append(seen.sightings, ipblock.Sighting{Block: block})
		return nil
	case pnap.IsInaccessible(err):
		return nil
	default:
		return err
	}
}

func (b *Balancer) sightTagged(ctx context.Context, owner ipblock.Owner, seen *observation) error {
	assignments, err := b.config.Cloud.TagAssignments(ctx, contract.TagService)
	if err != nil {
		return err
	}
	tag := contract.ServiceTag(owner.Namespace, owner.Name)
	for _, id := range slices.Sorted(maps.Keys(assignments)) {
		if assignments[id] != tag {
			continue
		}
		if err := b.sightUnlisted(ctx, id, seen); err != nil {
			return err
		}
	}
	return nil
}

// observeNetworks reads the configured network and those that hold one of the owner's blocks.
func (b *Balancer) observeNetworks(ctx context.Context, owner ipblock.Owner, sightings []ipblock.Sighting) (map[string]ipblock.Network, error) {
	networks := map[string]ipblock.Network{}
	ids := []string{b.config.NetworkID}
	for _, s := range sightings {
		if owner.Owns(s.Block) && s.Block.ResourceID != "" && s.Block.ResourceType != "server" {
			ids = append(ids, s.Block.ResourceID)
		}
	}
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		network, err := b.config.Cloud.Network(ctx, id)
		switch {
		case err == nil:
			networks[id] = network
		case pnap.IsInaccessible(err):
		default:
			return nil, err
		}
	}
	return networks, nil
}

func (b *Balancer) view(seen observation, purchase *contract.Purchase) ipblock.View {
	return ipblock.View{
		Now:       b.config.Now(),
		Sightings: seen.sightings,
		Networks:  seen.networks,
		NetworkID: b.config.NetworkID,
		Purchase:  purchase,
	}
}

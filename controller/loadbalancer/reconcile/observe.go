package reconcile

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// observed is everything that a decision about one Service looks at.
type observed struct {
	service *corev1.Service
	owner   plan.Owner
	holder  plan.Holder
	desired desired
	// problem is what is wrong with what is desired.
	problem error
	// purchase and poolPurchase are the recorded intents to buy, for the Service and for the pool. The
	// latter is read only when the account is read live.
	purchase, poolPurchase *contract.Purchase

	// live is true when blocks were read by ID and ledgers afresh, see depth.
	live bool
	// askedAt is when the list of blocks was asked for.
	askedAt time.Time
	// blocks are all blocks of the account, as listed.
	blocks []plan.Block
	// ours is set once a look has shown a block of this cluster: the account is the right one even where the public network
	// was deleted.
	ours bool
	// unlisted are the blocks of the cluster that the list lacks. They are looked for where they count: before a
	// purchase that --max-ip-blocks bounds.
	unlisted []plan.Block
	// sightings are the blocks that matter to the Service.
	sightings []plan.Sighting
	networks  map[string]plan.Network
	networkID string
	// options are how the controller is configured.
	options  options
	ledgers  []plan.Ledger
	nodes    []*corev1.Node
	services []*corev1.Service
	// restingSince is since when the Service waits for an address in quarantine; now when it does not.
	restingSince time.Time
	// leavingSince is since when the Service is known to be on its way out; the zero Time when that is news.
	leavingSince time.Time
	now          time.Time
}

// depth is how current an observation has to be.
type depth struct {
	// after is the time since which the account must have been looked at; zero for whatever is known.
	after time.Time
	// live asks for blocks by ID, the tags' own index and live ledgers: nothing is bought, deleted or
	// given without.
	live bool
}

// beginObservation observes what can be known without the account.
func (b *Balancer) beginObservation(ctx context.Context, service *corev1.Service) (observed, error) {
	owner, err := b.owner(ctx, service)
	if err != nil {
		return observed{}, err
	}
	s := observed{service: service, owner: owner, holder: holderOf(service), networkID: b.config.NetworkID, options: b.config.options(), now: b.config.Now()}
	s.restingSince = b.pace.since(service.UID, plan.AddressResting, s.now)
	s.leavingSince = b.pace.leavingSince(service.UID)
	s.desired, s.problem = readDesired(service, s.options)
	if s.nodes, err = b.config.Nodes.List(labels.Everything()); err != nil {
		return observed{}, fmt.Errorf("list Nodes: %w", err)
	}
	if s.services, err = b.config.Services.List(labels.Everything()); err != nil {
		return observed{}, fmt.Errorf("list Services: %w", err)
	}
	return s, nil
}

// observe completes an observation with the account and the ledgers.
func (b *Balancer) observe(ctx context.Context, s observed, d depth) (observed, error) {
	listing, err := b.config.Account.Blocks(ctx, d.after)
	if err != nil {
		return observed{}, err
	}
	s.live, s.askedAt, s.blocks, s.sightings, s.unlisted = d.live, listing.AskedAt, listing.Blocks, nil, nil
	if s.ledgers, err = b.ledgers.list(ctx, d.live); err != nil {
		return observed{}, err
	}
	if d.live && s.wantsPool() {
		if s.poolPurchase, err = b.poolRecord().Load(ctx); err != nil {
			return observed{}, err
		}
	}
	if err := b.sightListed(ctx, &s, d); err != nil {
		return observed{}, err
	}
	if d.live {
		if err := b.sightHidden(ctx, &s, d.after); err != nil {
			return observed{}, err
		}
		if s.unlisted, err = b.sightUnlisted(ctx, s, d.after); err != nil {
			return observed{}, err
		}
	}
	s.ours = s.ours || s.showsOurs()
	s.networks, err = b.readNetworks(ctx, s, d.after)
	return s, err
}

// showsOurs reports whether a block carries the tag of this cluster.
func (s observed) showsOurs() bool {
	return slices.ContainsFunc(s.blocks, func(b plan.Block) bool { return plan.OfCluster(b, s.owner.Cluster) }) ||
		slices.ContainsFunc(s.sightings, func(i plan.Sighting) bool { return plan.OfCluster(i.Block, s.owner.Cluster) })
}

func (b *Balancer) poolRecord() *purchase.ConfigMap {
	return purchase.NewConfigMap(b.config.Kube, purchase.PoolName(contract.PoolDefault))
}

func (s observed) pool() plan.Owner { return poolOwner(s.owner.Cluster) }

// wantsPool tells whether the pool matters to the Service: it is to get an address of it, or holds an
// address already.
func (s observed) wantsPool() bool {
	_, _, holds := s.held()
	return s.desired.blockID == "" && (s.desired.shared || holds)
}

// relevant tells whether a block matters to the Service: it is its own, of its pool, named by it, or one
// of which it holds an address.
func (s observed) relevant(block plan.Block) bool {
	if s.owner.Owns(block) || (s.desired.blockID != "" && block.ID == s.desired.blockID) || (s.wantsPool() && s.pool().Owns(block)) {
		return true
	}
	l, stored := s.ledger(block.ID)
	return stored && knows(l, s.holder)
}

// knows reports whether the ledger knows the holder: an address is given to it, or rests after it.
func knows(l plan.Ledger, h plan.Holder) bool {
	if _, holds := l.AddressOf(h); holds {
		return true
	}
	return l.Closed && slices.ContainsFunc(slices.Collect(maps.Values(l.Resting)), func(r plan.Rest) bool { return r.Holder == h })
}

// sightListed takes the listed blocks that matter; live, each is read by its ID, because a list
// may lag behind. A block of the pool that is assigned and in use needs no second look.
func (b *Balancer) sightListed(ctx context.Context, s *observed, d depth) error {
	for _, listed := range s.blocks {
		if !s.relevant(listed) {
			continue
		}
		sighting := plan.Sighting{Block: listed}
		if d.live && !s.inUse(listed) {
			block, found, err := b.config.Account.Block(ctx, listed.ID, d.after)
			if err != nil {
				return err
			}
			if sighting.Hidden = !found; found {
				sighting.Block = block
			}
		}
		s.sightings = append(s.sightings, sighting)
	}
	return nil
}

// inUse tells whether the block is an assigned one of the pool with an open ledger.
func (s observed) inUse(block plan.Block) bool {
	l, stored := s.ledger(block.ID)
	return stored && !l.Closed && block.Status == plan.Assigned && s.pool().Owns(block) && s.service.DeletionTimestamp == nil
}

// sightHidden looks for blocks that the list does not show: those that a purchase recorded, that a ledger
// or the user names and, where nothing is known of a purchase, those that the index of the tag names.
func (b *Balancer) sightHidden(ctx context.Context, s *observed, after time.Time) error {
	ids := []string{s.desired.blockID}
	for _, recorded := range []*contract.Purchase{s.purchase, s.poolPurchase} {
		if recorded != nil {
			ids = append(ids, recorded.BlockID)
		}
	}
	for _, l := range s.ledgers {
		if knows(l, s.holder) {
			ids = append(ids, l.BlockID)
		}
	}
	var owners []plan.Owner
	for _, owner := range s.owners() {
		if slices.ContainsFunc(s.sightings, func(i plan.Sighting) bool { return owner.Owns(i.Block) && i.Block.Status != plan.Assigned }) ||
			(owner == s.owner && slices.ContainsFunc(s.sightings, func(i plan.Sighting) bool { return owner.Owns(i.Block) })) {
			continue
		}
		owners = append(owners, owner)
	}
	var err error
	s.sightings, err = b.config.Account.Find(ctx, account.Search{Seen: s.sightings, IDs: ids, Owners: owners, After: after})
	return err
}

// sightUnlisted looks for blocks of the cluster that the list lacks, where a purchase may follow that they forbid.
func (b *Balancer) sightUnlisted(ctx context.Context, s observed, after time.Time) ([]plan.Block, error) {
	if b.config.MaxBlocks == 0 || !contract.WantsAddress(s.service) || len(s.owned()) > 0 {
		return nil, nil
	}
	return b.config.Account.Unlisted(ctx, s.owner.Cluster, s.blocks, after)
}

// owners are those whose blocks may serve the Service.
func (s observed) owners() []plan.Owner {
	var owners []plan.Owner
	if s.owner.Name != "" {
		owners = append(owners, s.owner)
	}
	if s.wantsPool() {
		owners = append(owners, s.pool())
	}
	return owners
}

// readNetworks reads the configured network and those that hold one of the blocks that matter.
func (b *Balancer) readNetworks(ctx context.Context, s observed, after time.Time) (map[string]plan.Network, error) {
	networks := map[string]plan.Network{}
	ids := []string{s.networkID}
	for _, i := range s.sightings {
		if i.Block.ResourceID != "" && i.Block.ResourceType != "server" {
			ids = append(ids, i.Block.ResourceID)
		}
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		network, err := b.config.Account.Network(ctx, id, after)
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

// listed tells whether the list of blocks names the block. A new block may take some seconds to show.
func (s observed) listed(blockID string) bool {
	return slices.ContainsFunc(s.blocks, func(b plan.Block) bool { return b.ID == blockID })
}

func (s observed) sighting(blockID string) (plan.Sighting, bool) {
	for _, i := range s.sightings {
		if i.Block.ID == blockID {
			return i, true
		}
	}
	return plan.Sighting{}, false
}

func (s observed) ledger(blockID string) (plan.Ledger, bool) {
	for _, l := range s.ledgers {
		if l.BlockID == blockID {
			return l, true
		}
	}
	return plan.Ledger{}, false
}

// held returns the ledger in which the Service has an address; with several the one of the published
// address goes first.
func (s observed) held() (l plan.Ledger, address netip.Addr, holds bool) {
	claim := claimed(s.service)
	for _, candidate := range s.ledgers {
		if a, found := candidate.AddressOf(s.holder); found && (!holds || a == claim) {
			l, address, holds = candidate, a, true
		}
	}
	return l, address, holds
}

// owned returns the blocks that are the Service's own.
func (s observed) owned() []plan.Sighting {
	var owned []plan.Sighting
	for _, i := range s.sightings {
		if s.owner.Owns(i.Block) {
			owned = append(owned, i)
		}
	}
	return owned
}

// published returns the address that the Service has already: the one that its annotation names, if that was
// written for this Service or a block or ledger of its own confirms it; the zero Addr when there is none.
func (s observed) published() netip.Addr {
	claim := claimed(s.service)
	if !claim.IsValid() {
		return netip.Addr{}
	}
	_, held, _ := s.held()
	confirmed := held == claim || slices.ContainsFunc(s.owned(), func(i plan.Sighting) bool { return i.Block.CIDR.Contains(claim) })
	if contract.WrittenForThis(s.service) || confirmed {
		return claim
	}
	return netip.Addr{}
}

// hasForeignFields reports whether the Service has annotations of another life that nothing of its own confirms.
func (s observed) hasForeignFields() bool {
	if contract.WrittenForThis(s.service) || s.published().IsValid() {
		return false
	}
	return s.written()
}

// written reports whether the Service has an annotation that only the controller writes, for this Service or another.
func (s observed) written() bool {
	return slices.ContainsFunc(contract.OwnedServiceAnnotations(), func(name string) bool { _, there := s.service.Annotations[name]; return there })
}

// view is what controller/loadbalancer/plan looks at, for the Service itself or for its pool.
func (s observed) view(recorded *contract.Purchase) plan.View {
	return plan.View{Now: s.now, Sightings: s.sightings, Networks: s.networks, NetworkID: s.networkID, Purchase: recorded}
}

package orphans

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// blockState is how the cluster uses a block. It is the label of the metric.
type blockState string

const (
	inUse    blockState = "in-use"   // an object in the cluster uses it
	retained blockState = "retained" // a user wanted it to outlive its Service
	orphan   blockState = "orphan"   // the Service that its tags name does not exist
	// leftover: phoenixnap/k8s-cloud-provider-bmc v1 had decided to delete it, and removed the Service's tags.
	leftover blockState = "leftover"
	// empty: it belongs to a pool or the nodes, and none of its addresses is in use.
	empty blockState = "empty"
	// unclear: its tags do not name a purpose, a recorded purchase contradicts them, or it is untouchable. It is never
	// released.
	unclear blockState = "unclear"
)

// suspect reports whether a block in that state must be reported.
func (s blockState) suspect() bool {
	return s == orphan || s == leftover || s == empty || s == unclear
}

// facts are what the cluster knows about blocks.
type facts struct {
	cluster string // the UID of the namespace kube-system
	// services are the values of contract.TagService of the Services that need their blocks.
	services map[string]bool
	// uids are their UIDs.
	uids      map[string]bool
	now       time.Time // when the facts were requested
	purchases []recorded
	records   ipblock.Records
	shared    ipblock.Records // of all blocks whose addresses several have
	used      map[string]bool // the IDs of blocks with an address in use
	brought   []string        // the IDs of blocks that people say Services may name
	// broughtForNodes are the objects of blocks that people say nodes get addresses of.
	broughtForNodes ipblock.Records
	// nodeBlocks are the IDs of the blocks of nodes that are kept even while no node needs them: one of each network.
	nodeBlocks []string
	// nodesRecorded are the IDs of the blocks in the recorded purchases for nodes, by network.
	nodesRecorded map[string]string
}

// recorded is a purchase of the pool, of the nodes or of a Service, whose UID it has.
type recorded struct {
	ipblock.Purchase
	uid string
}

// purchaseFresh is how long after a purchase its block may have tags that are not its last.
const purchaseFresh = 10 * ipblock.PurchaseSettles

// classify returns the state of a block of the cluster, from tags and recorded purchases only.
func classify(b network.Block, f facts) blockState {
	named, fresh := f.purchased(b)
	switch {
	case fresh:
		return inUse
	case isLeftover(b) && !named:
		return releasable(leftover, b)
	}
	if s := f.byPurpose(b); s != orphan || !named {
		return releasable(s, b)
	}
	return unclear
}

// releasable is the state of an unused block, unless it may not be touched.
func releasable(s blockState, b network.Block) blockState {
	if _, untouchable := ipblock.Untouchable(b); untouchable && s.suspect() {
		return unclear
	}
	return s
}

// byPurpose follows plan.Owner.Owns: a tag of a Service precedes one of a pool, and that one of the nodes.
func (f facts) byPurpose(b network.Block) blockState {
	service, tagged := serviceOf(b)
	pool := b.Tags[contract.TagPool]
	switch {
	case tagged && service == "":
		return unclear
	case tagged && f.services[service]:
		return inUse
	case tagged && network.Retained(b) && !f.ordered(b.ID):
		return retained
	case tagged:
		return orphan
	case pool == "" && !network.TaggedForNodes(f.cluster, b):
		return unclear
	case f.used[b.ID], pool == "" && slices.Contains(f.nodeBlocks, b.ID):
		return inUse
	default:
		return empty
	}
}

// keepNodeBlocks chooses the blocks of nodes that are kept even while unused.
func (c *Collector) keepNodeBlocks(f *facts, ours []network.Block) {
	if c.config.NodesKept == nil {
		return
	}
	f.nodeBlocks = nil
	for _, each := range c.config.NodesKept() {
		if !slices.ContainsFunc(f.broughtForNodes, func(r ipblock.Record) bool { return r.Network == each.Name }) {
			f.nodeBlocks = append(f.nodeBlocks, nodeBlockIn(each, f, ours))
		}
	}
}

// nodeBlockIn is the one in a network, as package membership chooses it; empty for none.
func nodeBlockIn(named network.Named, f *facts, ours []network.Block) string {
	owner := network.NodesOwner(f.cluster, named.Name)
	var bought []network.Sighting
	for _, b := range ours {
		if owner.Owns(b) {
			bought = append(bought, network.Sighting{Block: b})
		}
	}
	used := func(b network.Block) bool { return f.used[b.ID] }
	kept, _, _ := ipblock.ChooseNodeBlock(bought, f.nodesRecorded[named.Name], used,
		ipblock.Account{Network: named})
	return kept.Block.ID
}

// purchased reports whether the block is that of a recorded purchase, and whether the purchase is fresh. An old one for
// a Service that is gone does not count.
func (f facts) purchased(b network.Block) (named, fresh bool) {
	for _, r := range f.purchases {
		if !r.Shows(b) && !(ipblock.Purchase{Nonce: r.Nonce}).Shows(b) {
			continue
		}
		recent := f.now.Before(r.Time.Add(purchaseFresh))
		named = named || recent || r.uid == "" || f.uids[r.uid]
		fresh = fresh || recent
	}
	return named, fresh
}

// serviceOf returns the value of contract.TagService, also for a block of v1; tagged if there is any tag of a Service.
func serviceOf(b network.Block) (service string, tagged bool) {
	if service, tagged = b.Tags[contract.TagService]; tagged {
		return service, true
	}
	namespace := b.Tags[contract.TagServiceNamespace]
	name := b.Tags[contract.TagServiceName]
	if namespace == "" || name == "" {
		return "", namespace != "" || name != ""
	}
	return contract.ServiceTag(namespace, name), true
}

// isLeftover reports whether the block has exactly the tags that v1 leaves on a block that it is about to delete:
// usage, cluster and delete=true, and none that names a purpose.
func isLeftover(b network.Block) bool {
	if b.Tags[contract.TagDelete] != contract.TagTrue {
		return false
	}
	for _, purpose := range []string{
		contract.TagService, contract.TagServiceNamespace, contract.TagServiceName, contract.TagPool, contract.TagNodes,
		contract.TagRetain,
	} {
		if _, tagged := b.Tags[purpose]; tagged {
			return false
		}
	}
	return true
}

// add adds a Service.
func (f *facts) add(s *corev1.Service) {
	if plan.NeedsBlock(s) {
		f.services[contract.ServiceTag(s.Namespace, s.Name)] = true
		f.uids[string(s.UID)] = true
	}
}

func (c *Collector) noFacts(cluster string) facts {
	return facts{cluster: cluster, now: c.config.Now(), services: map[string]bool{}, uids: map[string]bool{},
		used: map[string]bool{}}
}

// known returns facts from the informer and the IPBlocks. Suspects must be checked live.
func (c *Collector) known(ctx context.Context, cluster string) (facts, error) {
	f := c.noFacts(cluster)
	services, err := c.config.Services.Lister().List(labels.Everything())
	if err != nil {
		return facts{}, fmt.Errorf("list Services: %w", err)
	}
	for _, service := range services {
		f.add(service)
	}
	return f, c.addUsed(ctx, &f)
}

// live returns facts that are all read from the API after the call.
func (c *Collector) live(ctx context.Context, cluster string) (facts, error) {
	f := c.noFacts(cluster)
	services, err := c.config.Kube.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return facts{}, fmt.Errorf("list Services: %w", err)
	}
	for i := range services.Items {
		f.add(&services.Items[i])
	}
	return f, c.addUsed(ctx, &f)
}

// addUsed adds what IPBlocks say.
func (c *Collector) addUsed(ctx context.Context, f *facts) error {
	listing, err := c.config.Ledgers.List(ctx)
	if err != nil {
		return err
	}
	for _, l := range listing.Ledgers {
		f.used[l.BlockID] = !l.Empty()
	}
	for _, unread := range listing.Unreadable {
		f.used[unread.BlockID] = true // it is not known, so nothing is concluded
	}
	f.brought = listing.BroughtBlocks.TakenUp()
	f.broughtForNodes = listing.BroughtForNodes
	f.records = listing.Records
	f.shared = listing.Shared
	for _, r := range listing.Records {
		f.used[r.BlockID] = f.used[r.BlockID] || r.Kept && !r.Deleted // a person wants it, used or not
	}
	for _, r := range listing.BroughtForNodes {
		f.used[r.BlockID] = true // so too, even if its tags say that it was bought for nodes
	}
	f.record(c.seen.BoundedAll(listing.Records))
	return nil
}

// of is the record of a block that was bought for a Service which does not need it any more; false when there is none.
func (f facts) of(blockID string) (ipblock.Record, bool) {
	i := slices.IndexFunc(f.records, func(r ipblock.Record) bool {
		return r.BlockID == blockID && r.Service.Name != "" && !f.uids[r.Service.UID]
	})
	if i < 0 {
		return ipblock.Record{}, false
	}
	return f.records[i], true
}

// sharedOf is the record of a block whose addresses several have; false when there is none.
func (f facts) sharedOf(blockID string) (ipblock.Record, bool) {
	i := slices.IndexFunc(f.shared, func(r ipblock.Record) bool { return r.BlockID == blockID })
	if i < 0 {
		return ipblock.Record{}, false
	}
	return f.shared[i], true
}

// ordered reports whether a person has deleted the IPBlock of a block without use, so that it is to be released.
func (f facts) ordered(blockID string) bool {
	record, found := f.of(blockID)
	return found && record.Deleted
}

// record adds recorded purchases.
func (f *facts) record(records ipblock.Records) {
	for _, r := range records {
		f.purchases = append(f.purchases, recorded{Purchase: r.Purchase, uid: r.Service.UID})
	}
	f.nodesRecorded = map[string]string{}
	for _, r := range records {
		in := slices.DeleteFunc(slices.Clone(records), func(o ipblock.Record) bool { return o.Network != r.Network })
		if last, found := in.Last(true); found {
			f.nodesRecorded[r.Network] = last.BlockID
		}
	}
}

// clusterUID returns the UID of the namespace kube-system, which identifies the cluster.
func (c *Collector) clusterUID(ctx context.Context) (string, error) {
	if c.namespace != nil {
		return string(c.namespace.UID), nil
	}
	namespace, err := account.ReadCluster(ctx, c.config.Kube)
	if err != nil {
		return "", err
	}
	c.namespace = namespace
	return string(namespace.UID), nil
}

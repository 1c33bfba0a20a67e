package orphans

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
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
	services  map[string]bool
	now       time.Time // when the facts were requested
	purchases []recorded
	used      map[string]bool // the IDs of blocks with an address in use
	// nodeBlock is the ID of the one block of the nodes that is kept even while no node needs it; empty for none.
	nodeBlock string
	// nodesRecorded is the ID of the block in the recorded purchase for the nodes; empty while that was not read.
	nodesRecorded string
	seen          *purchase.Seen // bounds the times of purchases
}

// recorded is a purchase as recorded in an annotation, with its time; the zero Time when it cannot be parsed.
type recorded struct {
	raw  string
	time time.Time
}

// purchaseFresh is how long after a purchase its block may have tags that are not its last.
const purchaseFresh = 10 * plan.PurchaseSettles

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
	if _, untouchable := plan.Untouchable(b); untouchable && s.suspect() {
		return unclear
	}
	return s
}

// byPurpose follows plan.Owner.Owns: a tag of a Service precedes one of a pool, and that one of the nodes.
func (f facts) byPurpose(b network.Block) blockState {
	service, tagged := serviceOf(b)
	pool := b.Tags[contract.TagPool]
	nodes := b.Tags[contract.TagNodes]
	switch {
	case tagged && service == "":
		return unclear
	case tagged && f.services[service]:
		return inUse
	case tagged && network.Retained(b):
		return retained
	case tagged:
		return orphan
	case pool == "" && nodes != f.cluster:
		return unclear
	case f.used[b.ID], pool == "" && b.ID == f.nodeBlock:
		return inUse
	default:
		return empty
	}
}

// keepNodeBlock chooses the block of the nodes that is kept even while unused, as package membership chooses it.
func (c *Collector) keepNodeBlock(f *facts, ours []network.Block) {
	if !c.config.NodesKept {
		return
	}
	owner := network.Owner{Cluster: f.cluster, Nodes: true}
	var bought []network.Sighting
	for _, b := range ours {
		if owner.Owns(b) {
			bought = append(bought, network.Sighting{Block: b})
		}
	}
	used := func(b network.Block) bool { return f.used[b.ID] }
	kept, _, _ := plan.ChooseNodeBlock(bought, f.nodesRecorded, used, plan.Account{NetworkID: c.config.NetworkID})
	f.nodeBlock = kept.Block.ID
}

// purchased reports whether a recorded purchase names the block, by its ID or by the nonce at the end of its
// description, and whether the purchase is fresh. A damaged record names its block too.
func (f facts) purchased(b network.Block) (named, fresh bool) {
	nonce := b.Description[strings.LastIndexByte(b.Description, ' ')+1:]
	for _, r := range f.purchases {
		if (b.ID != "" && strings.Contains(r.raw, b.ID)) ||
			(len(nonce) >= leastNonce && strings.Contains(r.raw, nonce)) {
			named = true
			fresh = fresh || f.now.Before(r.time.Add(purchaseFresh))
		}
	}
	return named, fresh
}

// isShared reports whether the addresses of the block are allocated individually.
func isShared(b network.Block) bool {
	return b.Tags[contract.TagPool] != "" || b.Tags[contract.TagNodes] != ""
}

// leastNonce is shorter than any nonce of a purchase, and longer than what a record contains by chance.
const leastNonce = 12

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
	if contract.NeedsBlock(s) {
		f.services[contract.ServiceTag(s.Namespace, s.Name)] = true
	}
	f.record(s.Annotations)
}

// record adds the purchase in the annotations, if any. It returns the ID of its block; empty if that is not known.
func (f *facts) record(annotations map[string]string) (block string) {
	raw := annotations[contract.ServiceIPPurchase]
	if raw == "" {
		return ""
	}
	r := recorded{raw: raw}
	if parsed, err := contract.ParsePurchase(raw); err == nil && parsed != nil {
		r.time = f.seen.Bounded(parsed).Time
		block = parsed.BlockID
	}
	f.purchases = append(f.purchases, r)
	return block
}

func (c *Collector) noFacts(cluster string) facts {
	return facts{cluster: cluster, now: c.config.Now(), services: map[string]bool{}, used: map[string]bool{},
		seen: c.seen}
}

// known returns facts from the informer and, for shared blocks, the ledgers. Suspects must be checked live.
func (c *Collector) known(ctx context.Context, cluster string, shared bool) (facts, error) {
	f := c.noFacts(cluster)
	if shared {
		if err := c.addUsed(ctx, &f); err != nil {
			return facts{}, err
		}
	}
	services, err := c.config.Services.Lister().List(labels.Everything())
	if err != nil {
		return facts{}, fmt.Errorf("list Services: %w", err)
	}
	for _, service := range services {
		f.add(service)
	}
	return f, nil
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
	if err := c.addUsed(ctx, &f); err != nil {
		return facts{}, err
	}
	for _, name := range []string{purchase.PoolName(contract.PoolDefault), purchase.NodesName} {
		record, err := c.config.Kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return facts{}, fmt.Errorf("read ConfigMap %s/%s, which records purchases: %w", metav1.NamespaceSystem,
				name, err)
		default:
			if block := f.record(record.Annotations); name == purchase.NodesName {
				f.nodesRecorded = block
			}
		}
	}
	return f, nil
}

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
	return nil
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

package orphans

import (
	"strings"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// blockState is what a block of the cluster is, seen from the cluster. It is the label of the metric.
type blockState string

const (
	// inUse: an object in the cluster uses it.
	inUse blockState = "in-use"
	// retained: it outlives its Service because a user wanted it to.
	retained blockState = "retained"
	// orphan: the Service that its tags name does not exist.
	orphan blockState = "orphan"
	// leftover: phoenixnap/k8s-cloud-provider-bmc v1 had decided to delete it, and took the Service's tags off.
	leftover blockState = "leftover"
	// empty: it belongs to a pool or the nodes, and none of its addresses is held.
	empty blockState = "empty"
	// unclear: it was bought for this cluster, but its tags do not say for what, or a recorded purchase says something
	// else. It is never given back.
	unclear blockState = "unclear"
)

// suspect reports whether a block in that state must be reported.
func (s blockState) suspect() bool {
	switch s {
	case orphan, leftover, empty, unclear:
		return true
	case inUse, retained:
		return false
	default:
		return false
	}
}

// facts are what the cluster knows of blocks.
type facts struct {
	// cluster is the UID of the namespace kube-system.
	cluster string
	// claims are the values of contract.TagService of the Services whose blocks are looked after.
	claims map[string]bool
	// now is when they were asked for.
	now time.Time
	// purchases are the recorded purchases.
	purchases []recorded
	// held are the IDs of blocks with an address that is held.
	held map[string]bool
	// nodeBlock is the ID of the one block of the nodes that is kept even while no node needs it; empty for none.
	nodeBlock string
	// nodesRecorded is the ID of the block that the recorded purchase for the nodes names; empty while that was not
	// read.
	nodesRecorded string
}

// recorded is a purchase as it stands recorded in an annotation, with its time; the zero Time when it cannot be read.
type recorded struct {
	raw  string
	time time.Time
}

// purchaseFresh is how long after a purchase its block may have tags that are not its last.
const purchaseFresh = 10 * plan.PurchaseSettles

// judge returns what a block of the cluster is. It trusts only tags and recorded purchases.
func judge(b plan.Block, f facts) blockState {
	named, fresh := f.purchased(b)
	switch {
	case fresh:
		return inUse
	case isLeftover(b) && !named:
		return leftover
	}
	if s := f.byPurpose(b); s != orphan || !named {
		return s
	}
	return unclear
}

// byPurpose follows ipblock.Owner.Owns: a tag of a Service goes before one of a pool, and that before one of the nodes.
func (f facts) byPurpose(b plan.Block) blockState {
	service, tagged := serviceOf(b)
	pool := b.Tags[contract.TagPool]
	nodes := b.Tags[contract.TagNodes]
	switch {
	case tagged && service == "":
		return unclear
	case tagged && f.claims[service]:
		return inUse
	case tagged && plan.Retained(b):
		return retained
	case tagged:
		return orphan
	case pool == "" && nodes != f.cluster:
		return unclear
	case f.held[b.ID], pool == "" && b.ID == f.nodeBlock:
		return inUse
	default:
		return empty
	}
}

// excuseOne chooses the block of the nodes that is kept even while no address of it is held, as the controller that
// joins servers chooses it. Every other one is paid for without need.
func (f *facts) excuseOne(ours []plan.Block, networkID string) {
	owner := plan.Owner{Cluster: f.cluster, Nodes: true}
	var bought []plan.Sighting
	for _, b := range ours {
		if owner.Owns(b) {
			bought = append(bought, plan.Sighting{Block: b})
		}
	}
	held := func(b plan.Block) bool { return f.held[b.ID] }
	kept, _, _ := plan.ChooseNodeBlock(bought, f.nodesRecorded, held, plan.View{NetworkID: networkID})
	f.nodeBlock = kept.Block.ID
}

// purchased reports whether a recorded purchase names the block, by the ID that the API answered or by the nonce at the
// end of its description, and whether the purchase is fresh. A damaged record names its block too.
func (f facts) purchased(b plan.Block) (named, fresh bool) {
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

// isShared reports whether addresses of the block are given out one by one.
func isShared(b plan.Block) bool {
	return b.Tags[contract.TagPool] != "" || b.Tags[contract.TagNodes] != ""
}

// leastNonce is shorter than any nonce of a purchase, and longer than what a record holds by chance.
const leastNonce = 12

// serviceOf returns what contract.TagService says, or would say on a block of v1; tagged is whether there is any tag of
// a Service.
func serviceOf(b plan.Block) (service string, tagged bool) {
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

// isLeftover reports whether the block carries exactly what v1 leaves on a block that it is about to delete: usage,
// cluster and delete=true, and nothing that says what it is for.
func isLeftover(b plan.Block) bool {
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

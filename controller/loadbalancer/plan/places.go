package plan

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

const (
	// placePatience is how long a bought block is kept while the network has no place for it.
	placePatience = 5 * time.Minute
	// comingFor is how long a block that is on no network keeps the next one from being bought. One that takes longer
	// is stuck, and must not stop the others.
	comingFor = 10 * time.Minute
	// unplacedFor is how long a block is remembered that observations do not show, as lists lag.
	unplacedFor = time.Hour
)

// Places is what is remembered of the places in the configured network from one observation to the next. Blocks of
// other clusters take places too, so that a place which was free at the time of a purchase may be taken afterwards.
type Places struct {
	// FullSince is since when the network is known to be full; the zero Time when it has room.
	FullSince time.Time
	// Unplaced is since when bought blocks of the cluster are known to be on no network, by their ID.
	Unplaced map[string]time.Time
}

// Next returns what to remember after an observation that showed the blocks.
func (p Places) Next(account Account, cluster string, blocks []network.Block) Places {
	public, readable := account.Networks[account.NetworkID]
	if !readable {
		return p
	}
	next := Places{Unplaced: maps.Clone(p.Unplaced)}
	if next.Unplaced == nil {
		next.Unplaced = map[string]time.Time{}
	}
	if public.IPv4Blocks() >= network.BlockLimit {
		next.FullSince = p.FullSince
		if next.FullSince.IsZero() {
			next.FullSince = account.Now
		}
	}
	maps.DeleteFunc(next.Unplaced, func(_ string, since time.Time) bool { return account.Now.Sub(since) > unplacedFor })
	for _, b := range blocks {
		if !network.OfCluster(b, cluster) || !public.Awaits(b) {
			delete(next.Unplaced, b.ID)
		} else if since, known := p.Unplaced[b.ID]; known {
			next.Unplaced[b.ID] = since
		} else {
			next.Unplaced[b.ID] = account.Now
		}
	}
	return next
}

// Coming reports whether a block is about to take a place: bought a short while ago, and on no network yet. A block
// that is retained waits for its Service, not for a place.
func (p Places) Coming(b network.Block, now time.Time) bool {
	since, known := p.Unplaced[b.ID]
	return known && now.Sub(since) < comingFor && !network.Retained(b)
}

// GiveBack returns what follows the refusal of a block for which the network has no place: after a while the block is
// deleted, for until it has a place it costs and serves no one.
func (p Places) GiveBack(refusal Step, now time.Time) Step {
	b := refusal.Block
	since, unplaced := p.Unplaced[b.ID]
	if refusal.Reason != NetworkFull || !unplaced || p.FullSince.IsZero() || network.Retained(b) ||
		b.Status != network.Unassigned {
		return refusal
	}
	if p.FullSince.After(since) {
		since = p.FullSince
	}
	refusal.Until = since.Add(placePatience)
	if !now.Before(refusal.Until) {
		return Step{Action: Delete, Reason: DeletionDue, Block: b}
	}
	refusal.Detail += fmt.Sprintf("; IP block %s (%s), which was bought, is given back at %s if there is no place "+
		"by then", b.ID, b.CIDR, refusal.Until.UTC().Format(time.RFC3339))
	return refusal
}

// explainFull completes the refusal of a Service for which the network has no place. A block of which an address is
// published, or asked for, is never given back.
func (obs Observed) explainFull(step Step) Step {
	if step.Reason != NetworkFull {
		return step
	}
	if obs.couldShare() {
		step.Detail += fmt.Sprintf("; a shared IP block of this cluster has a free address: set the annotation "+
			"%s to %s",
			contract.ServiceIPAllocation, contract.AllocationShared)
	}
	if taken := obs.Public().Taken(obs.Owner.Cluster, obs.Known()); taken != "" {
		step.Detail += "; the places are held: " + taken
	}
	b := step.Block
	if !b.CIDR.IsValid() || obs.Desired.Requested.IsValid() ||
		!network.OfCluster(b, obs.Owner.Cluster) ||
		slices.ContainsFunc(append([]*corev1.Service{obs.Service}, obs.Services...),
			func(s *corev1.Service) bool { return b.CIDR.Contains(lastAddress(s)) }) {
		return step
	}
	return obs.Places.GiveBack(step, obs.Now)
}

// couldShare reports whether the Service would get an address at once if it asked for a shared one. Elsewhere that is
// no advice for a full network: the first Service that shares needs a block, too.
func (obs Observed) couldShare() bool {
	if obs.Desired.Shared || obs.Desired.BlockID != "" || obs.Published.IsValid() {
		return false
	}
	return slices.ContainsFunc(obs.Known(), func(b network.Block) bool {
		l, stored := obs.Ledger(b.ID)
		_, _, free := l.Count()
		return stored && obs.Pool().Owns(b) && b.Status == network.Assigned && b.ResourceID == obs.NetworkID &&
			!l.Closed && free > 0
	})
}

// boughtUnseen reports whether the list may lack the block that was bought for the Service: it lags, and a look at what
// is cached does not show that there is a block to be given back.
func (obs Observed) boughtUnseen() bool {
	return !obs.Live && obs.Purchase != nil && obs.Purchase.BlockID != "" && !obs.Listed(obs.Purchase.BlockID) &&
		obs.Now.Sub(obs.Purchase.Time) < unplacedFor
}

// coming reports whether another block of the cluster is about to take a place in the network.
func (obs Observed) coming() bool {
	return slices.ContainsFunc(obs.Known(), func(b network.Block) bool {
		return network.OfCluster(b, obs.Owner.Cluster) && obs.Public().Awaits(b) && obs.needsPlace(b) &&
			obs.Places.Coming(b, obs.Now)
	})
}

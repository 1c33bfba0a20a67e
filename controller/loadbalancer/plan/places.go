package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

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
func (p Places) Next(v View, cluster string, blocks []Block) Places {
	network, readable := v.Networks[v.NetworkID]
	if !readable {
		return p
	}
	next := Places{Unplaced: maps.Clone(p.Unplaced)}
	if next.Unplaced == nil {
		next.Unplaced = map[string]time.Time{}
	}
	if network.IPv4Blocks() >= NetworkBlockLimit {
		next.FullSince = p.FullSince
		if next.FullSince.IsZero() {
			next.FullSince = v.Now
		}
	}
	maps.DeleteFunc(next.Unplaced, func(_ string, since time.Time) bool { return v.Now.Sub(since) > unplacedFor })
	for _, b := range blocks {
		if !OfCluster(b, cluster) || !network.awaits(b) {
			delete(next.Unplaced, b.ID)
		} else if since, known := p.Unplaced[b.ID]; known {
			next.Unplaced[b.ID] = since
		} else {
			next.Unplaced[b.ID] = v.Now
		}
	}
	return next
}

// awaits reports whether the block is on no network yet, as far as it and the network say.
func (n Network) awaits(b Block) bool {
	return b.ResourceID == "" && (b.Status == Creating || b.Status == Unassigned) && !n.Listed(b.ID)
}

// Lacks reports whether the block is on no network and may come to this one. One that is divided never does.
func (n Network) Lacks(b Block) bool {
	return b.ResourceID == "" && b.Status != Subnetted && !n.Listed(b.ID)
}

// Coming reports whether a block is about to take a place: bought a short while ago, and on no network yet. A block
// that is retained waits for its Service, not for a place.
func (p Places) Coming(b Block, now time.Time) bool {
	since, known := p.Unplaced[b.ID]
	return known && now.Sub(since) < comingFor && !Retained(b)
}

// GiveBack returns what follows the refusal of a block for which the network has no place: after a while the block is
// deleted, for until it has a place it costs and serves no one.
func (p Places) GiveBack(refusal Step, now time.Time) Step {
	b := refusal.Block
	since, unplaced := p.Unplaced[b.ID]
	if refusal.Reason != NetworkFull || !unplaced || p.FullSince.IsZero() || Retained(b) || b.Status != Unassigned {
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

// Taken says who holds the places in a network, as far as the account shows it.
func (n Network) Taken(cluster string, blocks []Block) string {
	counts := map[string]int{}
	for _, place := range n.Blocks {
		if place.CIDR.IsValid() && !place.CIDR.Addr().Is4() {
			continue
		}
		block, listed := find(blocks, func(b Block) bool { return b.ID == place.ID })
		other := block.Tags[contract.TagCluster]
		switch {
		case listed && OfCluster(block, cluster):
			counts["this cluster"]++
		case listed && OfCluster(block, other):
			counts["cluster "+other]++
		default:
			counts["others"]++
		}
	}
	var taken []string
	for _, who := range slices.Sorted(maps.Keys(counts)) {
		taken = append(taken, fmt.Sprintf("%d by %s", counts[who], who))
	}
	if most := 5; len(taken) > most { // a condition is no place for a list without end
		taken = append(taken[:most], "and more")
	}
	return strings.Join(taken, ", ")
}

// explainFull completes the refusal of a Service for which the network has no place. A block of which an address is
// published, or asked for, is never given back.
func (o Observed) explainFull(step Step) Step {
	if step.Reason != NetworkFull {
		return step
	}
	if o.couldShare() {
		step.Detail += fmt.Sprintf("; a shared IP block of this cluster has a free address: set the annotation "+
			"%s to %s",
			contract.ServiceIPAllocation, contract.AllocationShared)
	}
	if taken := o.Networks[o.NetworkID].Taken(o.Owner.Cluster, o.Known()); taken != "" {
		step.Detail += "; the places are held: " + taken
	}
	b := step.Block
	if !b.CIDR.IsValid() || o.Desired.Requested.IsValid() ||
		!OfCluster(b, o.Owner.Cluster) || slices.ContainsFunc(append([]*corev1.Service{o.Service}, o.Services...),
		func(s *corev1.Service) bool { return b.CIDR.Contains(lastAddress(s)) }) {
		return step
	}
	return o.Places.GiveBack(step, o.Now)
}

// couldShare reports whether the Service would get an address at once if it asked for a shared one. Elsewhere that is
// no advice for a full network: the first Service that shares needs a block, too.
func (o Observed) couldShare() bool {
	if o.Desired.Shared || o.Desired.BlockID != "" || o.Published().IsValid() {
		return false
	}
	return slices.ContainsFunc(o.Known(), func(b Block) bool {
		l, stored := o.Ledger(b.ID)
		_, _, free := l.Count()
		return stored && o.Pool().Owns(b) && b.Status == Assigned && b.ResourceID == o.NetworkID &&
			!l.Closed && free > 0
	})
}

// boughtUnseen reports whether the list may lack the block that was bought for the Service: it lags, and a look at what
// is cached does not show that there is a block to be given back.
func (o Observed) boughtUnseen() bool {
	return !o.Live && o.Purchase != nil && o.Purchase.BlockID != "" && !o.Listed(o.Purchase.BlockID) &&
		o.Now.Sub(o.Purchase.Time) < unplacedFor
}

// coming reports whether another block of the cluster is about to take a place in the network.
func (o Observed) coming() bool {
	return slices.ContainsFunc(o.Known(), func(b Block) bool {
		return OfCluster(b, o.Owner.Cluster) && o.Networks[o.NetworkID].awaits(b) && o.needsPlace(b) &&
			o.Places.Coming(b, o.Now)
	})
}

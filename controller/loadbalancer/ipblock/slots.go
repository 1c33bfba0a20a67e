package ipblock

import (
	"fmt"
	"maps"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
)

const (
	// slotPatience is how long a bought block is kept while the network has no slot for it.
	slotPatience = 5 * time.Minute
	// comingFor is how long a block that is on no network keeps the next one from being bought. One that takes longer
	// is stuck, and must not stop the others.
	comingFor = 10 * time.Minute
	// UnassignedFor is how long a block is remembered that observations do not show, as lists lag.
	UnassignedFor = time.Hour
)

// NetworkSlots is what is remembered of the slots of the configured network from one observation to the next. Blocks of
// other clusters take slots too, so that a slot which was free at the time of a purchase may be taken afterwards.
type NetworkSlots struct {
	// FullSince is since when the network is known to be full; the zero Time when it has room.
	FullSince time.Time
	// Unassigned is since when bought blocks of the cluster are known to be on no network, by their ID.
	Unassigned map[string]time.Time
}

// Next returns what to remember after an observation that showed the blocks.
func (p NetworkSlots) Next(account Account, cluster string, blocks []network.Block) NetworkSlots {
	public, readable := account.Networks[account.Network.ID]
	if !readable {
		return p
	}
	next := NetworkSlots{Unassigned: maps.Clone(p.Unassigned)}
	if next.Unassigned == nil {
		next.Unassigned = map[string]time.Time{}
	}
	if public.IPv4Blocks() >= network.BlockLimit {
		next.FullSince = p.FullSince
		if next.FullSince.IsZero() {
			next.FullSince = account.Now
		}
	}
	maps.DeleteFunc(next.Unassigned,
		func(_ string, since time.Time) bool { return account.Now.Sub(since) > UnassignedFor })
	for _, b := range blocks {
		if !network.OfCluster(b, cluster) || !public.Awaits(b) {
			delete(next.Unassigned, b.ID)
		} else if since, known := p.Unassigned[b.ID]; known {
			next.Unassigned[b.ID] = since
		} else {
			next.Unassigned[b.ID] = account.Now
		}
	}
	return next
}

// Coming reports whether a block is about to take a slot: bought a short while ago, and on no network yet. A block
// that is retained waits for its Service, not for a slot.
func (p NetworkSlots) Coming(b network.Block, now time.Time) bool {
	since, known := p.Unassigned[b.ID]
	return known && now.Sub(since) < comingFor && !network.Retained(b)
}

// ReleaseUnassigned returns what follows the refusal of a block for which the network has no slot: after a while the
// block is deleted, for until it has a slot it costs and serves no one.
func (p NetworkSlots) ReleaseUnassigned(refusal Step, now time.Time) Step {
	b := refusal.Block
	since, unassigned := p.Unassigned[b.ID]
	if refusal.Reason != NetworkFull || !unassigned || p.FullSince.IsZero() || network.Retained(b) ||
		b.Status != network.Unassigned {
		return refusal
	}
	if p.FullSince.After(since) {
		since = p.FullSince
	}
	refusal.Until = since.Add(slotPatience)
	if !now.Before(refusal.Until) {
		return Step{Action: Delete, Reason: DeletionDue, Block: b}
	}
	refusal.Detail += fmt.Sprintf("; IP block %s (%s), which was bought, is released at %s if no slot is free by "+
		"then", b.ID, b.CIDR, refusal.Until.UTC().Format(time.RFC3339))
	return refusal
}

package plan

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/announcer/reports"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// decideShared decides about an address of the pool. Ledgers say who holds which; what stands on Services
// is output and gives no Service the address of another.
func decideShared(o Observed) ServicePlan {
	blocks, known := o.poolBlocks()
	if !known {
		return ServicePlan{Step: Step{Action: Wait, Reason: BlockInvisible}}
	}
	published := o.Published()
	_, _, holds := o.held()
	if block, found := o.inPool(); found && !o.Desired.Replace {
		if unread, unreadable := o.Unread(block.ID); unreadable {
			return o.keepUnrecorded(unread)
		}
	}
	if published.IsValid() && !holds {
		if p, decided := o.unrecorded(blocks, published); decided {
			return p
		}
	}
	view := o.View
	view.Purchase = o.awaitedPurchase()
	extend := o.extendPool(view)
	coming := extend.Action == Wait && extend.Reason != NetworkChanging
	placement := Place(o.Holder, o.placeWish(), blocks, coming)
	p := ServicePlan{Owner: o.Pool(), Save: placement.Save, Reused: placement.Reused}
	switch placement.Action {
	case Buy:
		p.Step = o.grow(blocks, extend)
	case Done:
		sighting, _ := o.Sighting(placement.Block.ID)
		if !o.Pool().Owns(sighting.Block) {
			return o.lost(placement.Address)
		}
		p.Step = EnsureBlock(sighting, o.View)
		p.Step.Address = placement.Address
	default:
		p.Step = o.insteadOfResting(placement.Step, o.grow(blocks, extend))
		if placement.Reason == BlockLost {
			return o.lost(published)
		}
	}
	p.Save = append(p.Save, o.leave(poolIDs(blocks)...)...)
	if p.Step.Action == Done {
		p.Surplus = actionable(Release(o.Owner, o.View))
	}
	return p
}

// unrecorded decides about a published address that no ledger gives to the Service, unless its block can be read.
func (o Observed) unrecorded(blocks []PoolBlock, published netip.Addr) (p ServicePlan, decided bool) {
	holder, found := find(blocks, func(p PoolBlock) bool { return !p.Gone && p.Ledger.CIDR.Contains(published) })
	unseen, isUnseen := o.unseenAt(published)
	switch {
	case found && holder.Sighting.Hidden:
		return ServicePlan{Step: o.waitHidden(holder.Sighting.Block)}, true
	case !found && isUnseen:
		return ServicePlan{Step: waitUnseen(unseen)}, true
	case !found && !o.Desired.Replace:
		return o.lost(published), true
	default:
		return ServicePlan{}, false
	}
}

// awaitedPurchase returns the recorded purchase for the pool; nil when its block was released since: its ledger is
// closed and the block is not there any more.
func (o Observed) awaitedPurchase() *contract.Purchase {
	if o.PoolPurchase == nil || !o.Live {
		return o.PoolPurchase
	}
	l, _ := o.Ledger(o.PoolPurchase.BlockID)
	if _, seen := o.Sighting(l.BlockID); l.Closed && l.Empty() && !seen && !o.Exists(l.BlockID) {
		return nil
	}
	return o.PoolPurchase
}

// extendPool decides whether one more block is bought for the pool.
func (o Observed) extendPool(view View) Step {
	if o.PoolProblem != nil {
		return refuse(network.Block{}, PurchaseRecordUnreadable, "no further shared IP block is bought: %s",
			oneLine(o.PoolProblem))
	}
	return Extend(o.Pool(), o.PoolWish(), view)
}

// keepUnrecorded keeps the published address of a Service in a block whose ledger cannot be read, and says so.
func (o Observed) keepUnrecorded(unread Unreadable) ServicePlan {
	refused := refusedPlan(LedgerUnreadable, "%s", unread.Problem)
	sighting, seen := o.Sighting(unread.BlockID)
	if !seen {
		return refused
	}
	p := ServicePlan{Owner: o.Pool(), Step: EnsureBrought(sighting, false, o.View), Rejected: refused.Step}
	if o.Pool().Owns(sighting.Block) {
		p.Step = EnsureBlock(sighting, o.View)
	}
	p.Step.Address = o.Published()
	return p
}

// lost refuses a Service whose published address is in no block any more.
func (o Observed) lost(published netip.Addr) ServicePlan {
	if refused, retagged := o.refuseRetagged(published); retagged {
		return refused
	}
	return refusedPlan(BlockLost,
		"the IP block of address %s is gone from the account; "+
			"for a new address set the annotation %s to \"true\", or create the Service again without an address",
		published, contract.ServiceIPReplace)
}

// PoolWish describes the next block for the pool. Its size is the option's.
func (o Observed) PoolWish() Wish {
	wish := o.Wish()
	if size, err := ParseSize(o.Options.BlockSize); err == nil {
		wish.Size = size
	}
	wish.SizeDemanded = false
	return wish
}

// placeWish is what the Service is to get of the pool or of a brought block.
func (o Observed) placeWish() PlaceWish {
	silent := func(a netip.Addr) bool { return reports.Silent(o.Nodes, a) }
	ask := Ask{Silent: silent, InUse: o.unavailable, Now: o.Now}
	return PlaceWish{Wish: o.Wish(), Ask: ask, NetworkID: o.NetworkID}
}

// unavailable reports whether an address is in use in ways that no ledger knows: by a member of the network, or
// by another Service that was given it before its ledger was lost.
//
// The claim of a Service is an annotation, and its author may write any. It counts where a ledger confirms it, as that
// of a block which is gone may, whose addresses were sold again; and where it gains nothing: the Service is served and
// has no address, in a ledger or a block of its own, so that it could have asked for this one and would get it.
func (o Observed) unavailable(address netip.Addr) bool {
	return o.Networks[o.NetworkID].Holds(address) || slices.ContainsFunc(o.Services, func(other *corev1.Service) bool {
		return other.UID != o.Service.UID && contract.WrittenForThis(other) && ClaimedAddress(other) == address &&
			(other.Namespace != o.Service.Namespace || other.Name != o.Service.Name) && o.credible(other, address)
	})
}

// credible reports whether the claim of another Service to an address keeps that from others.
func (o Observed) credible(other *corev1.Service, address netip.Addr) bool {
	provided := slices.ContainsFunc(o.Blocks, OwnerOf(other, o.Owner.Cluster).Owns)
	for _, l := range o.Ledgers {
		held, holds := l.AddressOf(HolderOf(other))
		if holds && held == address {
			return true
		}
		provided = provided || holds
	}
	return contract.WantsAddress(other) && !provided
}

// poolBlocks returns the blocks of the pool with their ledgers, and those that are gone, cannot be read, or are the
// pool's no more, and in which the Service holds an address. known is false when only a read by ID shows which that is.
func (o Observed) poolBlocks() (blocks []PoolBlock, known bool) {
	for _, i := range o.Sightings {
		_, unreadable := o.Unread(i.Block.ID)
		if !o.Pool().Owns(i.Block) || !i.Block.CIDR.IsValid() || unreadable {
			continue
		}
		l, stored := o.Ledger(i.Block.ID)
		if !stored {
			if !o.Live {
				return nil, false
			}
			l = NewLedger(i.Block.ID, i.Block.CIDR)
		}
		blocks = append(blocks, PoolBlock{Sighting: i, Ledger: l})
	}
	for _, l := range o.Ledgers {
		if _, holds := l.AddressOf(o.Holder); !holds || slices.Contains(poolIDs(blocks), l.BlockID) {
			continue
		}
		if !o.Live {
			return nil, false
		}
		sighting, seen := o.Sighting(l.BlockID)
		gone := !seen && !o.Exists(l.BlockID)
		if !seen && !gone {
			sighting = network.Sighting{Block: network.Block{ID: l.BlockID, CIDR: l.CIDR}, Hidden: true}
		}
		blocks = append(blocks, PoolBlock{Sighting: sighting, Gone: gone, Foreign: seen, Ledger: l})
	}
	return blocks, true
}

// poolGrows reports whether a block of the pool is on its way to the network. The next one is bought only
// when it is there: the network takes in one after the other anyway, and some who wait may have gone by then.
func (o Observed) poolGrows(blocks []PoolBlock) (reason Reason, grows bool) {
	for _, p := range blocks {
		if p.Gone || p.Foreign || p.Ledger.Closed || p.Sighting.Hidden {
			continue
		}
		switch p.Sighting.Block.Status {
		case network.Creating:
			return BlockCreating, true
		case network.Unassigned, network.Assigning:
			return BlockAssigning, true
		default:
		}
	}
	return "", false
}

// grow is what extends the pool: a purchase, or the wait for a block that is on its way.
func (o Observed) grow(blocks []PoolBlock, extend Step) Step {
	if reason, coming := o.poolGrows(blocks); coming && extend.Action == Buy {
		return Step{Action: Wait, Reason: reason}
	}
	return extend
}

// restPatience is how long a Service waits for an address in quarantine while the pool could grow instead: long enough
// for agents to report that the address is silent, which spares a purchase.
const restPatience = 30 * time.Second

// insteadOfResting returns the step that serves the Service sooner than a wait for the end of a quarantine does. A
// requested address cannot be bought, and where the pool cannot grow there is nothing but to wait.
func (o Observed) insteadOfResting(wait, grow Step) Step {
	bounded := o.RestingSince.Add(restPatience)
	switch {
	case wait.Reason != AddressQuarantined, o.Desired.Requested.IsValid(), grow.Action == Refuse,
		!wait.Until.After(bounded):
		return wait
	case o.Now.Before(bounded):
		wait.Until = bounded
		return wait
	default:
		return grow
	}
}

func poolIDs(blocks []PoolBlock) []string {
	ids := make([]string, 0, len(blocks))
	for _, p := range blocks {
		ids = append(ids, p.Ledger.BlockID)
	}
	return ids
}

// decideBrought decides about an address of a block that the user brought. It is never deleted and its
// tags are never touched; several Services may share it.
func decideBrought(o Observed) ServicePlan {
	held, _, _ := o.held()
	id := cmp.Or(o.Desired.BlockID, held.BlockID)
	sighting, seen := o.Sighting(id)
	switch {
	case !seen && !o.Live:
		return ServicePlan{Step: Step{Action: Wait, Reason: BlockInvisible}}
	case slices.Contains(o.Unseen, id), (!seen || sighting.Hidden) && o.Exists(id):
		return ServicePlan{Step: waitUnseen(network.Block{ID: id, CIDR: held.CIDR})}
	case !seen && o.Published().IsValid():
		return refusedPlan(BlockLost,
			"IP block %s of address %s is gone from the account; name another one in annotation %s and set %s to "+
				"\"true\"",
			id, o.Published(), contract.ServiceIPBlockID, contract.ServiceIPReplace)
	case !seen || sighting.Hidden:
		return refusedPlan(BlockUnusable, "IP block %s, which annotation %s names, is not in the account; name one "+
			"of this account, or remove the annotation", id, contract.ServiceIPBlockID)
	}
	if refusal, refused := Untouchable(sighting.Block); refused {
		return ServicePlan{Step: refusal}
	}
	if !network.Brought(sighting.Block, o.Owner.Cluster, o.Options.OwnBlocks) {
		return refusedPlan(BlockUnusable,
			"IP block %s may not be named in annotation %s: give it the tag %s=%s, or list it in the option "+
				"ownIPBlocks",
			id, contract.ServiceIPBlockID, contract.TagCluster, o.Owner.Cluster)
	}
	if unread, unreadable := o.Unread(id); unreadable {
		if network.IsHost(sighting.Block.CIDR, o.Published()) && sighting.Block.Status == network.Assigned {
			return o.keepUnrecorded(unread)
		}
		return refusedPlan(LedgerUnreadable, "%s", unread.Problem)
	}
	l, stored := o.Ledger(id)
	if !stored {
		l = NewLedger(id, sighting.Block.CIDR)
	}
	return placeBrought(o, sighting, l)
}

func placeBrought(o Observed, sighting network.Sighting, l Ledger) ServicePlan {
	blocks := []PoolBlock{{Sighting: sighting, Ledger: l}}
	step := EnsureBrought(sighting, l.AssignedHere, o.View)
	if step.Action == Refuse {
		return ServicePlan{Step: step}
	}
	placement := Place(o.Holder, o.placeWish(), blocks, false)
	if placement.Action == Buy {
		return refusedPlan(BlockUnusable,
			"all addresses of IP block %s (%s), which annotation %s names, are in use; name another block",
			l.BlockID, l.CIDR, contract.ServiceIPBlockID)
	}
	if placement.Action != Done {
		return ServicePlan{Step: placement.Step}
	}
	p := ServicePlan{Step: step, Save: placement.Save, Reused: placement.Reused}
	p.Step.Address = placement.Address
	if p.Step.Action == Assign && !l.AssignedHere {
		p.Save = assignedHere(p.Save, l)
	}
	p.Save = append(p.Save, o.leave(l.BlockID)...)
	if p.Step.Action == Done {
		p.Surplus = actionable(Release(o.Owner, o.View))
	}
	return p
}

// assignedHere records that the controller is about to assign the block, so that it is the one to unassign it.
func assignedHere(save []Ledger, l Ledger) []Ledger {
	for i := range save {
		if save[i].BlockID == l.BlockID {
			save[i].AssignedHere = true
			return save
		}
	}
	l.AssignedHere = true
	return append(save, l)
}

package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/announcer/reports"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// decideShared decides about an address of the pool. Ledgers say who holds which; what stands on Services
// is output and gives no Service the address of another.
func decideShared(obs Observed) ServicePlan {
	blocks, known := obs.poolBlocks()
	if !known {
		return ServicePlan{Step: ipblock.Step{Action: ipblock.Wait, Reason: ipblock.BlockInvisible}}
	}
	blocks = obs.giving(blocks)
	published := obs.Published
	if obs.Pooled.ID != "" && !obs.Desired.Replace {
		if unread, unreadable := obs.Unread(obs.Pooled.ID); unreadable {
			return obs.keepUnrecorded(unread)
		}
	}
	if published.IsValid() && !obs.Held.IsValid() {
		if p, decided := obs.unrecorded(blocks, published); decided {
			return p
		}
	}
	view := obs.Account
	view.Purchase = obs.awaitedPurchase()
	extend := ipblock.Extend(obs.Pool(), obs.RequestOfPool(), view)
	coming := extend.Action == ipblock.Wait && extend.Reason != ipblock.NetworkChanging && obs.NamedShared.Name == ""
	allocated := ipblock.Allocate(obs.Holder, obs.addressRequest(), blocks, coming)
	p := ServicePlan{Owner: obs.Pool(), Save: allocated.Save, Reused: allocated.Reused, Record: obs.UnrecordedShared()}
	switch allocated.Action {
	case ipblock.Buy:
		p.Step = obs.further(blocks, extend)
	case ipblock.Done:
		sighting, _ := obs.Sighting(allocated.Block.ID)
		if !obs.Pool().Owns(sighting.Block) {
			return obs.lost(allocated.Address)
		}
		p.Step = ipblock.EnsureBlock(sighting, obs.Account)
		p.Step.Address = allocated.Address
		p.Step.SharedAs = allocated.SharedAs
	default:
		p.Step = allocated.Step
		if !obs.rebuilding(blocks) && obs.NamedShared.Name == "" {
			p.Step = obs.preferPurchase(allocated.Step, obs.grow(blocks, extend))
		}
		if allocated.Reason == ipblock.BlockLost {
			return obs.lost(published)
		}
	}
	p.Save = append(p.Save, obs.leave(poolIDs(blocks)...)...)
	p.Save = obs.withRebuilt(p.Save)
	if p.Step.Action == ipblock.Done {
		p.Surplus = actionable(ipblock.Release(obs.Owner, obs.Account))
	}
	return p
}

// unrecorded decides about a published address that no ledger gives to the Service, unless its block can be read.
func (obs Observed) unrecorded(blocks []ipblock.PoolBlock, published netip.Addr) (p ServicePlan, decided bool) {
	holder, found := find(blocks, func(p ipblock.PoolBlock) bool {
		return !p.Gone && p.Ledger.CIDR.Contains(published)
	})
	unseen, isUnseen := obs.unseenAt(published)
	switch {
	case found && holder.Sighting.Hidden:
		return ServicePlan{Step: obs.WaitHidden(holder.Sighting.Block)}, true
	case !found && isUnseen:
		return ServicePlan{Step: ipblock.WaitUnseen(unseen)}, true
	case !found && !obs.Desired.Replace:
		return obs.lost(published), true
	default:
		return ServicePlan{}, false
	}
}

// awaitedPurchase returns the recorded purchase for the pool; nil when its block was released since: its ledger is
// closed and the block is not there any more.
func (obs Observed) awaitedPurchase() *ipblock.Purchase {
	if obs.PoolPurchase == nil || !obs.Live || obs.PoolPurchase.BlockID == "" {
		return obs.PoolPurchase
	}
	l, _ := obs.Ledger(obs.PoolPurchase.BlockID)
	if _, seen := obs.Sighting(l.BlockID); l.Closed && l.Empty() && !seen && !obs.Exists(l.BlockID) {
		return nil
	}
	return obs.PoolPurchase
}

// keepUnrecorded keeps the published address of a Service in a block whose ledger cannot be read, and says so.
func (obs Observed) keepUnrecorded(unread ipblock.Unreadable) ServicePlan {
	refused := refusedPlan(ipblock.LedgerUnreadable, "%s", unread.Problem)
	sighting, seen := obs.Sighting(unread.BlockID)
	if !seen {
		return refused
	}
	p := ServicePlan{Owner: obs.Pool(), Step: ipblock.EnsureBrought(sighting, false, obs.Account),
		Rejected: refused.Step}
	if obs.Pool().Owns(sighting.Block) {
		p.Step = ipblock.EnsureBlock(sighting, obs.Account)
	}
	p.Step.Address = obs.Published
	return p
}

// lost refuses a Service whose published address is in no block any more.
func (obs Observed) lost(published netip.Addr) ServicePlan {
	if refused, retagged := obs.refuseRetagged(published); retagged {
		return refused
	}
	return refusedPlan(ipblock.BlockLost, "the IP block of address %s%s", published, ipblock.LostRemedy)
}

// besides is what a Service that is refused for another reason learns about its lost block.
func (obs Observed) besides(lost ipblock.Step) string {
	switch {
	case obs.Held == obs.Published && obs.ledgerKind(obs.HeldIn) == Brought:
		lost = obs.lostBrought(obs.HeldIn.BlockID).Step
	case obs.Desired.Replace:
		return fmt.Sprintf("; besides, the IP block of address %s is gone from the account; the Service gets a new "+
			"address as soon as this is corrected", obs.Published)
	}
	return "; besides, " + lost.Detail
}

func (obs Observed) lostBrought(id string) ServicePlan {
	return refusedPlan(ipblock.BlockLost, "IP block %s of address %s is gone from the account; delete the Service and "+
		"create it again, with another IPBlock in annotation %s or without this annotation",
		id, obs.Published, contract.ServiceIPBlock)
}

// RequestOfPool describes the next block for the pool. Its size is the option's.
func (obs Observed) RequestOfPool() ipblock.Request {
	request := obs.Desired.Request
	if size, err := ipblock.ParseSize(obs.Options.BlockSize); err == nil {
		request.Size = size
	}
	request.SizeDemanded = false
	return request
}

// addressRequest is what the Service is to get of the pool or of a brought block.
func (obs Observed) addressRequest() ipblock.AddressRequest {
	ask := ipblock.Ask{Published: obs.Published, Group: obs.group(), Proven: obs.shown(), Silent: obs.silent,
		InUse: obs.unavailable, Now: obs.Now}
	return ipblock.AddressRequest{Request: obs.Desired.Request, Published: obs.Published, Leaves: obs.leavesGroup,
		Ask: ask, Network: obs.Network}
}

// silent reports whether the agents report that no machine answers for an address.
func (obs Observed) silent(address netip.Addr) bool { return reports.Silent(obs.Nodes, address) }

// unavailable reports whether an address is in use in ways that no ledger knows: by a member of the network, or
// by another Service that was given it before its ledger was lost.
//
// The claim of a Service is an annotation, and its author may write any. It counts where a ledger confirms it, as that
// of a block which is gone may, whose addresses were sold again; and where it gains nothing: the Service is served and
// has no address, in a ledger or a block of its own, so that it could have asked for this one and would get it. Of a
// Service that leaves, the status counts, which authors of Services do not write.
func (obs Observed) unavailable(address netip.Addr) bool {
	return obs.Public().Holds(address) || slices.ContainsFunc(obs.Services, func(other *corev1.Service) bool {
		return other.UID != obs.Service.UID && contract.WrittenForThis(other) && ClaimedAddress(other) == address &&
			(other.Namespace != obs.Service.Namespace || other.Name != obs.Service.Name) && obs.credible(other, address)
	})
}

// shows reports whether the status of a Service has an address.
func shows(service *corev1.Service, address netip.Addr) bool {
	return slices.ContainsFunc(service.Status.LoadBalancer.Ingress, func(i corev1.LoadBalancerIngress) bool {
		return i.IP == address.String()
	})
}

// credible reports whether the claim of another Service to an address keeps that from others.
func (obs Observed) credible(other *corev1.Service, address netip.Addr) bool {
	provided := slices.ContainsFunc(obs.Blocks, OwnerOf(other, obs.Owner.Cluster).Owns)
	for _, l := range obs.Ledgers {
		held, holds := l.AddressOf(HolderOf(other))
		if holds && held == address {
			return true
		}
		provided = provided || holds
	}
	return !provided && (WantsAddress(other) || NeedsBlock(other) && shows(other, address))
}

// poolBlocks returns the blocks of the pool with their ledgers, and those that are gone, cannot be read, or are the
// pool's no more, and in which the Service holds an address. known is false when only a read by ID shows which that is.
func (obs Observed) poolBlocks() (blocks []ipblock.PoolBlock, known bool) {
	for _, i := range obs.Sightings {
		_, unreadable := obs.Unread(i.Block.ID)
		if !obs.Pool().Owns(i.Block) || !i.Block.CIDR.IsValid() || unreadable {
			continue
		}
		l, stored := obs.Ledger(i.Block.ID)
		if !stored {
			if !obs.Live {
				return nil, false
			}
			l = obs.unstored(i.Block)
		}
		blocks = append(blocks, ipblock.PoolBlock{Sighting: i, Ledger: l})
	}
	for _, l := range obs.Ledgers {
		if _, holds := l.AddressOf(obs.Holder); !holds || slices.Contains(poolIDs(blocks), l.BlockID) {
			continue
		}
		if !obs.Live {
			return nil, false
		}
		sighting, seen := obs.Sighting(l.BlockID)
		gone := !seen && !obs.Exists(l.BlockID)
		if !seen && !gone {
			sighting = network.Sighting{Block: network.Block{ID: l.BlockID, CIDR: l.CIDR}, Hidden: true}
		}
		blocks = append(blocks, ipblock.PoolBlock{Sighting: sighting, Gone: gone, Foreign: seen, Ledger: l})
	}
	return blocks, true
}

// poolGrows reports whether a block of the pool is on its way to the network. The next one is bought only
// when it is there: the network takes in one after the other anyway, and some who wait may have gone by then.
func (obs Observed) poolGrows(blocks []ipblock.PoolBlock) (reason ipblock.Reason, grows bool) {
	for _, p := range blocks {
		if p.Gone || p.Foreign || p.Ledger.Closed || p.Ledger.Deleted || p.Sighting.Hidden {
			continue
		}
		switch p.Sighting.Block.Status {
		case network.Creating:
			return ipblock.BlockCreating, true
		case network.Unassigned, network.Assigning:
			return ipblock.BlockAssigning, true
		default:
		}
	}
	return "", false
}

// grow is what extends the pool: a purchase, or the wait for a block that is on its way.
func (obs Observed) grow(blocks []ipblock.PoolBlock, extend ipblock.Step) ipblock.Step {
	if reason, coming := obs.poolGrows(blocks); coming && extend.Action == ipblock.Buy {
		return ipblock.Step{Action: ipblock.Wait, Reason: reason}
	}
	return extend
}

// quarantineWait is how long a Service waits for an address in quarantine while the pool could grow instead: long
// enough for agents to report that the address is silent, which spares a purchase.
const quarantineWait = 30 * time.Second

// preferPurchase returns the step that serves the Service sooner than a wait for the end of a quarantine does. A
// requested address cannot be bought, and where the pool cannot grow there is nothing but to wait.
func (obs Observed) preferPurchase(wait, grow ipblock.Step) ipblock.Step {
	bounded := obs.QuarantinedSince.Add(quarantineWait)
	switch {
	case wait.Reason != ipblock.AddressQuarantined, obs.Desired.Requested.IsValid(), grow.Action == ipblock.Refuse,
		!wait.Until.After(bounded):
		return wait
	case obs.Now.Before(bounded):
		wait.Until = bounded
		return wait
	default:
		return grow
	}
}

func poolIDs(blocks []ipblock.PoolBlock) []string {
	ids := make([]string, 0, len(blocks))
	for _, p := range blocks {
		ids = append(ids, p.Ledger.BlockID)
	}
	return ids
}

// decideBrought decides about an address of a block that the user brought. It is never deleted and its
// tags are never touched; several Services may share it.
func decideBrought(obs Observed) ServicePlan {
	id := cmp.Or(obs.NamedBlock, obs.HeldIn.BlockID)
	sighting, seen := obs.Sighting(id)
	switch {
	case !seen && !obs.Live:
		return ServicePlan{Step: ipblock.Step{Action: ipblock.Wait, Reason: ipblock.BlockInvisible}}
	case slices.Contains(obs.Unseen, id), (!seen || sighting.Hidden) && obs.Exists(id):
		return ServicePlan{Step: ipblock.WaitUnseen(network.Block{ID: id, CIDR: obs.HeldIn.CIDR})}
	case !seen && obs.Published.IsValid():
		return obs.lostBrought(id)
	case !seen || sighting.Hidden:
		return refusedPlan(ipblock.BlockUnusable, "%s is not in the account; name another one, whose block is, or "+
			"remove the annotation", obs.describeNamed(id))
	}
	if refusal, refused := ipblock.Untouchable(sighting.Block); refused {
		return ServicePlan{Step: refusal}
	}
	if refusal, refused := obs.refuseNamed(sighting.Block); refused {
		return refusal
	}
	if unread, unreadable := obs.Unread(id); unreadable {
		if network.IsHost(sighting.Block.CIDR, obs.Published) && sighting.Block.Status == network.Assigned {
			return obs.keepUnrecorded(unread)
		}
		return refusedPlan(ipblock.LedgerUnreadable, "%s", unread.Problem)
	}
	l, stored := obs.Ledger(id)
	if !stored {
		l = obs.unstoredBrought(sighting.Block)
	}
	return allocateBrought(obs, sighting, l)
}

func allocateBrought(obs Observed, sighting network.Sighting, l ipblock.Ledger) ServicePlan {
	blocks := []ipblock.PoolBlock{{Sighting: sighting, Ledger: l}}
	step := ipblock.EnsureBrought(sighting, l.AssignedHere, obs.Account)
	if step.Action == ipblock.Refuse {
		return ServicePlan{Step: step}
	}
	allocated := ipblock.Allocate(obs.Holder, obs.addressRequest(), blocks, false)
	switch {
	case allocated.Action == ipblock.Buy && l.Deleted:
		return refusedPlan(ipblock.BlockUnusable, "%s is being given up, because its IPBlock is being deleted; name "+
			"another one", obs.describeNamed(l.BlockID))
	case allocated.Action == ipblock.Buy:
		return refusedPlan(ipblock.BlockUnusable, "all addresses of %s are in use; name another one",
			obs.describeNamed(l.BlockID))
	}
	if allocated.Action != ipblock.Done {
		return ServicePlan{Step: allocated.Step, Save: lostLedger(l, obs.Now)}
	}
	p := ServicePlan{Step: step, Save: allocated.Save, Reused: allocated.Reused}
	p.Step.Address = allocated.Address
	p.Step.SharedAs = allocated.SharedAs
	if p.Step.Action == ipblock.Assign && !l.AssignedHere {
		p.Save = assignedHere(p.Save, l)
	}
	p.Save = append(p.Save, obs.leave(l.BlockID)...)
	if p.Step.Action == ipblock.Done {
		p.Surplus = actionable(ipblock.Release(obs.Owner, obs.Account))
	}
	return p
}

// assignedHere records that the controller is about to assign the block, so that it is the one to unassign it.
func assignedHere(save []ipblock.Ledger, l ipblock.Ledger) []ipblock.Ledger {
	for i := range save {
		if save[i].BlockID == l.BlockID {
			save[i].AssignedHere = true
			return save
		}
	}
	l.AssignedHere = true
	return append(save, l)
}

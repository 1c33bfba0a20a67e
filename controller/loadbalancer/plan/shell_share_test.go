package plan_test

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// pool is the blocks of the pool with their ledgers, as the controller sees them.
func (c *cluster) pool(v plan.Account) []plan.PoolBlock {
	var found []plan.PoolBlock
	seen := map[string]bool{}
	for _, s := range v.Sightings {
		if pool.Owns(s.Block) {
			seen[s.Block.ID] = true
			found = append(found, plan.PoolBlock{Sighting: s, Ledger: c.ledgers[s.Block.ID]})
		}
	}
	for id, l := range c.ledgers {
		if seen[id] || id == c.broughtID {
			continue
		}
		unseen := plan.PoolBlock{Gone: true, Ledger: l}
		if b := c.find(id); b != nil { // looked up by ID
			unseen = plan.PoolBlock{Sighting: network.Sighting{Block: b.Block}, Ledger: l, Foreign: !pool.Owns(b.Block)}
		}
		found = append(found, unseen)
	}
	return found
}

func (c *cluster) placeWish(s *modelService) plan.AddressRequest {
	return plan.AddressRequest{
		Desired: plan.Desired{Replace: s.replace}, Published: s.published,
		Ask:       plan.Ask{Silent: func(netip.Addr) bool { return c.reported }, Now: c.now},
		NetworkID: net1,
	}
}

func (c *cluster) ensureShared(s *modelService) bool {
	v := c.viewFor(c.poolPurchase)
	p := plan.Allocate(s.holder(), c.placeWish(s), c.pool(v), false)
	for _, l := range p.Save {
		if !c.save(l) {
			return false
		}
	}
	switch p.Action {
	case plan.Done:
		return c.bringToNetwork(s, p, v, plan.EnsureBlock(network.Sighting{Block: p.Block}, v))
	case plan.Buy:
		w := c.wish(s)
		return c.act(s, w.extend(pool, v), pool, &c.poolPurchase)
	case plan.Refuse:
		s.refused = p.Reason
		return true
	default:
		return false
	}
}

// bringToNetwork carries out the next step for the block of a allocated, or publishes.
func (c *cluster) bringToNetwork(s *modelService, p plan.Allocated, v plan.Account, step plan.Step) bool {
	if foreign := s.mode == shared && !pool.Owns(p.Block); foreign {
		s.refused = plan.BlockRetagged
		return true
	}
	switch {
	case step.Action != plan.Done:
		return c.act(s, step, pool, nil)
	case s.published != p.Address:
		c.publish(s, p.Address, p.Block)
		return false
	default:
		return true
	}
}

func (c *cluster) ensureBrought(s *modelService) bool {
	v := c.viewFor(plan.Purchase{})
	b := c.find(c.broughtID)
	if b == nil {
		s.refused = plan.BlockLost
		return true
	}
	p := plan.Allocate(s.holder(), c.placeWish(s), []plan.PoolBlock{{Sighting: network.Sighting{Block: b.Block},
		Ledger: c.ledgers[b.ID]}}, false)
	for _, l := range p.Save {
		if !c.save(l) {
			return false
		}
	}
	if p.Action != plan.Done {
		s.refused = p.Reason
		return p.Action != plan.Wait
	}
	l := c.ledgers[b.ID]
	step := plan.EnsureBrought(network.Sighting{Block: b.Block}, l.AssignedHere, v)
	if step.Action == plan.Assign && !l.AssignedHere {
		l.AssignedHere = true
		return c.save(l) && false
	}
	return c.bringToNetwork(s, p, v, step)
}

// releaseShare frees the Service's addresses, and waits for the blocks that it was the last in.
func (c *cluster) releaseShare(s *modelService) bool {
	waits := false
	for id, l := range c.ledgers {
		if _, holds := l.AddressOf(s.holder()); holds {
			freed := l.Free(s.holder(), c.now)
			if freed.Empty() {
				freed = freed.Close()
			}
			c.save(freed, func() { c.withdraw(s) })
			return false
		}
		for _, released := range l.Quarantined {
			waits = waits || (c.ledgers[id].Closed && released.Holder == s.holder())
		}
	}
	if waits {
		c.housekeep()
		return false
	}
	c.drop(s)
	return false
}

// housekeep takes one step towards releasing a block of the pool without addresses in use, the
// unused brought block, or a block whose Service is gone.
func (c *cluster) housekeep() {
	defer func() {
		if cause := recover(); cause != nil {
			if _, planned := cause.(died); !planned {
				panic(cause)
			}
		}
	}()
	v := c.viewFor(c.poolPurchase)
	for _, b := range c.pool(v) {
		if b.Ledger.Empty() && c.retire(b, v) {
			return
		}
	}
	c.giveUpBrought(v)
	c.collectOrphans(v)
}

// retire releases one empty block of the pool; it reports whether it did something.
func (c *cluster) retire(b plan.PoolBlock, v plan.Account) bool {
	stored := b.Ledger.Version != ""
	switch {
	case (b.Gone || b.Foreign) && stored:
		c.do(func() { delete(c.ledgers, b.Ledger.BlockID) })
		return true
	case b.Gone || b.Foreign || b.Sighting.Hidden:
		return false
	case !b.Ledger.Closed:
		if c.poolAwaited() {
			return false
		}
		if !stored {
			b.Ledger = plan.NewLedger(b.Sighting.Block.ID, b.Sighting.Block.CIDR)
		}
		return c.save(b.Ledger.Close())
	}
	step := plan.ReleaseBlock(b.Sighting, v)
	c.act(nil, step, pool, nil)
	return step.Action != plan.Wait && step.Action != plan.Refuse
}

// poolAwaited reports whether a Service of the pool has no address yet.
func (c *cluster) poolAwaited() bool {
	return slices.ContainsFunc(c.services, func(s *modelService) bool {
		if s.mode != shared || s.deleting {
			return false
		}
		for _, l := range c.ledgers {
			if _, holds := l.AddressOf(s.holder()); holds {
				return false
			}
		}
		return true
	})
}

func (c *cluster) giveUpBrought(v plan.Account) {
	l, stored := c.ledgers[c.broughtID]
	if !stored || !l.Empty() {
		return
	}
	step := plan.Step{Action: plan.Done}
	if b := c.find(c.broughtID); b != nil {
		step = plan.ReleaseBrought(network.Sighting{Block: b.Block}, l.AssignedHere, v)
	}
	if step.Action != plan.Done {
		c.act(nil, step, network.Owner{}, nil)
		return
	}
	if gone := c.find(c.broughtID) == nil; gone || l.Spent(func(netip.Addr) bool { return c.reported }, c.now) {
		c.do(func() { delete(c.ledgers, c.broughtID) })
	}
}

// collectOrphans releases blocks that a frozen process bought for a Service that is gone. Nothing else may
// become an orphan.
func (c *cluster) collectOrphans(v plan.Account) {
	for _, seen := range v.Sightings {
		name, found := strings.CutPrefix(seen.Block.Tags[contract.TagService], "shop_")
		lives := slices.ContainsFunc(c.services, func(s *modelService) bool { return s.name == name })
		if !found || lives || seen.Hidden || !c.find(seen.Block.ID).late {
			continue
		}
		step := plan.Release(network.Owner{Cluster: "c1", Namespace: "shop", Name: name}, v)[0]
		if c.act(nil, step, network.Owner{}, nil); step.Action == plan.Unassign || step.Action == plan.Delete {
			return
		}
	}
}

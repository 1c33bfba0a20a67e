package ipblock_test

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// pool is the blocks of the pool with their ledgers, as the controller sees them.
func (c *cluster) pool(v ipblock.Account) []ipblock.PoolBlock {
	var found []ipblock.PoolBlock
	seen := map[string]bool{}
	for _, s := range v.Sightings {
		if pool.Owns(s.Block) {
			seen[s.Block.ID] = true
			found = append(found, ipblock.PoolBlock{Sighting: s, Ledger: c.ledgers[s.Block.ID]})
		}
	}
	for id, l := range c.ledgers {
		if seen[id] || id == c.broughtID {
			continue
		}
		unseen := ipblock.PoolBlock{Gone: true, Ledger: l}
		if b := c.find(id); b != nil { // looked up by ID
			unseen = ipblock.PoolBlock{Sighting: network.Sighting{Block: b.Block}, Ledger: l,
				Foreign: !pool.Owns(b.Block)}
		}
		found = append(found, unseen)
	}
	return found
}

func (c *cluster) placeWish(s *modelService) ipblock.AddressRequest {
	return ipblock.AddressRequest{
		Request: ipblock.Request{Replace: s.replace}, Published: s.published,
		Ask:     ipblock.Ask{Silent: func(netip.Addr) bool { return c.reported }, Now: c.now},
		Network: network.Named{ID: net1},
	}
}

func (c *cluster) ensureShared(s *modelService) bool {
	v := c.viewFor(c.poolPurchase)
	p := ipblock.Allocate(s.holder(), c.placeWish(s), c.pool(v), false)
	for _, l := range p.Save {
		if !c.save(l) {
			return false
		}
	}
	switch p.Action {
	case ipblock.Done:
		return c.bringToNetwork(s, p, v, ipblock.EnsureBlock(network.Sighting{Block: p.Block}, v))
	case ipblock.Buy:
		w := c.wish(s)
		return c.act(s, w.extend(pool, v), pool, &c.poolPurchase)
	case ipblock.Refuse:
		s.refused = p.Reason
		return true
	default:
		return false
	}
}

// bringToNetwork carries out the next step for the block of a allocated, or publishes.
func (c *cluster) bringToNetwork(s *modelService, p ipblock.Allocated, v ipblock.Account, step ipblock.Step) bool {
	if foreign := s.mode == shared && !pool.Owns(p.Block); foreign {
		s.refused = ipblock.BlockRetagged
		return true
	}
	switch {
	case step.Action != ipblock.Done:
		return c.act(s, step, pool, nil)
	case s.published != p.Address:
		c.publish(s, p.Address, p.Block)
		return false
	default:
		return true
	}
}

func (c *cluster) ensureBrought(s *modelService) bool {
	v := c.viewFor(ipblock.Purchase{})
	b := c.find(c.broughtID)
	if b == nil {
		s.refused = ipblock.BlockLost
		return true
	}
	p := ipblock.Allocate(s.holder(), c.placeWish(s), []ipblock.PoolBlock{{Sighting: network.Sighting{Block: b.Block},
		Ledger: c.ledgers[b.ID]}}, false)
	for _, l := range p.Save {
		if !c.save(l) {
			return false
		}
	}
	if p.Action != ipblock.Done {
		s.refused = p.Reason
		return p.Action != ipblock.Wait
	}
	l := c.ledgers[b.ID]
	step := ipblock.EnsureBrought(network.Sighting{Block: b.Block}, l.AssignedHere, v)
	if step.Action == ipblock.Assign && !l.AssignedHere {
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
func (c *cluster) retire(b ipblock.PoolBlock, v ipblock.Account) bool {
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
			b.Ledger = ipblock.NewLedger(b.Sighting.Block.ID, b.Sighting.Block.CIDR)
		}
		return c.save(b.Ledger.Close())
	}
	step := ipblock.ReleaseBlock(b.Sighting, v)
	c.act(nil, step, pool, nil)
	return step.Action != ipblock.Wait && step.Action != ipblock.Refuse
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

func (c *cluster) giveUpBrought(v ipblock.Account) {
	l, stored := c.ledgers[c.broughtID]
	if !stored || !l.Empty() {
		return
	}
	step := ipblock.Step{Action: ipblock.Done}
	if b := c.find(c.broughtID); b != nil {
		step = ipblock.ReleaseBrought(network.Sighting{Block: b.Block}, l.AssignedHere, v)
	}
	if step.Action != ipblock.Done {
		c.act(nil, step, network.Owner{}, nil)
		return
	}
	if gone := c.find(c.broughtID) == nil; gone || l.Spent(func(netip.Addr) bool { return c.reported }, c.now) {
		c.do(func() { delete(c.ledgers, c.broughtID) })
	}
}

// collectOrphans releases blocks that a frozen process bought for a Service that is gone. Nothing else may
// become an orphan.
func (c *cluster) collectOrphans(v ipblock.Account) {
	for _, seen := range v.Sightings {
		name, found := strings.CutPrefix(seen.Block.Tags[contract.TagService], "shop_")
		lives := slices.ContainsFunc(c.services, func(s *modelService) bool { return s.name == name })
		if !found || lives || seen.Hidden || !c.find(seen.Block.ID).late {
			continue
		}
		step := ipblock.Release(network.Owner{Cluster: "c1", Namespace: "shop", Name: name}, v)[0]
		if c.act(nil, step, network.Owner{}, nil); step.Action == ipblock.Unassign || step.Action == ipblock.Delete {
			return
		}
	}
}

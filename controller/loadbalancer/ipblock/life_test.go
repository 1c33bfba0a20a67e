package ipblock_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

const (
	// chaos is how many things happen before everything calms down.
	chaos = 160
	// calm is how long a cluster may take to come to rest.
	calm = 40 * time.Minute
	// collapse is within which time a block too many goes.
	collapse = 5 * time.Minute
)

// newCluster is an account with room for some blocks, a block that the user brought, and no Service.
func newCluster(seed uint64) *cluster {
	c := &cluster{account: newAccount(seed), ledgers: map[string]ipblock.Ledger{},
		withdrawn: map[netip.Addr]ipblock.Released{}, losses: true}
	c.freezes = max(0, c.rng.IntN(5)-2)
	c.mayTouch = func(b network.Block) bool { return network.OfCluster(b, "c1") || b.ID == c.broughtID }
	own := c.leave(map[string]string{contract.TagCluster: "c1", "team": "a"},
		[]network.BlockStatus{network.Unassigned, network.Assigned}[c.rng.IntN(2)], net1)
	c.broughtID = own.ID
	c.leave(with(shop.Tags(), contract.TagCluster, "c2"), network.Unassigned, net1)
	return c
}

// names of Services: few, so that they are used again.
var names = []string{"s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"}

// happen is one thing that happens to the cluster.
func (c *cluster) happen() {
	switch c.rng.IntN(20) {
	case 0, 1:
		c.createService()
	case 2:
		c.deleteService()
	case 3:
		c.editPortal()
	case 4:
		c.crashIn = 1 + c.rng.IntN(6)
	case 5:
		c.editService()
	case 6, 7:
		c.housekeep()
	default:
		if len(c.services) > 0 {
			c.sync(c.services[c.rng.IntN(len(c.services))])
		}
	}
	c.pass(time.Duration(c.rng.IntN(6000)) * time.Millisecond)
}

func (c *cluster) createService() {
	name := names[c.rng.IntN(len(names))]
	if slices.ContainsFunc(c.services, func(s *modelService) bool { return s.name == name }) {
		return
	}
	c.uids++
	c.services = append(c.services, &modelService{
		name: name, uid: fmt.Sprint("uid", c.uids), mode: []mode{dedicated, dedicated, shared, shared, shared,
			brought}[c.rng.IntN(6)], retain: c.rng.IntN(5) == 0,
	})
}

func (c *cluster) deleteService() {
	if len(c.services) > 0 {
		c.services[c.rng.IntN(len(c.services))].deleting = true
	}
}

func (c *cluster) editService() {
	if len(c.services) == 0 {
		return
	}
	s := c.services[c.rng.IntN(len(c.services))]
	if c.rng.IntN(2) == 0 {
		s.retain = !s.retain
	} else {
		s.replace = !s.replace
	}
}

// editPortal is a person in the portal, who deletes, unassigns or retags one of the cluster's blocks.
func (c *cluster) editPortal() {
	b := c.blocks[c.rng.IntN(len(c.blocks))]
	if !c.mayTouch(b.Block) || c.rng.IntN(3) != 0 {
		return
	}
	switch kind := c.rng.IntN(3); {
	case kind == 0 && b.Status == network.Assigned && b.ResourceID == net1:
		c.networks[net1].until = time.Time{}
		c.move(b, net1, network.Unassigning, network.Assigned)
	case kind == 1:
		c.vanish(b)
	case kind == 2 && b.ID != c.broughtID:
		b.Tags = map[string]string{"mine": "yes"}
	}
}

// pass lets time pass; what frozen processes send is carried out when it is due.
func (c *cluster) pass(d time.Duration) {
	c.advance(d)
	c.late = slices.DeleteFunc(c.late, func(l lateChange) bool {
		if c.now.Before(l.at) {
			return false
		}
		c.wake(l)
		return true
	})
}

// wake carries out what a frozen process sends, where the API does not refuse it. That someone takes a
// block for himself between the check and that cannot be helped.
func (c *cluster) wake(l lateChange) {
	if l.step.Action == ipblock.Buy {
		if len(c.serving(l.owner)) > 0 {
			c.tally.extraBlocks++
		}
		c.sell(l.owner).late = true
		return
	}
	b := c.find(l.step.Block.ID)
	switch {
	case b == nil, !c.mayTouch(b.Block):
	case l.step.Action == ipblock.Delete && b.Status == network.Unassigned && !network.Retained(b.Block),
		l.step.Action == ipblock.Unassign && b.Status == network.Assigned && b.ResourceID == l.step.Network &&
			!c.now.Before(c.networks[b.ResourceID].until):
		c.tally.lateChanges++
		c.carryOut(l.step)
	}
}

// settle lets the controller work undisturbed until nothing is left to do. It reports whether that was in time.
func (c *cluster) settle(limit time.Duration) bool {
	c.losses = false
	c.crashIn = 0
	c.freezes = 0
	c.trouble = 0
	idle := 0
	for end := c.now.Add(limit); c.now.Before(end); c.pass(pause) {
		before := c.fingerprint()
		settled := true
		for _, s := range slices.Clone(c.services) {
			settled = c.sync(s) && settled
			c.pass(pause / 4)
		}
		c.housekeep()
		if settled && len(c.late) == 0 && !c.emptyLedger() && before == c.fingerprint() {
			if idle++; idle > 25 { // longer than lists lag, and than a purchase without an answer is in doubt
				return true
			}
			continue
		}
		idle = 0
	}
	return false
}

// emptyLedger reports whether a ledger waits to be deleted.
func (c *cluster) emptyLedger() bool {
	for _, l := range c.ledgers {
		if l.Empty() {
			return true
		}
	}
	return false
}

// fingerprint changes with everything that the controller changes.
func (c *cluster) fingerprint() string {
	text := fmt.Sprint(c.versions, len(c.ledgers), len(c.ghosts), len(c.services))
	for _, b := range c.blocks {
		text += string(b.Status[:4]) + b.ID
	}
	return text
}

// checkServed: each Service has an address in an assigned block of its own right, or a refusal that is due.
func (c *cluster) checkServed(t *testing.T, seed uint64) {
	t.Helper()
	for _, s := range c.services {
		if s.refused != "" {
			c.tally.excused++
			if !slices.Contains([]ipblock.Reason{ipblock.NetworkFull, ipblock.BlockLost, ipblock.BlockRetagged,
				ipblock.BlockInError},
				s.refused) {
				t.Errorf("seed %d: %s is refused for %s", seed, s.name, s.refused)
			}
			continue
		}
		b := c.find(s.block)
		switch {
		case !s.published.IsValid():
			t.Errorf("seed %d: %s has no address", seed, s.name)
		case b == nil || b.Status != network.Assigned || b.ResourceID != net1 || !network.IsHost(b.CIDR, s.published):
			t.Errorf("seed %d: %s is published at %s, but its block is %v", seed, s.name, s.published, b)
		case s.mode == dedicated && len(c.inUse(s)) != 1:
			t.Errorf("seed %d: %s owns %s", seed, s.name, describe(c.inUse(s)))
		case s.mode == dedicated && !s.owner().Owns(b.Block):
			t.Errorf("seed %d: %s is published in %s, which is not its own", seed, s.name, b.ID)
		}
		if s.mode != dedicated {
			if held, _ := c.ledgers[s.block].AddressOf(s.holder()); held != s.published {
				t.Errorf("seed %d: %s is published at %s, the ledger says %s", seed, s.name, s.published, held)
			}
		}
	}
}

func (c *cluster) ownedBy(o network.Owner) []*modelBlock {
	var owned []*modelBlock
	for _, b := range c.blocks {
		if o.Owns(b.Block) {
			owned = append(owned, b)
		}
	}
	return owned
}

// inUse are the blocks of a Service but for those of an earlier life that it retains.
func (c *cluster) inUse(s *modelService) []*modelBlock {
	return slices.DeleteFunc(c.ownedBy(s.owner()), func(b *modelBlock) bool {
		return s.retain && network.Retained(b.Block) && b.ResourceID == "" && b.ID != s.block
	})
}

// checkPacked: no block of the pool is without a holder.
func (c *cluster) checkPacked(t *testing.T, seed uint64) {
	t.Helper()
	for _, b := range c.ownedBy(pool) {
		if c.ledgers[b.ID].Empty() {
			t.Errorf("seed %d: block %s of the pool has no holder", seed, b.ID)
		}
	}
}

// checkReleased: with all Services gone the account holds nothing of the cluster but what is retained,
// and the user's block is as free as it was.
func (c *cluster) checkReleased(t *testing.T, seed uint64, assignedBefore bool) {
	t.Helper()
	for _, b := range c.blocks {
		if network.OfCluster(b.Block, "c1") && (!network.Retained(b.Block) || b.ResourceID != "") {
			c.tally.leaked++
			t.Errorf("seed %d: block %s is left, %s in %q", seed, b.ID, b.Status, b.ResourceID)
		}
		if b.ID == c.broughtID && !assignedBefore && b.ResourceID != "" {
			t.Errorf("seed %d: the user's block is still on %s", seed, b.ResourceID)
		}
	}
	if len(c.services) != 0 || len(c.ledgers) != 0 {
		t.Errorf("seed %d: %d Services and %d ledgers are left", seed, len(c.services), len(c.ledgers))
	}
}

// TestLivesOfServices: Services of every kind come and go while answers are lost, the controller dies
// between any two things that it does, a process is frozen before it buys, lists lag and people edit
// blocks in the portal. Then each has what it should have; and when all are deleted, nothing is left.
func TestLivesOfServices(t *testing.T) {
	total := tally{}
	walks := seeds.Count(t, 300)
	for seed := range uint64(walks) {
		c := newCluster(seed)
		liveAndDie(t, seed, c)
		total.add(c.tally)
		checkFaults(t, seed, c.account)
		if t.Failed() {
			t.FailNow()
		}
	}
	for _, figure := range []struct {
		name, unit string
		value      int
		zero       bool
	}{
		{"walk_model_seeds", "seeds", walks, false},
		{"walk_model_crashes", "crashes", total.crashes, false},
		{"walk_model_late_changes", "changes", total.lateChanges, false},
		{"walk_model_addresses_published", "addresses", total.published, false},
		{"walk_model_services_refused", "services", total.excused, false},
		{"walk_model_leaked_blocks", "blocks", total.leaked, true},
		{"walk_model_double_purchases", "purchases", total.doublePurchases, true},
		{"walk_model_extra_blocks_collapsed", "blocks", total.collapsed, false},
		{"walk_model_addresses_given_twice", "addresses", total.givenTwice, true},
	} {
		t.Logf("figure %s %d %s", figure.name, figure.value, figure.unit)
		if figure.zero != (figure.value == 0) {
			t.Errorf("%s is %d", figure.name, figure.value)
		}
	}
	if total.collapsed != total.extraBlocks {
		t.Errorf("%d of %d blocks too many are gone", total.collapsed, total.extraBlocks)
	}
}

func (a *tally) add(b tally) {
	a.doublePurchases += b.doublePurchases
	a.extraBlocks += b.extraBlocks
	a.collapsed += b.collapsed
	a.givenTwice += b.givenTwice
	a.leaked += b.leaked
	a.excused += b.excused
	a.published += b.published
	a.crashes += b.crashes
	a.lateChanges += b.lateChanges
}

func liveAndDie(t *testing.T, seed uint64, c *cluster) {
	t.Helper()
	assignedBefore := c.find(c.broughtID).ResourceID != ""
	for range chaos {
		c.happen()
	}
	c.reported = c.rng.IntN(2) == 0
	for len(c.late) > 0 { // frozen processes wake up in the calm, so that what they bring is measured
		c.settle(pause)
	}
	c.settle(collapse)
	if c.checkCollapsed(t, seed) {
		c.tally.collapsed = c.tally.extraBlocks
	}
	if !c.settle(calm) {
		t.Errorf("seed %d: no rest: %+v", seed, c.services)
		return
	}
	c.checkServed(t, seed)
	c.checkPacked(t, seed)
	for _, s := range c.services {
		s.deleting = true
	}
	if !c.settle(calm) {
		t.Errorf("seed %d: no end: %d Services", seed, len(c.services))
		return
	}
	c.checkReleased(t, seed, assignedBefore)
}

// checkCollapsed reports whether no Service has more than one block of its own and the pool none too many.
func (c *cluster) checkCollapsed(t *testing.T, seed uint64) bool {
	t.Helper()
	c.checkPacked(t, seed)
	for _, s := range c.services {
		if owned := c.inUse(s); s.mode == dedicated && !s.deleting && len(owned) > 1 {
			t.Errorf("seed %d: %s owns %s five minutes later", seed, s.name, describe(owned))
		}
	}
	return !t.Failed()
}

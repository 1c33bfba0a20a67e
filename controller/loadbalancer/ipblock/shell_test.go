package ipblock_test

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
)

// mode is how a Service of the model gets its address.
type mode int

const (
	dedicated mode = iota
	shared
	brought
)

// modelService is a Service as the cluster stores it.
type modelService struct {
	name      string
	uid       string
	mode      mode
	retain    bool
	replace   bool
	deleting  bool
	published netip.Addr
	// block is the ID of the block of the published address.
	block    string
	purchase ipblock.Purchase
	refused  ipblock.Reason
}

func (s *modelService) holder() ipblock.Holder {
	return ipblock.Holder{Namespace: "shop", Name: s.name, UID: s.uid}
}

func (s *modelService) owner() network.Owner {
	return network.Owner{Cluster: "c1", Namespace: "shop", Name: s.name}
}

// cluster is a model of a cluster: what Kubernetes stores, the account, and a controller that does one
// thing at a time and may die between any two.
type cluster struct {
	*account
	services []*modelService
	ledgers  map[string]ipblock.Ledger
	versions int
	// poolPurchase is the record of the pool.
	poolPurchase ipblock.Purchase
	broughtID    string
	uids         int
	// crashIn is how many things the controller does until it dies; 0 for never.
	crashIn int
	// losses means that answers may be lost; freezes is how many changes may be sent late.
	losses  bool
	freezes int
	late    []lateChange
	tally   tally
	// withdrawn is when an address was released, and by whom.
	withdrawn map[netip.Addr]ipblock.Released
	reported  bool // agents report silence
}

// lateChange is sent by a process that was frozen after it had checked that it may: a step, or where that
// is Buy a purchase for the owner.
type lateChange struct {
	step  ipblock.Step
	owner network.Owner
	at    time.Time
}

// mayFreeze freezes the process for longer than it leads: the change is sent by and by, another process
// goes on.
func (c *cluster) mayFreeze(step ipblock.Step, o network.Owner) {
	if c.freezes == 0 || c.rng.IntN(4) != 0 {
		return
	}
	c.freezes--
	c.late = append(c.late, lateChange{step, o, c.now.Add(time.Duration(20+c.rng.IntN(200)) * time.Second)})
	panic(died{})
}

// tally is what a walk is judged by.
type tally struct {
	doublePurchases, extraBlocks, collapsed, givenTwice, leaked, excused, published, crashes, lateChanges int
}

// died is what the controller of the model dies of.
type died struct{}

// do is one thing that leaves the process.
func (c *cluster) do(act func()) {
	c.mayDie()
	act()
	c.mayDie()
}

func (c *cluster) mayDie() {
	if c.crashIn == 0 {
		return
	}
	if c.crashIn--; c.crashIn == 0 {
		c.tally.crashes++
		panic(died{})
	}
}

// sync lets the controller take one step for a Service. It reports whether there was nothing to do.
func (c *cluster) sync(s *modelService) (settled bool) {
	defer func() {
		if cause := recover(); cause != nil {
			if _, planned := cause.(died); !planned {
				panic(cause)
			}
			settled = false
		}
	}()
	s.refused = ""
	switch {
	case s.deleting && s.mode == dedicated:
		return c.releaseDedicated(s)
	case s.deleting:
		return c.releaseShare(s)
	case s.mode == dedicated:
		return c.ensureDedicated(s)
	case s.mode == shared:
		return c.ensureShared(s)
	default:
		return c.ensureBrought(s)
	}
}

func (c *cluster) wish(s *modelService) wanted {
	w := wanted{Request: ipblock.Request{Location: "ASH", Replace: s.replace}, Published: s.published}
	public := c.readNetworks()[net1]
	for _, b := range c.blocks {
		mine := s.mode == dedicated && s.owner().Owns(b.Block)
		if network.OfCluster(b.Block, "c1") && !mine && b.ResourceID == "" && !public.Listed(b.ID) {
			w.Reserved++
		}
	}
	return w
}

// viewFor is the view with a record of a purchase.
func (c *cluster) viewFor(p ipblock.Purchase) ipblock.Account {
	c.purchase = nil
	if p.Nonce != "" {
		c.purchase = &p
	}
	return c.view()
}

func (c *cluster) ensureDedicated(s *modelService) bool {
	v := c.viewFor(s.purchase)
	w := c.wish(s)
	step := w.ensure(s.owner(), v)
	if step.Action != ipblock.Done {
		return c.act(s, step, s.owner(), &s.purchase)
	}
	if b, tags, due := w.retag(s.owner(), v, s.retain); due {
		c.do(func() { c.find(b.ID).Tags = tags })
		return false
	}
	if s.published != step.Address {
		c.publish(s, step.Address, step.Block)
		return false
	}
	if duplicates := w.duplicates(s.owner(), v); len(duplicates) > 0 {
		c.act(s, duplicates[0], s.owner(), nil)
		return false
	}
	return true
}

// act takes one step; p is the record of purchases. It reports whether only a person could do more.
func (c *cluster) act(s *modelService, step ipblock.Step, o network.Owner, p *ipblock.Purchase) (settled bool) {
	switch step.Action {
	case ipblock.Buy:
		c.buy(o, p)
	case ipblock.Assign, ipblock.Unassign, ipblock.Delete:
		if step.Action != ipblock.Assign {
			c.mayFreeze(step, network.Owner{})
		}
		c.do(func() {
			if !c.losses || c.rng.IntN(8) != 0 {
				c.carryOut(step)
			}
		})
	case ipblock.Refuse:
		if s != nil {
			s.refused = step.Reason
		}
		return true
	case ipblock.Wait, ipblock.Done:
	}
	return false
}

// buy records the intent, buys, and records the answer: any of the three may be the last.
func (c *cluster) buy(o network.Owner, record *ipblock.Purchase) {
	nonce := fmt.Sprintf("nonce%06d", c.rng.IntN(1e6))
	c.do(func() { *record = ipblock.Purchase{Nonce: nonce, Time: c.now} })
	c.mayFreeze(ipblock.Step{Action: ipblock.Buy}, o)
	lost := c.losses && c.rng.IntN(8) == 0
	if lost && c.rng.IntN(2) == 0 {
		return
	}
	var sold *modelBlock
	c.do(func() {
		c.judgePurchase(o)
		sold = c.sell(o)
		sold.Description = "purchase " + nonce
	})
	if lost {
		return
	}
	c.do(func() { record.BlockID = sold.ID })
}

// judgePurchase counts a purchase of what the account has already. That is forgiven where a frozen process
// bought it a moment ago and lists do not show it yet.
func (c *cluster) judgePurchase(o network.Owner) {
	serving := c.serving(o)
	switch {
	case len(serving) == 0:
	case slices.ContainsFunc(serving, func(b *modelBlock) bool { return !b.late || !c.now.Before(b.seen) }):
		c.tally.doublePurchases++
		c.fault("a second purchase for %s beside %s", o, describe(serving))
	default:
		c.tally.extraBlocks++
	}
}

// serving are the blocks that have what a purchase for the owner would bring, whatever lists show.
func (c *cluster) serving(o network.Owner) []*modelBlock {
	return slices.DeleteFunc(c.ownedBy(o), func(b *modelBlock) bool {
		l, stored := c.ledgers[b.ID]
		elsewhere := b.ResourceID != "" && b.ResourceID != net1
		full := stored && len(l.Held)+len(l.Quarantined) == countHosts(b.CIDR)
		return o.Pool != "" && (elsewhere || full)
	})
}

// save stores a ledger by compare-and-swap. What follows from it at once happens in the same moment.
func (c *cluster) save(l ipblock.Ledger, follows ...func()) (ok bool) {
	c.do(func() {
		if stored, exists := c.ledgers[l.BlockID]; exists != (l.Version != "") ||
			(exists && stored.Version != l.Version) {
			return
		}
		if err := l.Check(); err != nil {
			c.fault("a ledger that breaks the rules: %v", err)
		}
		c.versions++
		l.Version = fmt.Sprint(c.versions)
		c.ledgers[l.BlockID] = l
		ok = true
		for _, f := range follows {
			f()
		}
	})
	return ok
}

func (c *cluster) publish(s *modelService, address netip.Addr, b network.Block) {
	c.do(func() {
		if s.published.IsValid() {
			c.withdraw(s)
		}
		s.published = address
		s.block = b.ID
		c.tally.published++
		for _, other := range c.services {
			if other != s && other.published == address {
				c.tally.givenTwice++
			}
		}
		released, used := c.withdrawn[address]
		if used && released.Holder.Name != s.name && c.now.Before(released.Since.Add(ipblock.Quarantine)) &&
			!c.reported {
			c.fault("address %s, released by %s %s ago, is %s's", address, released.Holder.Name,
				c.now.Sub(released.Since), s.name)
		}
	})
}

// withdraw notes that a Service has its address no more.
func (c *cluster) withdraw(s *modelService) {
	if s.published.IsValid() {
		c.withdrawn[s.published] = ipblock.Released{Holder: s.holder(), Since: c.now}
	}
	s.published = netip.Addr{}
	s.block = ""
}

func (c *cluster) releaseDedicated(s *modelService) bool {
	v := c.viewFor(s.purchase)
	if b, tags, due := c.wish(s).retag(s.owner(), v, s.retain); due {
		c.do(func() { c.find(b.ID).Tags = tags })
		return false
	}
	step := ipblock.Release(s.owner(), v)[0]
	if step.Action == ipblock.Done {
		c.drop(s)
		return false
	}
	return c.act(s, step, s.owner(), nil)
}

// drop takes the finalizer off: the Service is gone.
func (c *cluster) drop(s *modelService) {
	c.do(func() {
		c.withdraw(s)
		c.services = slices.DeleteFunc(c.services, func(other *modelService) bool { return other == s })
	})
}

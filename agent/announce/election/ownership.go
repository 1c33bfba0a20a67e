package election

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// ownership is an address that the view gives to this node.
type ownership struct {
	address      netip.Addr
	epoch        uint64
	predecessors []string
	// answering reports whether no predecessor can answer: this node answers while its lease is valid.
	answering bool
	// fenced reports whether a newer view than ours gives the address to another node.
	fenced bool
}

// draining is an address for which this node answers until its successor is ready.
type draining struct {
	until     time.Duration
	successor string
}

// release is an address that another node wants and for which this one does not answer.
type release struct {
	number uint64 // of the view by which it is wanted
	at     time.Duration
}

// adopt switches to a newer view.
func (c *Election) adopt(v *View, version string) {
	old := c.owned
	lease := c.lease
	if c.view == nil {
		c.api.freshAt = c.now
	}
	c.view = v
	c.version = version
	c.changed = true
	c.urgent = true
	c.seen = max(c.seen, v.Number)
	c.members = c.members[:0:0]
	for _, m := range v.Members {
		c.members = append(c.members, IDOf(m))
	}
	c.addresses = v.addresses()
	c.owned = map[netip.Addr]*ownership{}
	for a, owner := range v.Owners {
		if owner.Node != c.Node {
			continue
		}
		h := &ownership{address: a, epoch: owner.Epoch, predecessors: owner.Before}
		if o := old[a]; o != nil && o.epoch == h.epoch && !o.fenced {
			h.answering = o.answering
		}
		c.owned[a] = h
	}
	for _, a := range slices.SortedFunc(maps.Keys(old), netip.Addr.Compare) {
		c.drain(old[a], v.Owners[a], lease)
	}
	for a, k := range c.draining {
		if owner := v.Owners[a].Node; owner == "" || owner == c.Node {
			delete(c.draining, a)
		} else {
			k.successor = owner
			c.draining[a] = k
		}
	}
	for _, p := range c.peers {
		c.updateBehind(p)
	}
	c.updateMembership()
	c.stale = true
}

// drain ends an ownership: this node answers until the successor asks, but no longer than the lease of the old view.
func (c *Election) drain(h *ownership, owner Owner, lease time.Duration) {
	if now := c.owned[h.address]; !h.answering || now != nil && now.answering {
		return
	}
	if owner.Node == "" || owner.Node == c.Node || h.fenced || lease <= c.now {
		c.record(LostOwnership, h.address, owner.Node)
		return
	}
	if !c.rules.boundedDraining {
		lease = c.now + time.Hour
	}
	c.draining[h.address] = draining{until: lease, successor: owner.Node}
}

// yieldTo gives up the addresses that another node wants by a newer view, or by ours.
func (c *Election) yieldTo(h *Heartbeat) {
	if c.view == nil {
		return
	}
	for _, a := range h.Wants {
		newer := h.Number > c.view.Number
		if !newer && c.view.Owners[a].Node != h.Node {
			continue
		}
		if _, kept := c.draining[a]; kept {
			delete(c.draining, a)
			c.record(LostOwnership, a, h.Node)
		}
		if own := c.owned[a]; newer && own != nil && !own.fenced {
			if own.answering {
				c.record(LostOwnership, a, h.Node)
			}
			own.fenced = true
			own.answering = false
		}
		if r, listed := c.releases[a]; !listed || r.number < h.Number {
			c.urgent = true
		}
		c.releases[a] = release{number: h.Number, at: c.now}
		c.stale = true
	}
}

// takeOver answers for addresses whose predecessors are known to have stopped, and ends draining that is over.
func (c *Election) takeOver() {
	for a, k := range c.draining {
		if k.until <= c.now {
			delete(c.draining, a)
			c.record(LostOwnership, a, k.successor)
			c.stale = true
			c.urgent = true
		}
	}
	for a, r := range c.releases {
		if c.now-r.at > c.rules.behind {
			delete(c.releases, a)
		}
	}
	if c.view == nil || c.waiting == 0 && !c.stale || c.lease <= c.now || c.seen != c.view.Number {
		return
	}
	for _, h := range c.owned {
		if h.answering || h.fenced || !c.proven(h) {
			continue
		}
		h.answering = true
		c.stale = true
		c.urgent = true
		predecessor := ""
		if n := len(h.predecessors); n > 0 {
			predecessor = h.predecessors[n-1]
		}
		c.record(BecameOwner, h.address, predecessor)
	}
}

// grant returns the addresses for which the node answers.
func (c *Election) grant() Grant {
	if c.stale {
		c.stale = false
		c.waiting = 0
		granted := make([]netip.Addr, 0, len(c.owned)+len(c.draining))
		for a, h := range c.owned {
			if h.answering {
				granted = append(granted, a)
			} else {
				c.waiting++
			}
		}
		c.answered = slices.SortedFunc(slices.Values(slices.AppendSeq(granted, maps.Keys(c.draining))),
			netip.Addr.Compare)
	}
	until := c.lease
	for _, k := range c.draining {
		if c.lease <= c.now || k.until < until {
			until = k.until
		}
	}
	switch {
	case !c.facts.Link || c.superseded():
		return Grant{Until: never}
	case c.lease <= c.now && len(c.draining) > 0:
		return Grant{Addresses: slices.SortedFunc(maps.Keys(c.draining), netip.Addr.Compare), Until: until}
	default:
		return Grant{Addresses: c.answered, Until: until}
	}
}

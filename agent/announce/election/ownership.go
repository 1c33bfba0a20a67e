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
	// continued reports whether an earlier agent of this node had it.
	continued bool
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
func (e *Election) adopt(v *View, version string) {
	old := e.owned
	lease := e.lease
	if e.view == nil {
		e.api.freshAt = e.now
		e.lapse.at = e.now // it supports no node before it has read the view, see caughtUp
	}
	e.balance.observe(e.view, v, e.now)
	e.observeMoves(v)
	e.view = v
	e.version = version
	e.changed = true
	e.urgent = true
	e.seen = max(e.seen, v.Number)
	e.members = e.members[:0:0]
	for _, m := range v.Members {
		e.members = append(e.members, IDOf(m))
	}
	if addresses := v.addresses(); !slices.Equal(addresses, e.addresses) {
		e.addresses = addresses
		e.addressesSince = v.Number
	}
	e.owned = map[netip.Addr]*ownership{}
	for a, owner := range v.Owners {
		if owner.Node != e.Node {
			continue
		}
		own := &ownership{address: a, epoch: owner.Epoch, predecessors: owner.Before}
		if before := old[a]; before != nil && before.epoch == own.epoch && !before.fenced {
			own.answering = before.answering
		}
		e.owned[a] = own
	}
	for _, a := range slices.SortedFunc(maps.Keys(old), netip.Addr.Compare) {
		e.drain(old[a], v.Owners[a], lease)
	}
	for a, d := range e.draining {
		if owner := v.Owners[a].Node; owner == "" || owner == e.Node {
			delete(e.draining, a)
		} else {
			d.successor = owner
			e.draining[a] = d
		}
	}
	maps.DeleteFunc(e.peers, func(id ID, p *peer) bool { return e.isClash(id, p.name) })
	for _, p := range e.peers {
		e.updateBehind(p)
	}
	e.updateMembership()
	e.stale = true
}

// drain ends an ownership: this node answers until the successor asks, but no longer than the lease of the old view.
func (e *Election) drain(o *ownership, owner Owner, lease time.Duration) {
	if now := e.owned[o.address]; !o.answering || now != nil && now.answering {
		return
	}
	if owner.Node == "" || owner.Node == e.Node || lease <= e.now {
		e.record(LostOwnership, o.address, owner.Node)
		return
	}
	if !e.rules.boundedDraining {
		lease = e.now + time.Hour
	}
	e.draining[o.address] = draining{until: lease, successor: owner.Node}
}

// yieldTo gives up the addresses that another node wants by a newer view, or by ours.
func (e *Election) yieldTo(h *Heartbeat) {
	if e.view == nil {
		return
	}
	for _, a := range h.Wants {
		newer := h.Number > e.view.Number
		if !newer && e.view.Owners[a].Node != h.Node {
			continue
		}
		if _, kept := e.draining[a]; kept {
			delete(e.draining, a)
			e.record(LostOwnership, a, h.Node)
		}
		if own := e.owned[a]; newer && own != nil && !own.fenced {
			if own.answering {
				e.record(LostOwnership, a, h.Node)
			}
			own.fenced = true
			own.answering = false
		}
		if r, listed := e.releases[a]; !listed || r.number < h.Number {
			e.urgent = true
		}
		e.releases[a] = release{number: h.Number, at: e.now}
		e.stale = true
	}
}

// takeOver answers for addresses whose predecessors are known to have stopped, and ends draining that is over.
func (e *Election) takeOver() {
	for a, d := range e.draining {
		if d.until <= e.now || e.facts.Outside[a] {
			delete(e.draining, a)
			e.record(LostOwnership, a, d.successor)
			e.stale = true
			e.urgent = true
		}
	}
	maps.DeleteFunc(e.releases, func(_ netip.Addr, r release) bool { return e.now-r.at > e.rules.behind })
	if e.view == nil || e.waiting == 0 && !e.stale || e.lease <= e.now || e.seen != e.view.Number {
		return
	}
	for _, o := range e.owned {
		if o.answering || o.fenced || !e.proven(o) {
			continue
		}
		o.answering = true
		e.stale = true
		e.urgent = true
		predecessor := ""
		if n := len(o.predecessors); n > 0 && !o.continued {
			predecessor = o.predecessors[n-1]
		}
		e.record(BecameOwner, o.address, predecessor)
	}
}

// grant returns the addresses for which the node answers.
func (e *Election) grant() Grant {
	if e.stale {
		e.stale = false
		e.waiting = 0
		granted := make([]netip.Addr, 0, len(e.owned)+len(e.draining))
		for a, o := range e.owned {
			switch {
			case !o.answering:
				e.waiting++
			case !e.facts.Outside[a]:
				granted = append(granted, a)
			}
		}
		e.answered = slices.SortedFunc(slices.Values(slices.AppendSeq(granted, maps.Keys(e.draining))),
			netip.Addr.Compare)
	}
	until := e.lease
	for _, d := range e.draining {
		if e.lease <= e.now || d.until < until {
			until = d.until
		}
	}
	switch {
	case !e.facts.Link || e.superseded() || e.facts.Standby:
		return Grant{Until: never}
	case e.lease <= e.now && len(e.draining) > 0:
		return Grant{Addresses: slices.SortedFunc(maps.Keys(e.draining), netip.Addr.Compare), Until: until}
	default:
		return Grant{Addresses: e.answered, Until: until}
	}
}

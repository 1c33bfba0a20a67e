package election

import (
	"net/netip"
	"time"
)

// balance is when an address may be moved to make the loads of the nodes even. A move costs the connections of the
// address, so addresses are moved slowly, and only in the calm.
type balance struct {
	// movedAt is when an address last got another owner, changedAt when the view last changed.
	movedAt, changedAt time.Duration
	// after is when to look again, when no move was found.
	after time.Duration
}

// observe observes that a view replaces another one, which may be nil.
func (b *balance) observe(old, next *View, now time.Duration) {
	b.changedAt = now
	if old == nil {
		b.movedAt = now // when that was is unknown
		return
	}
	for a, owner := range next.Owners {
		if was := old.Owners[a].Node; was != "" && was != owner.Node {
			b.movedAt = now
			return
		}
	}
}

// isCalm reports whether an address may be moved: no other one was moved lately, nothing has changed for a while, and
// all members work with this view.
func (e *Election) isCalm() bool {
	if e.rules.rebalance <= 0 {
		return false
	}
	b := e.balance
	if due := max(b.movedAt+e.rules.rebalance, b.changedAt+e.rules.calm, b.after); e.now < due {
		e.wake(due)
		return false
	}
	for _, m := range e.view.Members {
		p := e.peers[IDOf(m)]
		if m != e.Node && (!e.acknowledges(p) || p.last.Number != e.view.Number ||
			p.last.Flags&(Leaving|Handing|NoAPI) != 0) {
			return false
		}
	}
	return e.stable() >= e.view.Number
}

// rebalancing returns the address to move, and its next owner: of the nodes that can serve it the one with the fewest
// addresses, at least two fewer than the owner. Where the difference is the same, it is the address whose owner has it
// for the shortest time, which has the fewest old connections. ok is false when the loads are even.
func (e *Election) rebalancing() (a netip.Addr, to string, ok bool) {
	p := e.placer(e.view)
	owners := map[string]*candidate{}
	for _, c := range p.candidates {
		owners[c.name] = c
	}
	difference := 1
	var epoch uint64
	for _, each := range e.addresses {
		owner := e.view.Owners[each]
		from := owners[owner.Node]
		if from == nil || from.load < difference {
			continue
		}
		best := p.best(each)
		if best == nil || best.inHoldDown {
			continue
		}
		d := from.load - best.load
		if d > difference || ok && d == difference && owner.Epoch > epoch {
			a = each
			to = best.name
			ok = true
			difference = d
			epoch = owner.Epoch
		}
	}
	return a, to, ok
}

// rebalance moves one address.
func (e *Election) rebalance() *proposal {
	a, to, ok := e.rebalancing()
	if !ok {
		e.balance.after = e.now + e.rules.calm
		return nil
	}
	next := e.view.next()
	next.Owners[a] = e.moved(next.Owners[a], to, next.Number)
	return e.propose(next)
}

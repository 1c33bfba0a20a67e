package election

import (
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
)

// score ranks nodes for a subject, differently for each subject but the same on all nodes (rendezvous hashing).
func score(node, subject string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(subject)) // never fails
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(node))
	x := h.Sum64() // plain FNV ranks names that differ in their last letter the same for all subjects
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return x
}

// candidate is a member that can take addresses.
type candidate struct {
	name       string
	peer       *peer // nil for this node
	inHoldDown bool
	load       int
}

// placer chooses the owners of addresses in a new view.
type placer struct {
	election   *Election
	candidates []*candidate
}

func (e *Election) placer(next *View) *placer {
	p := &placer{election: e}
	loads := map[string]int{}
	for _, owner := range next.Owners {
		loads[owner.Node]++
	}
	for _, m := range next.Members {
		flags, other := e.memberFlags(m)
		inHoldDown := flags.Has(HoldDown) && (other == nil || e.peerInHoldDown(other))
		if flags.Has(Candidate) {
			p.candidates = append(p.candidates, &candidate{name: m, peer: other, inHoldDown: inHoldDown,
				load: loads[m]})
		}
	}
	return p
}

// memberFlags returns the flags of a member that matter for placement; other is nil for this node.
func (e *Election) memberFlags(m string) (flags Flags, other *peer) {
	if m == e.Node {
		return e.flags(), nil
	}
	p := e.peers[IDOf(m)]
	if !e.acknowledges(p) || e.behind(p) || p.last.Flags.Has(Leaving) {
		return 0, p
	}
	return p.last.Flags, p
}

func (e *Election) behind(p *peer) bool {
	return p.behindSince != never && e.now-p.behindSince >= e.rules.behind
}

// fits reports whether a node (nil: this one) can serve an address, as far as is known.
func (e *Election) fits(other *peer, a netip.Addr) bool {
	if other == nil {
		return !e.isUnfit(a)
	}
	if n := other.last.Number; len(other.last.Unfit) == 0 || n < e.addressesSince || n > e.view.Number {
		return true
	}
	i, found := slices.BinarySearchFunc(e.addresses, a, netip.Addr.Compare)
	return !found || other.last.fits(i)
}

// best returns the candidate with the fewest addresses that can take one; nil for none.
func (p *placer) best(a netip.Addr) (best *candidate) {
	subject := a.String()
	for _, c := range p.candidates {
		if p.election.fits(c.peer, a) && (best == nil || p.better(c, best, subject)) {
			best = c
		}
	}
	return best
}

// choose returns the best candidate for an address, and counts it; empty for none.
func (p *placer) choose(a netip.Addr) string {
	best := p.best(a)
	if best == nil {
		return ""
	}
	best.load++
	return best.name
}

func (p *placer) better(c, than *candidate, subject string) bool {
	switch {
	case c.inHoldDown != than.inHoldDown:
		return than.inHoldDown
	case c.load != than.load:
		return c.load < than.load
	default:
		return score(c.name, subject) > score(than.name, subject)
	}
}

// needsPlacement reports whether an address needs another owner, and some node can be it.
func (e *Election) needsPlacement() bool {
	var p *placer
	unable := map[string]bool{}
	for a, owner := range e.view.Owners {
		if !e.misplaced(a, owner, unable) {
			continue
		}
		if p == nil {
			p = e.placer(e.view)
		}
		if p.choose(a) != "" {
			return true
		}
	}
	return false
}

// misplaced reports whether an address has no owner, one that is no member, or a heard one that cannot serve it; a
// silent one is removed.
func (e *Election) misplaced(a netip.Addr, owner Owner, unable map[string]bool) bool {
	if owner.Node == "" {
		return true
	}
	id := IDOf(owner.Node)
	unfit, known := unable[owner.Node]
	if !known {
		flags, p := e.memberFlags(owner.Node)
		unfit = !flags.Has(Candidate) && (owner.Node == e.Node || e.acknowledges(p)) || !e.view.has(owner.Node)
		unable[owner.Node] = unfit
	}
	if unfit || owner.Node == e.Node {
		return unfit || !e.fits(nil, a) && !e.mustStay(a)
	}
	p := e.peers[id] // which may serve an address of a newer view that it could not serve before
	return e.acknowledges(p) && p.last.Number == e.view.Number && !e.fits(p, a) && !e.mustStay(a)
}

// placement gives owners to addresses that need one. If the API server was just asked, it also drops the addresses that
// are gone, and adds the new ones.
func (e *Election) placement() *proposal {
	next := e.view.next()
	listed := e.isListed(never)
	if listed {
		maps.DeleteFunc(next.Owners, func(a netip.Addr, _ Owner) bool { return e.gone(a) })
	}
	changed := len(next.Owners) < len(e.view.Owners)
	p := e.placer(next)
	unable := map[string]bool{}
	for _, a := range e.addresses {
		owner, kept := next.Owners[a]
		if !kept || !e.misplaced(a, owner, unable) {
			continue
		}
		if to := p.choose(a); to != "" && to != owner.Node {
			next.Owners[a] = e.moved(owner, to, next.Number)
			changed = true
		}
	}
	if listed {
		for _, a := range e.absent(next) {
			next.Owners[a] = Owner{Node: p.choose(a), Epoch: next.Number}
			changed = true
		}
	}
	if !changed {
		return nil
	}
	return e.propose(next)
}

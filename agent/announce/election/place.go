package election

import (
	"hash/fnv"
	"net/netip"
	"slices"
)

// score ranks nodes for a subject, differently for each subject and alike on all nodes (rendezvous hashing).
func score(node, subject string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(subject)) // never fails
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(node))
	x := h.Sum64() // FNV alone ranks names that differ in their last letter alike for all subjects
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return x
}

// candidate is a member that can take addresses.
type candidate struct {
	name string
	peer *peer // nil for this node
	held bool
	load int
}

// placing knows who takes addresses in a view that is made.
type placing struct {
	core       *Election
	candidates []*candidate
}

func (c *Election) placing(next *View) *placing {
	p := &placing{core: c}
	loads := map[string]int{}
	for _, owner := range next.Owners {
		loads[owner.Node]++
	}
	for _, m := range next.Members {
		flags, other := c.standing(m)
		if flags.Has(Candidate) {
			p.candidates = append(p.candidates, &candidate{name: m, peer: other, held: flags.Has(Held), load: loads[m]})
		}
	}
	return p
}

// standing returns the flags of a member as far as it can take addresses; other is nil for this node.
func (c *Election) standing(m string) (flags Flags, other *peer) {
	if m == c.Node {
		return c.flags(), nil
	}
	p := c.peers[IDOf(m)]
	if !c.acknowledges(p) || c.isBehind(p) || p.last.Flags.Has(Leaving) {
		return 0, p
	}
	return p.last.Flags, p
}

func (c *Election) isBehind(p *peer) bool {
	return p.behindSince != never && c.now-p.behindSince >= c.rules.behind
}

// fits tells whether a candidate can serve an address.
func (p *placing) fits(k *candidate, a netip.Addr) bool { return p.core.fits(k.peer, a) }

// fits tells whether a node, nil for this one, can serve an address, as far as is known.
func (c *Election) fits(other *peer, a netip.Addr) bool {
	if other == nil {
		fits, wanted := c.facts.Wanted[a]
		return fits || !wanted
	}
	if len(other.last.Unfit) == 0 || other.last.Number != c.view.Number {
		return true
	}
	i, found := slices.BinarySearchFunc(c.addresses, a, netip.Addr.Compare)
	return !found || other.last.fits(i)
}

// choose returns the candidate that takes an address and has the fewest, and counts it; empty when there is none.
func (p *placing) choose(a netip.Addr) string {
	var best *candidate
	subject := a.String()
	for _, k := range p.candidates {
		if p.fits(k, a) && (best == nil || p.better(k, best, subject)) {
			best = k
		}
	}
	if best == nil {
		return ""
	}
	best.load++
	return best.name
}

func (p *placing) better(k, than *candidate, subject string) bool {
	switch {
	case k.held != than.held:
		return than.held
	case k.load != than.load:
		return k.load < than.load
	default:
		return score(k.name, subject) > score(than.name, subject)
	}
}

// untended tells whether an address wants a better owner, and whether one is new.
func (c *Election) untended() (misplaced, fresh bool) {
	if c.facts.Known {
		for a := range c.facts.Wanted {
			if _, known := c.view.Owners[a]; !known {
				fresh = true
				break
			}
		}
	}
	if !fresh {
		c.api.freshAt = c.now
	}
	var p *placing
	unable := map[string]bool{}
	for a, owner := range c.view.Owners {
		if !c.misplaced(a, owner, unable) {
			continue
		}
		if p == nil {
			p = c.placing(c.view)
		}
		if p.choose(a) != "" {
			return true, fresh
		}
	}
	return false, fresh
}

// misplaced tells whether the owner of an address is none, or is heard and cannot serve it. An owner that is not heard is
// the matter of a removal.
func (c *Election) misplaced(a netip.Addr, owner Owner, unable map[string]bool) bool {
	if owner.Node == "" {
		return true
	}
	id := IDOf(owner.Node)
	unfit, known := unable[owner.Node]
	if !known {
		flags, p := c.standing(owner.Node)
		unfit = !flags.Has(Candidate) && (owner.Node == c.Node || c.acknowledges(p))
		unable[owner.Node] = unfit
	}
	if unfit || owner.Node == c.Node {
		return unfit || !c.fits(nil, a)
	}
	p := c.peers[id]
	return c.acknowledges(p) && !c.fits(p, a)
}

// unwanted tells whether an address is to be dropped.
func (c *Election) unwanted() bool {
	if !c.facts.Known {
		return false
	}
	for a := range c.view.Owners {
		if _, wanted := c.facts.Wanted[a]; !wanted {
			return true
		}
	}
	return false
}

// tending gives owners to addresses that want one, and drops those that nobody wants.
func (c *Election) tending() *proposal {
	next := c.view.next()
	dropped := false
	if since, unwanted := c.pending["drop"]; unwanted && c.now-since >= c.rules.drop {
		dropped = c.drop(next)
	}
	p, unable := c.placing(next), map[string]bool{}
	moved := false
	for _, a := range c.addresses {
		owner, kept := next.Owners[a]
		if !kept || !c.misplaced(a, owner, unable) {
			continue
		}
		if to := p.choose(a); to != "" && to != owner.Node {
			next.Owners[a], moved = c.moved(owner, to, next.Number), true
		}
	}
	return c.tended(next, p, moved || dropped)
}

func (c *Election) drop(next *View) bool {
	dropped := false
	for _, a := range c.addresses {
		if _, wanted := c.facts.Wanted[a]; !wanted {
			delete(next.Owners, a)
			dropped = true
		}
	}
	return dropped
}

// tended adds the addresses that are new.
func (c *Election) tended(next *View, p *placing, changed bool) *proposal {
	if c.facts.Known {
		fresh := make([]netip.Addr, 0, len(c.facts.Wanted))
		for a := range c.facts.Wanted {
			if _, known := next.Owners[a]; !known {
				fresh = append(fresh, a)
			}
		}
		slices.SortFunc(fresh, netip.Addr.Compare)
		for _, a := range fresh {
			next.Owners[a], changed = Owner{Node: p.choose(a), Epoch: next.Number}, true
		}
	}
	if !changed {
		return nil
	}
	return c.propose(next)
}

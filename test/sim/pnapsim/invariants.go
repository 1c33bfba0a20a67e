package pnapsim

import (
	"fmt"
	"slices"
)

// assertInvariants holds the simulator against its own rules after every step; what is broken is its own
// fault. Objects whose state was edited to a word of the future are left out.
func (s *Sim) assertInvariants() {
	var live []*block
	for _, a := range s.accounts {
		for _, b := range a.blocks {
			live = append(live, b)
			s.assertBlock(a, b)
		}
		for _, n := range a.networks {
			s.assertNetwork(a, n)
		}
	}
	for i, b := range live {
		for _, other := range live[:i] {
			if b.cidr.Overlaps(other.cidr) {
				s.violate(nil, "simulator", fmt.Sprintf("blocks %s (%s) and %s (%s) overlap", b.id, b.cidr, other.id,
					other.cidr))
			}
		}
	}
}

// assertBlock: a block is in the list of exactly the resource that it names.
func (s *Sim) assertBlock(a *account, b *block) {
	if b.edited {
		return
	}
	holders := 0
	for _, n := range a.networks {
		if n.has(b.id) {
			holders++
			if b.resource != n.id {
				s.violate(nil, "simulator", fmt.Sprintf("network %s lists block %s, which names resource %q", n.id,
					b.id, b.resource))
			}
		}
	}
	for _, srv := range a.servers {
		if slices.Contains(srv.ownBlocks, b.id) {
			holders++
		}
	}
	free := b.status == blockCreating || b.status == blockUnassigned
	if holders > 1 || free != (b.resource == "") || (free && holders != 0) {
		s.violate(nil, "simulator", fmt.Sprintf("block %s is %s, names resource %q and is held %d times", b.id,
			b.status, b.resource, holders))
	}
}

// assertNetwork: a network is BUSY exactly while changes are unfinished, and holds no more than it can.
func (s *Sim) assertNetwork(a *account, n *network) {
	if !n.edited && (n.status == networkBusy) != (n.changes > 0) {
		s.violate(nil, "simulator", fmt.Sprintf("network %s is %s with %d unfinished changes", n.id, n.status,
			n.changes))
	}
	count := map[bool]int{}
	for _, id := range n.blocks {
		b := a.blocks[id]
		if b == nil {
			s.violate(nil, "simulator", fmt.Sprintf("network %s lists block %s, which is gone", n.id, id))
			continue
		}
		count[b.isV6()]++
	}
	if count[false] > maxV4Blocks || count[true] > maxV6Blocks {
		s.violate(nil, "simulator", fmt.Sprintf("network %s holds %d blocks of V4 and %d of V6", n.id, count[false],
			count[true]))
	}
}

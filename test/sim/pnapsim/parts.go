package pnapsim

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// A block can be divided into parts, which are blocks of their own: they name it as their parent, and its own status is
// "subnetted". How is not documented (IP API, schema IpBlock), so that only the portal's user and seeds do it here.

// parts are the blocks into which a block is divided.
func (a *account) parts(id string) []*block {
	return slices.DeleteFunc(inOrder(a.blocks), func(b *block) bool { return b.parent != id })
}

// wholeBlocks counts the blocks that are paid for: a part costs nothing beside its parent.
func (a *account) wholeBlocks() int {
	whole := 0
	for _, b := range a.blocks {
		if b.parent == "" {
			whole++
		}
	}
	return whole
}

// join makes a block one again when its last part is gone.
func (a *account) join(id string) {
	if parent := a.blocks[id]; parent != nil && len(a.parts(id)) == 0 {
		parent.status = blockUnassigned
	}
}

// takeRange takes the range of a seeded block: from the pool, or as a part of its parent.
func (s *Sim) takeRange(a *account, cidr netip.Prefix, parentID string) error {
	if parentID == "" {
		if !s.pool.take(cidr) {
			return errors.New("it overlaps another block")
		}
		return nil
	}
	parent := a.blocks[parentID]
	switch {
	case parent == nil || parent.status != blockUnassigned && parent.status != blockSubnetted:
		return fmt.Errorf("there is no block %s that could be divided", parentID)
	case !parent.cidr.Contains(cidr.Addr()) || cidr.Bits() <= parent.cidr.Bits():
		return fmt.Errorf("it is no part of %s", parent.cidr)
	case slices.ContainsFunc(a.parts(parentID), func(b *block) bool { return b.cidr.Overlaps(cidr) }):
		return fmt.Errorf("it overlaps another part of %s", parent.cidr)
	}
	parent.status = blockSubnetted
	parent.editedAt = s.now
	return nil
}

// divide splits an unassigned block into two parts with the given tags.
func (s *Sim) divide(a *account, b *block, tags map[string]string) error {
	if b.status != blockUnassigned || b.cidr.Bits() >= b.cidr.Addr().BitLen()-1 {
		return fmt.Errorf("block %s (%s) is %s and cannot be divided", b.id, b.cidr, b.status)
	}
	lower := netip.PrefixFrom(b.cidr.Addr(), b.cidr.Bits()+1)
	upper := netip.PrefixFrom(lastAddress(lower).Next(), lower.Bits())
	for _, half := range []netip.Prefix{lower, upper} {
		err := s.seedBlock(a, BlockSeed{Name: b.description, Location: b.location, CIDR: half.String(), Parent: b.id,
			Tags: tags})
		if err != nil {
			return fmt.Errorf("divide block %s: %w", b.id, err)
		}
	}
	return nil
}

// tolerance is how long after the portal's edit a client may act on what it read before.
const tolerance = time.Minute

// judgeState reports a change of a block that is divided, or whose status is a word of the future. A client may have
// read it before that began.
func (s *Sim) judgeState(c *call, b *block, grant string) {
	_, known := nextBlockStates[b.status]
	s.accuse(c, !known && s.now.Sub(b.editedAt) > tolerance, "untouchable", "%s of block %s (%s), which is %q", grant,
		b.id, b.cidr, b.status)
}

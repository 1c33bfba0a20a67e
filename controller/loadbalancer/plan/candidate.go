package plan

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"time"
)

// placeAnywhere gives the address that was published, if it is free, else one of the best block.
func (p *placing) placeAnywhere(coming bool) Placement {
	candidates := p.candidates()
	for _, attempt := range []func(i int) (Placement, bool){p.takePublished, p.takeFresh, p.takeAny} {
		for _, i := range candidates {
			if placement, placed := attempt(i); placed {
				return placement
			}
		}
	}
	if until, resting := p.restingUntil(candidates); resting {
		return Placement{Action: PlaceWait, Reason: AddressResting, Until: until}
	}
	if coming {
		return Placement{Action: PlaceWait, Reason: BlockInvisible}
	}
	return Placement{Action: PlaceBuy, Reason: PurchaseDue, Save: p.givenUp()}
}

func (p *placing) takePublished(i int) (Placement, bool) {
	published := p.wish.Published
	if !published.IsValid() || !p.blocks[i].Ledger.CIDR.Contains(published) {
		return Placement{}, false
	}
	return p.take(i, p.ask(published))
}

// takeFresh takes no address that had to rest to the end, while there are others.
func (p *placing) takeFresh(i int) (Placement, bool) {
	placement, placed := p.take(i, p.ask(netip.Addr{}))
	return placement, placed && !placement.Reused
}

func (p *placing) takeAny(i int) (Placement, bool) { return p.take(i, p.ask(netip.Addr{})) }

func (p *placing) take(i int, ask Ask) (Placement, bool) {
	given, grant, err := p.ledger(i).Reopen().Take(p.holder, ask)
	if err != nil {
		return Placement{}, false
	}
	placement := p.here(i, grant.Address, []Ledger{given})
	placement.Reused = grant.Reused
	return placement, true
}

// restingUntil returns when the first quarantine ends, if waiting is enough to get an address.
func (p *placing) restingUntil(candidates []int) (until time.Time, resting bool) {
	for _, i := range candidates {
		_, _, err := p.ledger(i).Reopen().Take(p.holder, p.ask(netip.Addr{}))
		if !errors.Is(err, ErrResting) {
			continue
		}
		if end := p.ledger(i).RestEnds(); !resting || end.Before(until) {
			until = end
			resting = true
		}
	}
	return until, resting
}

// givenUp are the ledgers in which the holder gave up an address and got no other.
func (p *placing) givenUp() []Ledger {
	var save []Ledger
	for i := range p.blocks {
		if left, changed := p.left[i]; changed {
			save = append(save, left)
		}
	}
	return save
}

// candidates are the indexes of the blocks that may give an address, the best first.
func (p *placing) candidates() []int {
	var candidates []int
	for i, b := range p.blocks {
		if p.usable(b) {
			candidates = append(candidates, i)
		}
	}
	slices.SortStableFunc(candidates, func(i, j int) int {
		a := p.blocks[i]
		b := p.blocks[j]
		return cmp.Or(
			compareBool(a.Ledger.Closed, b.Ledger.Closed),
			compareBool(troubled(a), troubled(b)),
			cmp.Compare(len(p.ledger(j).Held), len(p.ledger(i).Held)),
			cmp.Compare(progress(a), progress(b)),
		)
	})
	return candidates
}

// usable reports whether addresses may be given of the block: it is there, is or will be on the configured
// network, and is an IPv4 block.
func (p *placing) usable(b PoolBlock) bool {
	block := b.Sighting.Block
	if b.Gone || b.Foreign || b.Sighting.Hidden || !block.CIDR.IsValid() || !block.CIDR.Addr().Is4() ||
		b.Ledger.CIDR != block.CIDR.Masked() {
		return false
	}
	if block.ResourceID != "" && (block.ResourceID != p.wish.NetworkID || block.ResourceType == resourceServer) {
		return false
	}
	return progress(b) < rankUnknown
}

// rank says how far a block is on its way to the network, the furthest first.
type rank int

const (
	rankAssigned rank = iota
	rankAssigning
	rankUnassigned
	rankCreating
	// From here on the way may take long.
	rankUnassigning
	rankInError
	// rankUnknown is a block in a state that is not known.
	rankUnknown
)

func progress(b PoolBlock) rank {
	switch b.Sighting.Block.Status {
	case Assigned:
		return rankAssigned
	case Assigning:
		return rankAssigning
	case Unassigned:
		return rankUnassigned
	case Creating:
		return rankCreating
	case Unassigning:
		return rankUnassigning
	case ErrorAssigning, ErrorUnassigning:
		return rankInError
	default:
		return rankUnknown
	}
}

func troubled(b PoolBlock) bool { return progress(b) >= rankUnassigning }

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

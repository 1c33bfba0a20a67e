package ipblock

import (
	"net/netip"
	"time"
)

// PoolBlock is one block that addresses may be given of, with its ledger.
type PoolBlock struct {
	// Sighting is the block as the account shows it.
	Sighting Sighting
	// Gone tells that the account does not have the block any more: neither the list nor a look-up by ID
	// knows it. The ledger is what is left of it.
	Gone bool
	// Ledger of the block; NewLedger when nothing is recorded yet.
	Ledger Ledger
}

// PlaceWish is what the holder of an address in a pool is to get.
type PlaceWish struct {
	// Published is the address that the holder has already; the zero Addr when it has none. It never
	// gives the holder anything that a ledger gives to another.
	Published netip.Addr
	// Requested is the address that the user asks for; the zero Addr when there is none.
	Requested netip.Addr
	// RequestedSource says in words where it was asked for.
	RequestedSource string
	// Replace allows another address in the place of a published one whose block is gone.
	Replace bool
	// Silent and Barred are as in Ask.
	Silent, Barred func(netip.Addr) bool
	// Now is the time of the decision.
	Now time.Time
}

// PlaceAction is what a Placement asks for.
type PlaceAction int

const (
	// PlaceWait asks to decide again later, at Until when that is known.
	PlaceWait PlaceAction = iota
	// PlaceHere says that the holder has Address in Block, once every ledger in Save is stored. Nothing
	// is to be stored when Save is empty.
	PlaceHere
	// PlaceBuy says that no block has a free address: one more is to be bought for the pool, see Extend.
	PlaceBuy
	// PlaceRefuse says that nothing can be given; Detail is a sentence for the user.
	PlaceRefuse
)

func (a PlaceAction) String() string {
	switch a {
	case PlaceWait:
		return "wait"
	case PlaceHere:
		return "here"
	case PlaceBuy:
		return "buy"
	case PlaceRefuse:
		return "refuse"
	default:
		return "unknown action"
	}
}

// Placement is a decision about the address of one holder.
type Placement struct {
	// Action to take.
	Action PlaceAction
	// Reason for it.
	Reason Reason
	// Block and Address of the holder, for PlaceHere.
	Block   Block
	Address netip.Addr
	// Save are the ledgers that differ from what is stored, the one that gives the address first. Each is
	// stored by compare-and-swap; when one fails nothing may be published and the decision is to be made anew.
	Save []Ledger
	// Reused is as in Grant.
	Reused bool
	// Until is when waiting ends at the latest; the zero Time when that is not known.
	Until time.Time
	// Detail is the sentence of a PlaceRefuse.
	Detail string
}

// Place decides which address of the blocks the holder gets. The same blocks serve a pool, or are a
// single one that was brought; coming tells that one more block is on its way. Fuller blocks are filled
// first, so that others become empty and can be given back. Placements of several holders must be decided and stored
// one after the other, or the compare-and-swap refuses all but one.
func Place(h Holder, w PlaceWish, blocks []PoolBlock, coming bool) Placement {
	return Placement{}
}

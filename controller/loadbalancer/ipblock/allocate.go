package ipblock

import (
	"cmp"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
)

// PoolBlock is one block that addresses may be given of, with its ledger.
type PoolBlock struct {
	// Sighting is the block as the account shows it.
	Sighting network.Sighting
	// Gone is true when the account does not have the block any more: neither the list nor a look-up by ID
	// knows it. The ledger is what is left of it.
	Gone bool
	// Foreign is true when the block's tags no longer assign it to the pool: holders of its addresses
	// keep them, and no further ones are given.
	Foreign bool
	// Ledger of the block; NewLedger when nothing is recorded yet.
	Ledger Ledger
}

// AddressRequest is what the holder of an address in a pool is to get.
type AddressRequest struct {
	// Request is what the holder asks for.
	Request
	// Published is the address that the holder has already; the zero Addr when it has none. It never gives the holder
	// anything that a ledger gives to another.
	Published netip.Addr
	// Leaves reports whether the holder gives up what it has in a ledger; nil when it keeps that.
	Leaves func(Ledger) bool
	// Ask is how to ask ledgers.
	Ask
	// Network is that of the holder: blocks that another one holds give nothing.
	Network network.Named
}

// Allocated is a decision about the address of one holder: Done when it has Address in Block, Buy when no block has a
// free address, so that one more must be bought for the pool (see Extend), Wait or Refuse.
type Allocated struct {
	Step
	// Save are the ledgers that differ from what is stored, the one that gives the address first. Each is
	// stored by compare-and-swap; when one fails nothing may be published and the decision must be made again.
	Save []Ledger
	// Reused is as in Grant.
	Reused bool
}

// Allocate decides which address of the blocks the holder gets. The blocks are those of a pool, or a single
// one that was brought, for which Buy means that it is full; ledgers of blocks that are gone belong to
// them. coming means that one more block is on its way. Fuller blocks are filled first, so that others
// become empty and can be released; a block that is being released is taken up again before another is
// bought. Of several placements that are decided at once, the compare-and-swap admits one.
func Allocate(h Holder, w AddressRequest, blocks []PoolBlock, coming bool) Allocated {
	p := allocating{holder: h, wish: w, blocks: normal(blocks)}
	if refusal, refused := p.lost(); refused {
		return refusal
	}
	if kept := p.kept(); kept >= 0 {
		return p.keep(kept)
	}
	p.leaveAll(-1)
	if w.Requested.IsValid() {
		return p.allocateRequested()
	}
	return p.allocateAny(coming)
}

// normal orders the blocks by ID and gives those a ledger that have none.
func normal(blocks []PoolBlock) []PoolBlock {
	ordered := slices.Clone(blocks)
	for i, b := range ordered {
		if b.Ledger.BlockID == "" {
			ordered[i].Ledger = NewLedger(b.Sighting.Block.ID, b.Sighting.Block.CIDR)
		}
	}
	slices.SortFunc(ordered, func(a, b PoolBlock) int { return cmp.Compare(a.Ledger.BlockID, b.Ledger.BlockID) })
	return ordered
}

// allocating is one Allocate on the way to its decision.
type allocating struct {
	holder Holder
	wish   AddressRequest
	blocks []PoolBlock
	// left are the ledgers in which the holder gave up an address, by the index of their block.
	left map[int]Ledger
}

// lost refuses a holder whose published address is gone together with its block, unless another block has the address
// by now: phoenixNAP sells addresses again.
func (p *allocating) lost() (Allocated, bool) {
	if p.wish.Replace || !p.wish.Published.IsValid() {
		return Allocated{}, false
	}
	for _, b := range p.blocks {
		held, holds := b.Ledger.AddressOf(p.holder)
		if b.Gone && holds && held == p.wish.Published && !p.isBack(held) {
			return p.refuse(BlockLost, "the IP block %s (%s) of address %s%s",
				b.Ledger.BlockID, b.Ledger.CIDR, held, LostRemedy), true
		}
	}
	return Allocated{}, false
}

// isBack reports whether the holder can have an address in a block that is there.
func (p *allocating) isBack(address netip.Addr) bool {
	if p.wish.Requested.IsValid() && p.wish.Requested != address {
		return false
	}
	return slices.ContainsFunc(p.candidates(), func(i int) bool {
		if !p.blocks[i].Ledger.CIDR.Contains(address) {
			return false
		}
		_, err := p.take(i, address)
		return err == nil
	})
}

// kept returns the index of the block in which the holder keeps an address: the published one, else the
// first; -1 when it holds none in a block that exists.
func (p *allocating) kept() int {
	kept := -1
	for i, b := range p.blocks {
		held, holds := b.Ledger.AddressOf(p.holder)
		switch {
		case !holds || b.Gone || p.wish.Leaves != nil && p.wish.Leaves(b.Ledger):
		case held == p.wish.Published:
			return i
		case kept < 0:
			kept = i
		}
	}
	return kept
}

func (p *allocating) keep(i int) Allocated {
	b := p.blocks[i]
	held, _ := b.Ledger.AddressOf(p.holder)
	if b.Sighting.Hidden {
		return Allocated{Step: Step{Action: Wait, Reason: DeletionUnverified, Block: b.Sighting.Block, Address: held}}
	}
	if requested := p.wish.Requested; requested.IsValid() && requested != held {
		if held != p.wish.Published {
			p.leaveAll(-1)
			return p.allocateRequested()
		}
		refusal := p.refuse(AddressRefused,
			"the Service has address %s; that cannot be changed in place to %s: set %s to %s or clear it, or delete "+
				"the Service and create it again",
			held, requested, p.wish.RequestedSource, held)
		refusal.Block = b.Sighting.Block
		refusal.Address = held
		return refusal
	}
	p.leaveAll(i)
	var given []Ledger
	kept := b.Ledger.Reopen().Give(held, p.holder).NameGroup(held, p.wish.Group)
	if !slices.Contains(b.Ledger.Holders(held), p.holder) || b.Ledger.Closed ||
		kept.Groups[held].Name != b.Ledger.Groups[held].Name {
		given = append(given, kept)
	}
	return p.here(i, held, given, kept)
}

// leaveAll frees what the holder has, except in the block with the given index.
func (p *allocating) leaveAll(except int) {
	p.left = map[int]Ledger{}
	for i, b := range p.blocks {
		if _, holds := b.Ledger.AddressOf(p.holder); holds && i != except {
			// Whoever has the name gives up what the name holds, whichever UID it was given to.
			p.left[i] = b.Ledger.Free(Holder{Namespace: p.holder.Namespace, Name: p.holder.Name}, p.wish.Now)
		}
	}
}

// ledger is the ledger of a block after leaveAll.
func (p *allocating) ledger(i int) Ledger {
	if left, changed := p.left[i]; changed {
		return left
	}
	return p.blocks[i].Ledger
}

// here says that the holder has the address in a ledger; given is what must be stored for that, if anything.
func (p *allocating) here(i int, address netip.Addr, given []Ledger, in Ledger) Allocated {
	step := Step{Action: Done, Reason: BlockAssigned, Block: p.blocks[i].Sighting.Block, Address: address,
		SharedAs: in.Groups[address].Name}
	return Allocated{Step: step, Save: append(given, p.givenUp(i)...)}
}

// givenUp are the ledgers in which the holder gave up an address, without that of the block with the given index.
func (p *allocating) givenUp(except int) []Ledger {
	var save []Ledger
	for _, i := range slices.Sorted(maps.Keys(p.left)) {
		if i != except {
			save = append(save, p.left[i])
		}
	}
	return save
}

// take gives the holder an address of a block: the wanted one, or any when it is the zero Addr.
func (p *allocating) take(i int, wanted netip.Addr) (Allocated, error) {
	ask := p.wish.Ask
	ask.Wanted = wanted
	given, grant, err := p.ledger(i).Reopen().Take(p.holder, ask)
	allocated := p.here(i, grant.Address, []Ledger{given}, given)
	allocated.Reused = grant.Reused
	return allocated, err
}

func (p *allocating) allocateRequested() Allocated {
	requested := p.wish.Requested
	for i, b := range p.blocks {
		if !b.Ledger.CIDR.Contains(requested) || !p.usable(b) {
			continue
		}
		allocated, err := p.take(i, requested)
		switch {
		case err == nil:
			return allocated
		case errors.Is(err, ErrQuarantined):
			return Allocated{Step: Step{Action: Wait, Reason: AddressQuarantined, Block: b.Sighting.Block,
				Until: b.Ledger.Quarantined[requested].Since.Add(Quarantine)}}
		case errors.Is(err, ErrTaken):
			return p.refuse(AddressRefused, "%s %s is in use by another; clear it or choose another address",
				p.wish.RequestedSource, requested)
		default:
			return p.refuse(AddressRefused,
				"%s %s is no usable address of IP block %s (%s); clear it or choose another address",
				p.wish.RequestedSource, requested, b.Ledger.BlockID, b.Ledger.CIDR)
		}
	}
	return p.refuse(AddressRefused,
		"%s %s lies in no IP block from which it could be given; clear it to get any address", p.wish.RequestedSource,
		requested)
}

func (p *allocating) refuse(reason Reason, format string, args ...any) Allocated {
	return Allocated{Step: RefuseStep(network.Block{}, reason, format, args...)}
}

// allocateAny gives the address that was published, if it is free, else one of the best block.
func (p *allocating) allocateAny(coming bool) Allocated {
	if i := p.shared(); i >= 0 {
		return p.join(i)
	}
	candidates := p.candidates()
	for _, i := range candidates {
		if published := p.wish.Published; p.blocks[i].Ledger.CIDR.Contains(published) {
			if allocated, err := p.take(i, published); err == nil {
				return allocated
			}
		}
	}
	for _, reuse := range []bool{false, true} { // one that was quarantined to the end only when there is no other
		for _, i := range candidates {
			if allocated, err := p.take(i, netip.Addr{}); err == nil && (reuse || !allocated.Reused) {
				return allocated
			}
		}
	}
	if until, waits := p.quarantinedUntil(candidates); waits {
		return Allocated{Step: Step{Action: Wait, Reason: AddressQuarantined, Until: until}}
	}
	if coming {
		return Allocated{Step: Step{Action: Wait, Reason: BlockInvisible}}
	}
	return Allocated{Step: Step{Action: Buy, Reason: PurchaseDue}, Save: p.givenUp(-1)}
}

// shared returns the index of the block in which the group of the holder has its address; -1 when it has none.
func (p *allocating) shared() int {
	return slices.IndexFunc(p.blocks, func(b PoolBlock) bool {
		_, found := b.Ledger.sharedFor(p.wish.Ask)
		return found && !b.Gone
	})
}

// join gives the holder the address of its group, which waits for nothing but the block.
func (p *allocating) join(i int) Allocated {
	allocated, err := p.take(i, netip.Addr{})
	if err != nil || !p.usable(p.blocks[i]) {
		return Allocated{Step: Step{Action: Wait, Reason: BlockInvisible, Block: p.blocks[i].Sighting.Block}}
	}
	return allocated
}

// quarantinedUntil returns when the first quarantine ends, if waiting is enough to get an address.
func (p *allocating) quarantinedUntil(candidates []int) (until time.Time, waits bool) {
	for _, i := range candidates {
		if _, err := p.take(i, netip.Addr{}); !errors.Is(err, ErrQuarantined) {
			continue
		}
		if end := p.ledger(i).QuarantineEnds(); !waits || end.Before(until) {
			until = end
			waits = true
		}
	}
	return until, waits
}

// candidates are the indexes of the blocks that may give an address, the best first.
func (p *allocating) candidates() []int {
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
			cmp.Compare(order(a.Ledger.Closed), order(b.Ledger.Closed)),
			cmp.Compare(order(progress(a.status()) == rankStuck), order(progress(b.status()) == rankStuck)),
			cmp.Compare(len(p.ledger(j).Held), len(p.ledger(i).Held)),
			cmp.Compare(progress(a.status()), progress(b.status())),
			cmp.Compare(order(a.status().InError()), order(b.status().InError())),
		)
	})
	return candidates
}

// usable reports whether addresses may be given of the block: it is there, is or will be on the configured
// network, and is an IPv4 block.
func (p *allocating) usable(b PoolBlock) bool {
	block := b.Sighting.Block
	if b.Gone || b.Foreign || b.Sighting.Hidden || !block.CIDR.IsValid() || !block.CIDR.Addr().Is4() ||
		b.Ledger.CIDR != block.CIDR.Masked() {
		return false
	}
	if block.ResourceID != "" && (block.ResourceID != p.wish.Network.ID || block.ResourceType == resourceServer) {
		return false
	}
	return progress(b.status()) < rankUnknown
}

func (b PoolBlock) status() network.BlockStatus { return b.Sighting.Block.Status }

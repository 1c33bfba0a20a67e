package election

import (
	"cmp"
	"hash/fnv"
	"net/netip"
	"slices"
	"time"
)

// ID identifies a node in heartbeats.
type ID uint32

// IDOf computes the ID of a Node from its name. When two names have the same ID, the second never becomes a member.
func IDOf(name string) ID {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // never fails
	return ID(h.Sum32())
}

// Flags report what a node is able and willing to do.
type Flags uint16

// The flags of a heartbeat.
const (
	// Candidate: the node can take addresses: its VLAN is ready, it is selected and not excluded.
	Candidate Flags = 1 << iota
	// Witness: the node never takes addresses; it counts only where the number of candidates is even.
	Witness
	// HoldDown: the node was not ready a short time ago, or is cordoned; it takes an address only when no other node
	// can.
	HoldDown
	// Leaving: the node's agent is about to end.
	Leaving
	// Handing: the node still answers for addresses that its newest view gives to others.
	Handing
	// NoAPI: the node cannot reach the API server.
	NoAPI
	// Asking: the node asks to become a member.
	Asking
	// Lapsed: the node had no majority for long, and others may have changed the view meanwhile. What it acknowledges
	// supports no node.
	Lapsed

	// AllFlags are the bits that flags may use; a format keeps the others for itself.
	AllFlags Flags = 1<<12 - 1
)

// Has reports whether all of some flags are set.
func (f Flags) Has(some Flags) bool { return f&some == some }

// The values of Ack.Sequence that acknowledge nothing.
const (
	// Unheard: the node was not heard for the suspect timeout.
	Unheard uint32 = 0
	// Refused: the node is heard, but has not acknowledged us for the suspect timeout.
	Refused uint32 = 1
)

// IsAfter reports whether a sequence number, of which only the lower bits are known, is later than another one: they
// wrap around (RFC 1982).
func IsAfter(a, b uint32) bool { return a != b && a-b < 1<<31 }

// Ack is what a node reports about another one.
type Ack struct {
	Node ID
	// Sequence holds the lower bits of the number of the newest heartbeat received, or is Unheard or Refused.
	Sequence uint32
}

const (
	// MaxListed bounds the lists of addresses in a heartbeat. The rest follows later: absence of an address means
	// nothing.
	MaxListed = 48
	// MaxAcks bounds the nodes about which a heartbeat reports, members first.
	MaxAcks = 1023
	// MaxName bounds the name of a Node, in bytes (RFC 1123, as Kubernetes has it).
	MaxName = 253
)

// Heartbeat is what a node reports about itself ten times a second. Receivers may keep it; it never changes.
type Heartbeat struct {
	// Node is the name of the Node.
	Node string
	// Boot distinguishes the runs of an agent: a later one has a greater number. Sequence counts its heartbeats.
	Boot, Sequence uint64
	// Format is the version of the format in which it is sent, MaxFormat the newest one that its agent understands.
	Format, MaxFormat uint8
	// Number is that of the view in use, zero for none; Seen is the highest number known to exist.
	Number, Seen uint64
	Flags        Flags
	// Acks are what it reports about others, sorted by ID; nodes that it cannot assess yet are not listed.
	Acks []Ack
	// Wants are addresses that its view gives to it and for which it does not answer yet, because a predecessor may.
	Wants []netip.Addr
	// Released are addresses for which it does not answer, and will not by any view older than Seen.
	Released []netip.Addr
	// Unfit is a bitmap over the sorted addresses of its view: bit i%8 of byte i/8 is set when the node cannot serve
	// address i: it has no local endpoint, or knows no Service or no block of it. Nil when it can serve all.
	Unfit []byte
}

// AckOf returns the acknowledgement of a node; found is false when the heartbeat does not list the node.
func (h *Heartbeat) AckOf(of ID) (sequence uint32, found bool) {
	i, found := slices.BinarySearchFunc(h.Acks, of, func(a Ack, id ID) int { return cmp.Compare(a.Node, id) })
	if !found {
		return 0, false
	}
	return h.Acks[i].Sequence, true
}

// acknowledges reports whether the heartbeat acknowledges a node.
func (h *Heartbeat) acknowledges(of ID) bool {
	sequence, found := h.AckOf(of)
	return found && sequence > Refused
}

// suspects reports whether the heartbeat lists a node as not supported.
func (h *Heartbeat) suspects(of ID) bool {
	sequence, found := h.AckOf(of)
	return found && sequence <= Refused
}

// suspectCount counts the nodes that the heartbeat lists as not supported.
func (h *Heartbeat) suspectCount() (n int) {
	for _, a := range h.Acks {
		if a.Sequence <= Refused {
			n++
		}
	}
	return n
}

// fits reports whether the node can serve the address with an index in its view.
func (h *Heartbeat) fits(index int) bool {
	return index/8 >= len(h.Unfit) || h.Unfit[index/8]&(1<<(index%8)) == 0
}

// urgentGap is the minimum time between two heartbeats.
const urgentGap = 5 * time.Millisecond

// heartbeat returns the heartbeat that is due, or nil.
func (e *Election) heartbeat() *Heartbeat {
	due := e.now >= e.nextBeat || e.urgent && e.now-e.beatAt >= urgentGap
	if !due {
		return nil
	}
	late := e.now-e.nextBeat >= e.rules.interval
	e.beatAt = e.now
	e.urgent = false
	e.nextBeat = e.now + e.pause()
	if !e.facts.Link || e.quiet() {
		return nil
	}
	if late {
		e.record(HeartbeatLate, netip.Addr{}, "")
	}
	e.sequence++
	if uint32(e.sequence) <= Refused { //nolint:gosec // only the lower bits matter
		e.sequence += 2
	}
	low := uint32(e.sequence) //nolint:gosec // only the lower bits matter
	e.sent[low%uint32(len(e.sent))] = sending{low, e.now}
	h := &Heartbeat{Node: e.Node, Boot: e.Boot, Sequence: e.sequence, Seen: e.seen, Flags: e.flags(),
		Format: e.format(), MaxFormat: e.maxFormat()}
	if e.view == nil || !e.caughtUp() {
		return h
	}
	h.Number = e.view.Number
	h.Acks = e.acks()
	h.Unfit = e.unfit()
	h.Wants, h.Released = e.wantedAndReleased()
	return h
}

// pause is the time until the next regular heartbeat. A node that is not needed sends seldom.
func (e *Election) pause() time.Duration {
	pause := e.rules.interval
	pause -= time.Duration(e.random.Int64N(int64(pause) / 10))
	if e.view != nil && len(e.members) >= e.rules.maxMembers && !e.view.has(e.Node) {
		return 50 * pause
	}
	return pause
}

func (e *Election) flags() (f Flags) {
	set := func(flag Flags, on bool) {
		if on {
			f |= flag
		}
	}
	set(Candidate, e.facts.Candidate && !e.facts.Leaving)
	set(Witness, e.facts.Witness)
	set(Leaving, e.facts.Leaving)
	set(HoldDown, e.inHoldDown())
	set(Handing, len(e.draining) > 0 || e.mayPrecede())
	set(NoAPI, e.api.failures > 0)
	set(Lapsed, e.lapse.is)
	set(Asking, e.facts.Link && !e.facts.Leaving && e.now >= e.holdDown.joinAt)
	return f
}

// acks lists the nodes that this node supports, does not hear or refuses.
func (e *Election) acks() []Ack {
	all := make([]Ack, 0, len(e.peers)+1)
	for id, p := range e.peers {
		switch {
		case e.acknowledges(p):
			all = append(all, Ack{id, p.supported})
		case !e.startedUp() || !e.silent(id) || e.now-p.at > 10*e.rules.suspectTimeout && !e.view.has(p.name):
		case e.heard(p), e.now-p.replaySuspectAt < e.rules.suspectTimeout:
			// A node that may be replayed acknowledges us after this, and so proves that its heartbeats are new.
			all = append(all, Ack{id, Refused})
		default:
			all = append(all, Ack{id, Unheard})
		}
	}
	for _, id := range e.members {
		if e.peers[id] == nil && id != e.id && e.startedUp() && e.silent(id) {
			all = append(all, Ack{id, Unheard})
		}
	}
	if len(all) > MaxAcks {
		all = slices.DeleteFunc(all, func(a Ack) bool { return !slices.Contains(e.members, a.Node) })
	}
	slices.SortFunc(all, func(a, b Ack) int { return cmp.Compare(a.Node, b.Node) })
	return all
}

// wantedAndReleased returns the addresses that this node waits for, and those that others wait for.
func (e *Election) wantedAndReleased() (wants, released []netip.Addr) {
	if e.waiting > 0 || e.stale {
		for a, o := range e.owned {
			if !o.answering && !o.fenced {
				wants = append(wants, a)
			}
		}
	}
	for a := range e.releases {
		if e.mayPrecede() {
			break
		}
		if _, kept := e.draining[a]; !kept && (e.owned[a] == nil || !e.owned[a].answering) {
			released = append(released, a)
		}
	}
	return firsts(wants), firsts(released)
}

func firsts(all []netip.Addr) []netip.Addr {
	slices.SortFunc(all, netip.Addr.Compare)
	return all[:min(len(all), MaxListed)]
}

// isUnfit reports whether this node cannot serve an address. A node that knows no Service of it may be late, and should
// not get it; an owner keeps it, because the address may be about to be dropped.
func (e *Election) isUnfit(a netip.Addr) bool {
	fits, known := e.facts.Wanted[a]
	if known || !e.facts.Known {
		return known && !fits
	}
	return e.view == nil || e.view.Owners[a].Node != e.Node
}

// unfit is the bitmap of addresses of the view that this node cannot serve.
func (e *Election) unfit() []byte {
	var bitmap []byte
	for i, a := range e.addresses {
		if e.isUnfit(a) {
			if bitmap == nil {
				bitmap = make([]byte, (len(e.addresses)+7)/8)
			}
			bitmap[i/8] |= 1 << (i % 8)
		}
	}
	return bitmap
}

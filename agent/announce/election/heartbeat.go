package election

import (
	"cmp"
	"hash/fnv"
	"net/netip"
	"slices"
)

// ID is the short name of a node in heartbeats.
type ID uint32

// IDOf makes the ID of a Node from its name. Two names with one ID are told apart nowhere: the second is never taken as a
// member.
func IDOf(name string) ID {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // never fails
	return ID(h.Sum32())
}

// Flags say what a node is able and willing to do.
type Flags uint16

// The flags of a heartbeat.
const (
	// Candidate: the node can take addresses: its VLAN is ready, it is selected and not excluded.
	Candidate Flags = 1 << iota
	// Witness: the node can never take addresses, its voice counts only where the candidates are even in number.
	Witness
	// Held: the node was not ready a short time ago, and takes addresses only where nobody else can.
	Held
	// Leaving: the node's agent is about to end.
	Leaving
	// Handing: the node still answers for addresses that its newest view gives to others.
	Handing
	// NoAPI: the node cannot reach the API server.
	NoAPI
	// Asking: the node wants to be a member.
	Asking
)

// Has tells whether all of some flags are set.
func (f Flags) Has(some Flags) bool { return f&some == some }

// The values of Ack.Sequence that acknowledge nothing.
const (
	// Unheard: the node was not heard for as long as makes it silent.
	Unheard uint32 = 0
	// Refused: the node is heard, but says itself that it does not hear us; it has not been acknowledged for as long as makes
	// it silent.
	Refused uint32 = 1
)

// Ack is what a node says of another one.
type Ack struct {
	Node ID
	// Sequence holds the lower bits of the sequence number of the newest heartbeat that was heard of it, or is Unheard or
	// Refused.
	Sequence uint32
}

// MostListed bounds the addresses in each list of a heartbeat. What does not fit is said later: nothing follows from the
// absence of an address.
const MostListed = 48

// Heartbeat is what a node says of itself ten times a second. Receivers may keep it; nobody changes it.
type Heartbeat struct {
	// Node is the name of the Node.
	Node string
	// Boot tells apart the lives of an agent: a later one has a greater number. Sequence counts its heartbeats.
	Boot, Sequence uint64
	// Number is that of the view that the node works with, zero when it has none; Seen is the highest number that it knows
	// to exist.
	Number, Seen uint64
	Flags        Flags
	// Acks are what it says of others, sorted by ID; it says nothing of those whom it cannot judge yet.
	Acks []Ack
	// Wants are addresses that its view gives to it and for which it does not answer yet, as a predecessor may.
	Wants []netip.Addr
	// Released are addresses for which it does not answer, and will not by any view older than Seen.
	Released []netip.Addr
	// Unfit is a bitmap over the sorted addresses of its view: bit i%8 of byte i/8 is set when it cannot serve address i, for
	// want of a local endpoint. Nil when it can serve all.
	Unfit []byte
}

// says returns what the heartbeat says of a node; said is false when it says nothing.
func (h *Heartbeat) says(of ID) (sequence uint32, said bool) {
	i, found := slices.BinarySearchFunc(h.Acks, of, func(a Ack, id ID) int { return cmp.Compare(a.Node, id) })
	if !found {
		return 0, false
	}
	return h.Acks[i].Sequence, true
}

// hears tells whether the heartbeat acknowledges a node.
func (h *Heartbeat) hears(of ID) bool {
	sequence, said := h.says(of)
	return said && sequence > Refused
}

// silences tells whether the heartbeat says that a node is not supported.
func (h *Heartbeat) silences(of ID) bool {
	sequence, said := h.says(of)
	return said && sequence <= Refused
}

// silenced counts the nodes that the heartbeat does not support.
func (h *Heartbeat) silenced() (n int) {
	for _, a := range h.Acks {
		if a.Sequence <= Refused {
			n++
		}
	}
	return n
}

// fits tells whether the node can serve the address with an index in its view.
func (h *Heartbeat) fits(index int) bool {
	return index/8 >= len(h.Unfit) || h.Unfit[index/8]&(1<<(index%8)) == 0
}

package election

import (
	"net/netip"
	"time"
)

// Times are durations since any moment, the same for all calls of one Core, on a clock that never jumps and goes on while
// the machine sleeps (CLOCK_BOOTTIME).

// Input is one of Tick, Heard, Read, Wrote, Gateway and Facts.
type Input interface{ input() }

// Tick says that time has passed. It is due at Output.Next, or a little later.
type Tick struct{}

// Heard is an authenticated heartbeat of this cluster, that of another life of an agent of the same name included.
type Heard struct{ *Heartbeat }

// Read is what was read of the view: the answer to Output.Read, or what a watch told. It must not come from a cache when
// it answers Output.Read.
type Read struct {
	// Err tells why it could not be read. The rest is then empty.
	Err error
	// Found is false when the object does not exist. View is nil when it does, but holds no view that can be read.
	Found bool
	View  *View
	// Version is the resourceVersion.
	Version string
	// Asked tells that this answers Output.Read.
	Asked bool
}

// Wrote is the answer to Output.Write; View and Version are as they were stored.
type Wrote struct {
	// Err tells that it was not written, or that it is not known whether it was.
	Err     error
	View    *View
	Version string
}

// Gateway says that the gateway has just answered (ARP) on the public network.
type Gateway struct{}

// Facts are what the node knows of itself and of the cluster. A later one replaces it.
type Facts struct {
	// Link tells that the VLAN interface is up.
	Link bool
	// Candidate, Witness and Leaving are as in Flags.
	Candidate, Witness, Leaving bool
	// HasGateway tells that there is a gateway to ask.
	HasGateway bool
	// Known tells that Wanted is complete: all Services were listed.
	Known bool
	// Wanted are the addresses that are to be announced by somebody. The value is false when this node cannot serve it, for
	// want of a local endpoint where the Service demands one.
	Wanted map[netip.Addr]bool
	// Gone are Nodes that are certainly off: deleted, or with the taint out-of-service or shutdown.
	Gone map[string]bool
}

func (Tick) input()    {}
func (Heard) input()   {}
func (Read) input()    {}
func (Wrote) input()   {}
func (Gateway) input() {}
func (Facts) input()   {}

// Output is what is to be done after a step, and what holds now.
type Output struct {
	// Send is a heartbeat to send at once; nil when none is due.
	Send *Heartbeat
	// Read asks to read the view from the API server; Write to write it. At most one is asked for until it was answered.
	Read  bool
	Write *Write
	// AskGateway asks for an ARP request for the gateway.
	AskGateway bool
	// Grant replaces the addresses for which the node answers.
	Grant Grant
	// Events are what is to be told.
	Events []Event
	// Done tells a node that is leaving that its agent may end.
	Done bool
	// Restart tells a node that was silent because of a later agent of its name, which is gone, that it may begin anew, as a Core
	// with a later Boot: others believe no former life.
	Restart bool
	// Next is when the next Tick is due.
	Next time.Duration
}

// Write is a change of the view.
type Write struct {
	// View to be stored, after View.Stamp.
	View *View
	// Version that the object must have; empty when it must not exist.
	Version string
}

// Grant says for which addresses the node answers, and until when. It is to be checked for every packet.
type Grant struct {
	// Addresses in their order. The list is never changed.
	Addresses []netip.Addr
	Until     time.Duration
}

// EventKind is what happened.
type EventKind string

// The kinds of events.
const (
	// BecameOwner: the node began to answer for Address; Node is the predecessor, if there was one.
	BecameOwner EventKind = "BecameOwner"
	// LostOwnership: the node ended to answer for Address; Node is the successor, if there is one.
	LostOwnership EventKind = "LostOwnership"
	// LeaseLost: the node owns addresses and ceased to answer, as no majority of the members acknowledges it.
	LeaseLost EventKind = "LeaseLost"
	// MemberFailed, Parted and JoinedMember: this node changed the members by Node, which is silent, has handed all over, or
	// takes part now.
	MemberFailed EventKind = "MemberFailed"
	MemberLeft   EventKind = "MemberLeft"
	MemberJoined EventKind = "MemberJoined"
	// ViewRebuilt: this node wrote a view where there was none, or none that could be read.
	ViewRebuilt EventKind = "ViewRebuilt"
	// DuplicateMember: another agent uses the name of this Node and was started later; this one does not answer.
	DuplicateMember EventKind = "DuplicateMember"
)

// Event is something to tell.
type Event struct {
	Kind    EventKind
	Address netip.Addr
	Node    string
}

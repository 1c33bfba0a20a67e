package election

import (
	"net/netip"
	"time"
)

// Times are durations since any moment, the same for all calls of one Election, on a clock that never jumps and that
// continues while the machine sleeps (CLOCK_BOOTTIME).

// Input is one of Tick, Heard, ReplaySuspect, Foreign, Read, Wrote, Listed, Examined, Gateway and Facts.
type Input interface{ input() }

// Tick means that time has passed. It is due at Output.Next or a little later.
type Tick struct{}

// Heard is an authenticated heartbeat of this cluster, including one of another agent with the same name.
type Heard struct{ *Heartbeat }

// ReplaySuspect is an authenticated heartbeat of a Node that was dropped, because it may be an old one that was sent
// again.
type ReplaySuspect struct{ Node string }

// Foreign is a heartbeat that a Node of another cluster, or of another network, signed with the key of this cluster. It
// was dropped.
type Foreign struct{ Node string }

// Read is the view that was read, never from a cache when it answers Output.Read, or an event of a watch.
type Read struct {
	// Err is why it could not be read. The rest is then empty.
	Err error
	// Found is false when the object does not exist. View is nil when the object exists but holds no readable view.
	Found bool
	View  *View
	// Version is the resourceVersion.
	Version string
	// Asked reports whether this answers Output.Read.
	Asked bool
}

// Wrote is the answer to Output.Write; View and Version are as they were stored.
type Wrote struct {
	// Err is set when it was not written, or when that is unknown.
	Err     error
	View    *View
	Version string
}

// Listed answers Output.List: the addresses of all Services, as the API server has them, never from a cache. It decides
// which addresses a view has, because the list of a node may be out of date.
type Listed struct {
	// Err is why they could not be listed. Addresses is then empty.
	Err       error
	Addresses map[netip.Addr]bool
}

// Gateway means that the gateway has just answered (ARP) on the public network.
type Gateway struct{}

// Facts are what the node knows about itself and the cluster. Later Facts replace earlier ones.
type Facts struct {
	// Link reports whether the VLAN interface is up.
	Link bool
	// Candidate, Witness and Leaving are as in Flags.
	Candidate, Witness, Leaving bool
	// Cordoned reports whether the node keeps its addresses and takes others only when no other node can.
	Cordoned bool
	// Standby reports whether an earlier agent of this node still runs. This one listens; it sends and answers nothing.
	Standby bool
	// Replaced reports whether this agent ends and one that stands by on this node continues: it sends one more
	// heartbeat, hands over nothing, and is done when its lease has expired.
	Replaced bool
	// HasGateway reports whether there is a gateway to probe.
	HasGateway bool
	// Known reports whether Wanted is complete: all Services were listed.
	Known bool
	// Wanted are the addresses that some node must announce, as far as this node knows. The value is false when this
	// node cannot serve the address: it has no local endpoint and the Service requires one, or the address is Outside.
	Wanted map[netip.Addr]bool
	// Outside are wanted addresses that this node never answers for, because they may be those of machines: they are in
	// no block that it knows, or its own, or reserved in their block.
	Outside map[netip.Addr]bool
}

func (Tick) input()          {}
func (Heard) input()         {}
func (ReplaySuspect) input() {}
func (Foreign) input()       {}
func (Read) input()          {}
func (Wrote) input()         {}
func (Listed) input()        {}
func (Examined) input()      {}
func (Gateway) input()       {}
func (Facts) input()         {}

// Output is what to do after a step, and what holds now.
type Output struct {
	// Send is a heartbeat to send at once; nil when none is due.
	Send *Heartbeat
	// Read asks to read the view from the API server, Write to write it, List to list the addresses of all Services. At
	// most one of them is outstanding.
	Read  bool
	Write *Write
	List  bool
	// Examine asks what else is known about these members, which are silent; the addresses are those that the view
	// gives them. Nil for none. At most one such request is outstanding; it must be answered.
	Examine map[string][]netip.Addr
	// AskGateway asks for an ARP request for the gateway.
	AskGateway bool
	// Grant replaces the addresses for which the node answers.
	Grant Grant
	// Events are what to record.
	Events []Event
	// Done reports whether an agent that is leaving or replaced may end.
	Done bool
	// Restart reports whether a node that was silent because of a later agent of its name, which is gone, may start
	// again, as an Election with a later Boot: other nodes ignore earlier runs.
	Restart bool
	// Isolated reports whether others may come to take this node for off: a member of the view does not hear this node
	// or is not heard by it, or no majority supports it. Then show in the API server that it lives.
	Isolated bool
	// Next is when the next Tick is due.
	Next time.Duration
}

// Write is a change to the view.
type Write struct {
	// View is stored after View.Stamp.
	View *View
	// Version is what the object must have; empty when it must not exist.
	Version string
}

// Grant is the list of addresses for which the node answers, and until when. Check it for every packet.
type Grant struct {
	// Addresses are sorted. The list never changes.
	Addresses []netip.Addr
	Until     time.Duration
}

// EventKind is what happened.
type EventKind string

// The kinds of events.
const (
	// BecameOwner: the node started to answer for Address; Node is the predecessor, if there was one.
	BecameOwner EventKind = "BecameOwner"
	// LostOwnership: the node stopped answering for Address; Node is the successor, if there is one.
	LostOwnership EventKind = "LostOwnership"
	// LeaseLost: the node owns addresses and stopped answering, because no majority of the members acknowledges it.
	LeaseLost EventKind = "LeaseLost"
	// MemberFailed, MemberLeft and MemberJoined: this node changed the members by Node, which is silent, has handed
	// over all addresses, or takes part now.
	MemberFailed EventKind = "MemberFailed"
	MemberLeft   EventKind = "MemberLeft"
	MemberJoined EventKind = "MemberJoined"
	// MemberOff: this node removed Node from the members although no majority says that it is silent, because it counts
	// as off.
	MemberOff EventKind = "MemberOff"
	// ViewRebuilt: this node wrote a view where there was none, or no readable one.
	ViewRebuilt EventKind = "ViewRebuilt"
	// DuplicateMember: a later agent uses the name of this Node; this one does not answer.
	DuplicateMember EventKind = "DuplicateMember"
	// MovesOften: this node got Address from Node, and it has moved Number times lately without a failed node.
	MovesOften EventKind = "MovesOften"
	// ChangesOften: the view, whose number is Number, changes so often that this node waits before it changes it again.
	ChangesOften EventKind = "ChangesOften"
	// HeartbeatLate: this node sent a heartbeat an interval or more after it was due: the process did not run.
	HeartbeatLate EventKind = "HeartbeatLate"
	// OtherCluster: a Node of another cluster, or of another network, has the key of this cluster. Reported once an
	// hour.
	OtherCluster EventKind = "OtherCluster"
)

// Event is something to record. Kind says what the other fields mean.
type Event struct {
	Kind    EventKind
	Address netip.Addr
	Node    string
	Number  uint64
}

// Package events decides what of the doings of the announcer is told as events, on Services and on Nodes.
package events

import (
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/election"
)

// Reasons of the events on Services.
const (
	// EventTakenOver (Normal): with `agent://`, another node than before answers for the address; names both.
	EventTakenOver = "AddressTakenOver"
)

// Reasons of the events on the Node of the agent, which may write about no other.
const (
	// EventUnheard (Warning): with `agent://`, another node, which is named, is not heard by a majority on the public network any
	// more; this node removed it, and gave its addresses to others.
	EventUnheard = "AnnouncerUnheard"
	// EventJoined (Normal): with `agent://`, this node took another one in, which is named: it takes part in announcing
	// addresses.
	EventJoined = "AnnouncerJoined"
	// EventLeft (Normal): with `agent://`, this node saw another one off, which is named: it has handed its addresses over.
	EventLeft = "AnnouncerLeft"
	// EventUnsupported (Warning): with `agent://`, the node owns addresses and ceased to answer, because it is not acknowledged
	// by a majority of the nodes.
	EventUnsupported = "AnnouncerUnsupported"
	// EventTwice (Warning): with `agent://`, another agent was started with the name of this Node; the older one is silent.
	EventTwice = "AnnouncerTwice"
	// EventMany (Normal): with `agent://`, the node took over more addresses within a minute than are told on their Services.
	EventMany = "ManyAddressesTakenOver"
)

const (
	// window is the time in which a node tells at most mostOnServices and mostOnNodes events: those of a network with hundreds
	// of addresses would be hundreds at once.
	window         = time.Minute
	mostOnServices = 20
	mostOnNodes    = 10
)

// Notice is what is to be told.
type Notice struct {
	// Address is that of the Service on which it is told; the zero Addr for what is told on the own Node.
	Address netip.Addr
	// Type is that of the event; Reason and Message, too.
	Type, Reason, Message string
}

// Recorder knows what was told of late. It belongs to one goroutine.
type Recorder struct {
	node  string
	since time.Time
	told  map[bool]int // by whether it was on a Service
}

// New returns the tidings of the node of that name.
func New(node string) *Recorder { return &Recorder{node: node, told: map[bool]int{}} }

// Of returns what is to be told of an event, if anything is.
func (t *Recorder) Of(e election.Event, now time.Time) (n Notice, is bool) {
	if n, is = noticeOf(t.node, e); !is {
		return Notice{}, false
	}
	if now.Sub(t.since) >= window {
		t.since, t.told = now, map[bool]int{}
	}
	onService, most := n.Address.IsValid(), mostOnNodes
	if onService {
		most = mostOnServices
	}
	t.told[onService]++
	switch {
	case t.told[onService] <= most:
		return n, true
	case onService && t.told[onService] == most+1:
		return onNode(corev1.EventTypeNormal, EventMany, fmt.Sprintf(
			"Took over more than %d addresses within a minute; phoenixnap-agent diagnose vip names them all", most)), true
	default:
		return Notice{}, false
	}
}

// noticeOf is what an event means to people. What happens without another node having had the address is told by whoever
// watches the wire.
func noticeOf(node string, e election.Event) (n Notice, is bool) {
	switch e.Kind {
	case election.BecameOwner:
		if e.Node == "" || e.Node == node {
			return Notice{}, false
		}
		n = onService(e.Address, corev1.EventTypeNormal, EventTakenOver, fmt.Sprintf("Node %s answers for %s in the place of Node %s", node, e.Address, e.Node))
	case election.MemberFailed:
		n = onNode(corev1.EventTypeWarning, EventUnheard, fmt.Sprintf(
			"The agent of Node %s is not heard by a majority of the nodes on the public network any more: its addresses go to others", e.Node))
	case election.MemberJoined:
		n = onNode(corev1.EventTypeNormal, EventJoined, fmt.Sprintf("Node %s takes part in announcing addresses", e.Node))
	case election.MemberLeft:
		n = onNode(corev1.EventTypeNormal, EventLeft, fmt.Sprintf("Node %s handed its addresses over and takes no part in announcing any more", e.Node))
	case election.LeaseLost:
		n = onNode(corev1.EventTypeWarning, EventUnsupported,
			"Answers for no address: no majority of the nodes that announce addresses acknowledges this one on the public network")
	case election.DuplicateMember:
		n = onNode(corev1.EventTypeWarning, EventTwice,
			"Two agents use the name of this Node, on two machines or one: the one that was started first answers for no address. End one of them")
	case election.LostOwnership, election.ViewRebuilt:
		return Notice{}, false
	}
	return n, n.Reason != ""
}

func onService(a netip.Addr, kind, reason, message string) Notice {
	return Notice{Address: a, Type: kind, Reason: reason, Message: message}
}

func onNode(kind, reason, message string) Notice {
	return Notice{Type: kind, Reason: reason, Message: message}
}

//go:build linux

package speaker

import (
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/election"
)

// Reasons of the events on Services.
const (
	// EventTakenOver (Normal): with `agent://`, another node than before answers for the address; names both.
	EventTakenOver = "AddressTakenOver"
	// EventMovesOften (Warning): with `agent://`, the address has moved several times within minutes although no node
	// failed: the nodes take turns at being unable to serve it, for lack of a local endpoint or of the block. It moves
	// more and more rarely for this reason.
	EventMovesOften = "AddressMovesOften"
)

// Reasons of the events on the Node of the agent, which may not write events about other Nodes.
const (
	// EventUnreachable (Warning): with `agent://`, a majority of the nodes no longer receives heartbeats of another node,
	// which is named; this node removed it and gave its addresses to others.
	EventUnreachable = "AnnouncerUnreachable"
	// EventRemoved (Warning): with `agent://`, this node removed another one, which is named, although too few nodes are
	// left for a majority: it was declared off, or neither its kubelet nor its agent renews a Lease any more, no
	// machine claims its addresses, and no node hears it. Its addresses go to other nodes.
	EventRemoved = "AnnouncerRemoved"
	// EventJoined (Normal): with `agent://`, this node added another one, which is named: it takes part in announcing
	// addresses.
	EventJoined = "AnnouncerJoined"
	// EventLeft (Normal): with `agent://`, this node removed another one, which is named, after it had handed over
	// its addresses.
	EventLeft = "AnnouncerLeft"
	// EventQuorumLost (Warning): with `agent://`, the node owns addresses and stopped answering, because a majority
	// of the nodes does not acknowledge it.
	EventQuorumLost = "AnnouncerQuorumLost"
	// EventDuplicate (Warning): with `agent://`, another agent was started with the name of this Node; the older one is
	// silent.
	EventDuplicate = "AnnouncerDuplicate"
	// EventKeyShared (Warning): with `agent://`, a Node of another cluster, which is named, signs heartbeats on this VLAN
	// with the key of this cluster. They are dropped; replace the key of one of the clusters. Once an hour.
	EventKeyShared = "AnnouncerKeyShared"
	// EventMany (Normal): with `agent://`, the node took over more addresses within a minute than are reported on
	// their Services.
	EventMany = "ManyAddressesTakenOver"
)

const (
	// window is the time in which a node records at most mostOnServices and mostOnNodes events: a network with
	// hundreds of addresses would otherwise cause hundreds of events at once.
	window         = time.Minute
	mostOnServices = 20
	mostOnNodes    = 10
)

// Notice is an event to record.
type Notice struct {
	// Address is that of the Service on which it is recorded; the zero Addr for the Node of this agent.
	Address netip.Addr
	// Type, Reason and Message are those of the event.
	Type, Reason, Message string
}

// Recorder counts what was recorded in the current window. It belongs to one goroutine.
type Recorder struct {
	node     string
	since    time.Time
	recorded map[bool]int // by whether it was on a Service
}

// NewRecorder returns the Recorder of the node of that name.
func NewRecorder(node string) *Recorder { return &Recorder{node: node, recorded: map[bool]int{}} }

// Of returns what to record for an event; ok is false when nothing is recorded.
func (r *Recorder) Of(e election.Event, now time.Time) (n Notice, ok bool) {
	if n, ok = noticeOf(r.node, e); !ok {
		return Notice{}, false
	}
	if now.Sub(r.since) >= window {
		r.since = now
		r.recorded = map[bool]int{}
	}
	onService := n.Address.IsValid()
	most := mostOnNodes
	if onService {
		most = mostOnServices
	}
	r.recorded[onService]++
	if onService && r.recorded[onService] == most+1 {
		n = onNode(corev1.EventTypeNormal, EventMany,
			"Took over more than %d addresses within a minute; phoenixnap-agent diagnose vip lists all of them", most)
		return n, true
	}
	return n, r.recorded[onService] <= most
}

// noticeOf returns what to record for an event. The vip check reports an address that no other node had before.
func noticeOf(node string, e election.Event) (n Notice, ok bool) {
	switch e.Kind {
	case election.BecameOwner:
		if e.Node != "" && e.Node != node {
			n = Notice{e.Address, corev1.EventTypeNormal, EventTakenOver,
				fmt.Sprintf("Node %s answers for %s in place of Node %s", node, e.Address, e.Node)}
		}
	case election.MovesOften:
		n = Notice{e.Address, corev1.EventTypeWarning, EventMovesOften,
			fmt.Sprintf("%s has moved %d times within minutes, last from Node %s to Node %s, although no node failed: "+
				"look for a Service with externalTrafficPolicy: Local whose endpoints become ready and unready, and at "+
				"phoenixnap-agent diagnose on both", e.Address, e.Number, e.Node, node)}
	case election.MemberFailed:
		n = onNode(corev1.EventTypeWarning, EventUnreachable,
			"A majority of the nodes no longer receives heartbeats of the agent of Node %s on the public network: "+
				"its addresses go to other nodes. Fix what phoenixnap-agent diagnose reports on that Node; then it takes part "+
				"again", e.Node)
	case election.MemberOff:
		n = onNode(corev1.EventTypeWarning, EventRemoved,
			"Node %s counts as off, so its addresses go to other nodes: it was declared off, or neither its kubelet nor "+
				"its agent has renewed a Lease for long, no machine claims its addresses, and no node hears it. If its "+
				"server still runs, two machines may answer for an address: switch it off in the phoenixNAP portal, or start "+
				"its kubelet and its agent again", e.Node)
	case election.MemberJoined:
		n = onNode(corev1.EventTypeNormal, EventJoined, "Node %s takes part in announcing addresses", e.Node)
	case election.MemberLeft:
		n = onNode(corev1.EventTypeNormal, EventLeft,
			"Node %s handed over its addresses and no longer takes part in announcing addresses", e.Node)
	case election.LeaseLost:
		n = onNode(corev1.EventTypeWarning, EventQuorumLost,
			"Answers for no address: no majority of the nodes that announce addresses "+
				"acknowledges this one on the public network. Fix what phoenixnap-agent diagnose reports here, and on the "+
				"other nodes if most of them say the same")
	case election.OtherCluster:
		n = onNode(corev1.EventTypeWarning, EventKeyShared,
			"Node %s of another cluster, or of another network, signs heartbeats on this VLAN with the key of this cluster. "+
				"They are dropped. Replace the key of one of the clusters, in its Secret kube-system/phoenixnap-announcer", e.Node)
	case election.DuplicateMember:
		n = onNode(corev1.EventTypeWarning, EventDuplicate,
			"Two agents use the name of this Node, on two machines or one: "+
				"the one that started first answers for no address. Stop one of them")
	default:
	}
	return n, n.Reason != ""
}

func onNode(kind, reason, format string, args ...any) Notice {
	return Notice{Type: kind, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

//go:build linux

// Package network runs what the agent does for the public networks of its Node: a Runtime is what exists once for each,
// and the Supervisor starts and ends Runtimes as the Node's list of networks changes.
package network

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/standby"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/ownership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/returnpath"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/blocks"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/conditions"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/nodewatch"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/vip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

// Part is something that runs until its context ends.
type Part interface {
	Run(ctx context.Context) error
}

// What --manage calls what it configures.
const (
	ManageVLAN       = "vlan"
	ManageReturnPath = "return-path"
)

// Options are what a person chose.
type Options struct {
	// Node is the name of the Node, Version that of the agent.
	Node, Version string
	// Interface is the name of the VLAN interface of the first network, Uplink that of the link below; empty: found.
	Interface, Uplink string
	// ManageVLAN and ManageReturnPath say what the agent configures itself.
	ManageVLAN, ManageReturnPath bool
	// Bits are the mark bits of the return path. TableBase and a VLAN ID make the number of a routing table.
	Bits      returnpath.Bits
	TableBase int
	// Interval is the time between samples, AnnouncementInterval that between look-ups of announced addresses.
	Interval, AnnouncementInterval time.Duration
	// Rebalance is as in election.Config.
	Rebalance time.Duration
	// MetricsPrivate serves metrics on the private addresses of the machine, too.
	MetricsPrivate bool
}

// Config is what a Supervisor works with.
type Config struct {
	Options
	Client kubernetes.Interface
	// Announcing is a client only for the announcer: its requests wait behind no others.
	Announcing kubernetes.Interface
	IPBlocks   nodewatch.BlockSource
	Recorder   record.EventRecorder
	// Announcers returns the kinds of announcers, and what reads for them, which calls changed after a reading.
	Announcers func(changed func()) (announcer.Set, Part)
	// Turn says when it is this agent's turn. The Supervisor sets Warm.
	Turn *standby.Turn
}

// node is what the networks of a Node have in common: the way to the API server, what is known of the Node, and what is
// written to it.
type node struct {
	Config
	publisher  *conditions.Publisher
	summary    *summary
	services   *nodewatch.ServiceWatcher
	blocks     *nodewatch.BlockWatcher
	watcher    *nodewatch.NodeWatcher
	announcers announcer.Set
	owners     *vip.MACTable
	// journal is one, because all that configure interfaces write records of them.
	journal *ownership.Journal
	// lease and returnPath wake what exists once for each Node.
	lease, returnPath loop.Wake
	// ended is closed when the agent ends, and release called by each Runtime that another agent may then continue.
	ended   <-chan struct{}
	release func(id string)
	// territory says which network an address is of, reportedBefore what was reported of those of a network.
	territory      func() blocks.Territory
	reportedBefore func(id string) (reported contract.ReportedAddresses, ok bool)
}

// blocksOf are the blocks that IPBlocks name of the network of a name; ok is false while they are awaited.
func (n *node) blocksOf(name string) (all []contract.NetworkBlock, ok bool) {
	services, listed := n.services.Services()
	return n.blocks.Network(name, services, listed)
}

// ownServices are the Services whose addresses are of a network; ok is false before they were listed.
func (n *node) ownServices(id string) (services []*corev1.Service, ok bool) {
	all, ok := n.services.Services()
	return n.territory().Services(all, id), ok
}

// recordOnNode records an event on the Node; it is dropped while the Node is not known.
func (n *node) recordOnNode(warning bool, reason, message string) {
	reference := conditions.Reference(n.publisher.Observed())
	if reference == nil {
		return
	}
	eventType := corev1.EventTypeNormal
	if warning {
		eventType = corev1.EventTypeWarning
	}
	n.Recorder.Event(reference, eventType, reason, message)
}

// replaced reports whether the agent ends and another agent of the Node is ready to continue. A Runtime that ends
// because its network went hands its addresses over.
func (n *node) replaced() bool {
	select {
	case <-n.ended:
		return n.Turn.Post.Waiting()
	default:
		return false
	}
}

// afterPredecessor is a part that changes the Node or the kernel: it waits until no earlier agent of this node does.
type afterPredecessor struct {
	Part
	turn *standby.Turn
}

// Run implements Part.
func (p afterPredecessor) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-p.turn.Begun():
		return p.Part.Run(ctx)
	}
}

// acting are parts that wait for the turn of this agent.
func (n *node) acting(parts ...Part) []Part {
	for i, each := range parts {
		parts[i] = afterPredecessor{each, n.Turn}
	}
	return parts
}

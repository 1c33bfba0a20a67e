// Package overview combines the Nodes, Services and IP blocks of a cluster into one document, and prints it.
package overview

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// Part is a part of the cluster that is read with one request.
type Part string

// The parts. What is empty because its part was not read is unknown.
const (
	PartNodes      Part = "nodes"
	PartServices   Part = "services"
	PartBlocks     Part = "blocks"     // the IPBlocks
	PartNetworks   Part = "networks"   // the PublicNetworks
	PartAccount    Part = "account"    // the events that say what is wrong in the account
	PartController Part = "controller" // the Lease of the controller
	PartAgents     Part = "agents"     // the Leases of the agents
	PartPods       Part = "pods"       // the pods of the controller and of the agents
)

// Parts returns all parts, in the order in which they are read.
func Parts() []Part {
	return []Part{PartNodes, PartServices, PartBlocks, PartNetworks, PartAccount, PartController, PartAgents, PartPods}
}

// Facts are what was read from the cluster.
type Facts struct {
	Now      time.Time     // when it was read
	Nodes    []corev1.Node // Nodes and Services are all there are
	Services []corev1.Service
	Blocks   []v1beta1.IPBlock
	Networks []v1beta1.PublicNetwork
	Events   []corev1.Event         // events on the Namespace kube-system: they are about the account
	Leader   *coordinationv1.Lease  // the Lease of the controller; nil when there is none
	Agents   []coordinationv1.Lease // the Leases of the agents, and perhaps others
	Pods     []corev1.Pod           // the pods of the controller and of the agents in kube-system
	// Unreadable describes what could not be read, and which permission is missing.
	Unreadable []string
	// Unread are the parts that were not read.
	Unread []Part
	// Unreachable is the error of a request that the API server did not answer; empty when it answered all.
	Unreachable string
}

// Overview is the document. Text from other sources is harmless to a terminal, see text.Clean. Its JSON is an interface
// for programs: fields are added, and change their meaning only with SchemaVersion.
type Overview struct {
	SchemaVersion int        `json:"schemaVersion"`
	Time          time.Time  `json:"time"`
	Problems      []Problem  `json:"problems"` // Problems are ordered by urgency: the first may cause the others
	Controller    Controller `json:"controller"`
	Network       Network    `json:"network"`
	// FurtherNetworks are those of other PublicNetworks than default.
	FurtherNetworks []Network `json:"furtherNetworks,omitempty"`

	Nodes      []Node    `json:"nodes"`
	Services   []Service `json:"services"`
	Blocks     []Block   `json:"blocks"`
	Unreadable []string  `json:"unreadable,omitempty"` // Unreadable describes what is left out, and why
	Unknown    []Part    `json:"unknown,omitempty"`    // Unknown are the parts that were not read
}

// Unreachable reports that the API server did not answer, so that nothing is known.
func (o Overview) Unreachable() bool {
	return slices.ContainsFunc(o.Problems, func(p Problem) bool { return p.Kind == KindAPIServer })
}

// knows reports whether a part was read.
func (o Overview) knows(part Part) bool { return !slices.Contains(o.Unknown, part) }

// SchemaVersion is the version of the JSON.
const SchemaVersion = 1

// Controller is the state of the controller's replicas.
type Controller struct {
	// State is active, silent (the Lease expired, or there is none and the account was not read lately) or unknown (the
	// Lease could not be read).
	State   string     `json:"state"`
	Leader  string     `json:"leader,omitempty"`  // the replica that holds the Lease; empty when none does
	Renewed *time.Time `json:"renewed,omitempty"` // when it last renewed the Lease
	Silent  bool       `json:"silent"`            // Silent reports that State is silent
	Looked  *time.Time `json:"looked,omitempty"`  // when it last read the account; nil when never
	// Failing is why the controller cannot read the account; nil while it can.
	Failing *AccountFailure `json:"failing,omitempty"`
}

// AccountFailure is why the controller cannot read the account.
type AccountFailure struct {
	Reported time.Time `json:"reported"` // when the controller last said so
	Message  string    `json:"message"`  // the words of the API and what to do
}

// Network is a public network, as the controller published it on Nodes, and its PublicNetwork.
type Network struct {
	Name      string `json:"name,omitempty"` // of the object; empty for the one that Nodes list first, if there is none
	Location  string `json:"location,omitempty"`
	ID        string `json:"id,omitempty"`
	VLAN      int    `json:"vlan,omitempty"`
	Announcer string `json:"announcer,omitempty"`
	Blocks    string `json:"blocks,omitempty"`    // how many IPv4 blocks it has, and of how many; empty when unknown
	MaxBlocks int    `json:"maxBlocks,omitempty"` // how many blocks may be bought; 0: no limit but the network's
	// MaxRetained is how many blocks may outlive their Services.
	MaxRetained int `json:"maxRetained,omitempty"`
	// Off reports that the controller serves no Services and has no public network: --load-balancer is not set.
	Off bool `json:"off,omitempty"`
}

// Condition is the state of a condition.
type Condition struct {
	Status  string     `json:"status"` // True, False or Unknown; empty when the condition is not set
	Reason  string     `json:"reason,omitempty"`
	Message string     `json:"message,omitempty"`
	Since   *time.Time `json:"since,omitempty"`
}

// True reports whether the condition holds.
func (v Condition) True() bool { return v.Status == string(corev1.ConditionTrue) }

// States of the controller.
const (
	controllerActive  = "active"
	controllerSilent  = "silent"
	controllerUnknown = "unknown"
)

// staleLease is how many of its durations a Lease may go without a renewal before its holder counts as silent: the
// clocks of the API server and of the user differ.
const staleLease = 3

// Make builds the overview.
func Make(f Facts) Overview {
	o := Overview{
		SchemaVersion: SchemaVersion, Time: f.Now.UTC().Truncate(time.Second),
		Controller: controllerOf(f), Network: networkOf(f), FurtherNetworks: furtherOf(f),
		Nodes: nodesOf(f), Blocks: blocksOf(f), Unknown: f.Unread,
	}
	for _, each := range f.Unreadable {
		o.Unreadable = append(o.Unreadable, text.Clean(each))
	}
	o.Services = servicesOf(f, o.Blocks)
	o.Problems = problemsOf(f, o)
	return o
}

func controllerOf(f Facts) Controller {
	c := leaderOf(f)
	c.Looked = f.accountRead()
	switch {
	case slices.Contains(f.Unread, PartController):
		c.Silent = false
		c.State = controllerUnknown
	case c.Renewed == nil && c.Looked != nil && f.Now.Sub(*c.Looked) <= staleAccount:
		c.Silent = false // it works, with --leader-elect=false
		c.State = controllerActive
	case c.Silent:
		c.State = controllerSilent
	default:
		c.State = controllerActive
	}
	c.Failing = failureOf(f, c.Looked)
	return c
}

// network is the PublicNetwork of the option loadbalancer; nil when there is none.
func (f Facts) network() *v1beta1.PublicNetwork {
	i := slices.IndexFunc(f.Networks, func(n v1beta1.PublicNetwork) bool { return n.Name == v1beta1.DefaultNetwork })
	if i < 0 {
		return nil
	}
	return &f.Networks[i]
}

// accountRead is when the controller last read the account; nil when that is not known.
func (f Facts) accountRead() *time.Time {
	n := f.network()
	if n == nil || n.Status.AccountReadTime == nil {
		return nil
	}
	at := n.Status.AccountReadTime.UTC()
	return &at
}

// failureOf returns the last failure to read the account; nil if the account was read after it.
func failureOf(f Facts, read *time.Time) *AccountFailure {
	failures := f.about(contract.AccountUnreadable)
	if len(failures) == 0 {
		return nil
	}
	last := slices.MaxFunc(failures, func(a, b corev1.Event) int {
		return a.LastTimestamp.Compare(b.LastTimestamp.Time)
	})
	if read != nil && !last.LastTimestamp.After(*read) {
		return nil
	}
	return &AccountFailure{Reported: last.LastTimestamp.UTC(), Message: text.Clean(last.Message)}
}

// about are the events with a reason.
func (f Facts) about(reason string) []corev1.Event {
	return slices.DeleteFunc(slices.Clone(f.Events), func(e corev1.Event) bool { return e.Reason != reason })
}

func leaderOf(f Facts) Controller {
	c := Controller{Silent: true}
	if f.Leader == nil || f.Leader.Spec.RenewTime == nil {
		return c
	}
	if holder := f.Leader.Spec.HolderIdentity; holder != nil {
		c.Leader = text.Clean(*holder)
	}
	renewed := f.Leader.Spec.RenewTime.UTC()
	c.Renewed = &renewed
	duration := 15 * time.Second
	if seconds := f.Leader.Spec.LeaseDurationSeconds; seconds != nil {
		duration = time.Duration(*seconds) * time.Second
	}
	c.Silent = c.Leader == "" || f.Now.Sub(renewed) > staleLease*duration
	return c
}

// networkOf returns the network of the option loadbalancer. Without its object, that is the one that the first Node
// lists.
func networkOf(f Facts) Network {
	object := f.network()
	switch {
	case isOff(f.Nodes):
		return Network{Off: true}
	case object == nil:
		return publishedOn(f.Nodes, "")
	default:
		return networkWith(f, object)
	}
}

// furtherOf returns the other networks, in the order of their names.
func furtherOf(f Facts) []Network {
	var further []Network
	for i := range f.Networks {
		if f.Networks[i].Name != v1beta1.DefaultNetwork && !isOff(f.Nodes) {
			further = append(further, networkWith(f, &f.Networks[i]))
		}
	}
	slices.SortFunc(further, func(a, b Network) int { return cmp.Compare(a.Name, b.Name) })
	return further
}

// networkWith returns what Nodes and object say of a network.
func networkWith(f Facts, object *v1beta1.PublicNetwork) Network {
	n := publishedOn(f.Nodes, object.Spec.ID)
	n.Name = text.Clean(object.Name)
	n.Location = text.Clean(object.Status.Location)
	n.Blocks = text.Clean(object.Status.Blocks)
	n.MaxBlocks = number(object.Spec.IPBlocks.Maximum)
	n.MaxRetained = number(object.Spec.IPBlocks.MaximumRetained)
	n.ID = cmp.Or(n.ID, text.Clean(object.Spec.ID))
	return n
}

// publishedOn returns the network of an ID as the first Node lists it that does, without one the first that is listed.
func publishedOn(nodes []corev1.Node, id string) Network {
	for i := range nodes {
		if n, ok, err := contract.NodeNetworkOf(nodes[i].Annotations, id); err == nil && ok {
			return Network{ID: text.Clean(n.NetworkID), VLAN: n.VLAN, Announcer: text.Clean(n.Announcer)}
		}
	}
	return Network{}
}

// number is 0 for none.
func number(n *int32) int {
	if n == nil {
		return 0
	}
	return int(*n)
}

// isOff reports whether the controller has published on Nodes that there is no public network.
func isOff(nodes []corev1.Node) bool {
	off := false
	for i := range nodes {
		list, ok, err := contract.ParsePublicNetworks(nodes[i].Annotations)
		if err != nil || len(list) > 0 {
			return false
		}
		off = off || ok
	}
	return off
}

// Node is a Node with its server.
type Node struct {
	Name string `json:"name"`
	// ServerID is the phoenixNAP server; empty while the controller has not found it.
	ServerID string `json:"serverID,omitempty"`
	Location string `json:"location,omitempty"`
	// Waiting reports that the Node has the taint of Nodes that no controller has initialized yet.
	Waiting bool `json:"waiting,omitempty"`
	// Member reports whether the server is a member of a public network; Membership is yes, no or, while the controller
	// has not published it, unknown. Networks are the names of those in which it is.
	Member     bool     `json:"member"`
	Membership string   `json:"membership"`
	Networks   []string `json:"networks,omitempty"`
	// VLAN and Addresses are those of the first network that the Node lists.
	VLAN      int          `json:"vlan,omitempty"`
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// Announces reports whether the node may announce addresses (label phoenixnap.com/vlan-ready).
	Announces bool `json:"announces"`
	// Obstacle is why the node may not carry load-balancer traffic; empty while it may.
	Obstacle string `json:"obstacle,omitempty"`
	// Renewed is when the agent last showed that it runs; nil when that is unknown. Outdated reports that this is so
	// long ago that what the agent has written may no longer be so.
	Renewed  *time.Time `json:"renewed,omitempty"`
	Outdated bool       `json:"outdated,omitempty"`
	// VLANReady and AnnouncementHealthy are the conditions that the agent reports.
	VLANReady           Condition `json:"vlanReady"`
	AnnouncementHealthy Condition `json:"announcementHealthy"`
}

// Values of Node.Membership.
const (
	membershipYes     = "yes"
	membershipNo      = "no"
	membershipUnknown = "unknown"
)

// taintUninitialized is the taint of a kubelet with --cloud-provider=external until a controller has initialized the
// Node (k8s.io/cloud-provider/api, which imports more).
const taintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

func nodesOf(f Facts) []Node {
	nodes := make([]Node, 0, len(f.Nodes))
	watched := slices.ContainsFunc(f.Nodes, func(n corev1.Node) bool {
		return contract.FindNodeCondition(&n, contract.ConditionVLANReady) != nil
	})
	for i := range f.Nodes {
		node := nodeOf(&f.Nodes[i])
		node.Obstacle = contract.Carriers{}.Obstacle(&f.Nodes[i], watched).Why
		node.Renewed, node.Outdated = f.lastSign(&f.Nodes[i])
		nodes = append(nodes, node)
	}
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes
}

func nodeOf(n *corev1.Node) Node {
	node := Node{
		Name: text.Clean(n.Name), ServerID: text.Clean(n.Annotations[contract.NodeServerID]),
		Location: text.Clean(n.Labels[contract.NodeLocation]),
		Waiting: slices.ContainsFunc(n.Spec.Taints,
			func(t corev1.Taint) bool { return t.Key == taintUninitialized }),
		Membership:          membershipUnknown,
		Announces:           n.Labels[contract.NodeVLANReady] == contract.TagTrue,
		VLANReady:           nodeCondition(n, contract.ConditionVLANReady),
		AnnouncementHealthy: nodeCondition(n, contract.ConditionAnnouncementHealthy),
	}
	if id, err := contract.ParseProviderID(n.Spec.ProviderID); err == nil {
		node.ServerID = id
	}
	if list, _, err := contract.ParsePublicNetworks(n.Annotations); len(list) > 0 && err == nil {
		node.inNetworks(list)
	}
	return node
}

// inNetworks notes the networks that a Node lists.
func (n *Node) inNetworks(list []contract.NodeNetwork) {
	n.VLAN = list[0].VLAN
	n.Addresses = withoutZones(list[0].IPs)
	n.Membership = membershipNo
	for _, network := range list {
		if network.Member {
			n.Member = true
			n.Membership = membershipYes
			n.Networks = append(n.Networks, text.Clean(network.Name))
		}
	}
}

// withoutZones removes the zones of addresses: a zone is arbitrary text, and an address of a membership needs none.
func withoutZones(addresses []netip.Addr) []netip.Addr {
	bare := make([]netip.Addr, len(addresses))
	for i, address := range addresses {
		bare[i] = address.WithZone("")
	}
	return bare
}

func nodeCondition(n *corev1.Node, conditionType corev1.NodeConditionType) Condition {
	c := contract.FindNodeCondition(n, conditionType)
	if c == nil {
		return Condition{}
	}
	return newCondition(string(c.Status), c.Reason, c.Message, c.LastTransitionTime.Time)
}

func newCondition(status, reason, message string, since time.Time) Condition {
	v := Condition{Status: text.Clean(status), Reason: text.Clean(reason), Message: text.Clean(message)}
	if !since.IsZero() {
		since = since.UTC()
		v.Since = &since
	}
	return v
}

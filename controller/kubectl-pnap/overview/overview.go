// Package overview combines the Nodes, Services and IP blocks of a cluster into one document, and prints it.
package overview

import (
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

func newCondition(status, reason, message string, since time.Time) Condition {
	v := Condition{Status: text.Clean(status), Reason: text.Clean(reason), Message: text.Clean(message)}
	if !since.IsZero() {
		since = since.UTC()
		v.Since = &since
	}
	return v
}

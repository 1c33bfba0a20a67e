// Package overview combines the Nodes, Services and IP blocks of a cluster into one document.
package overview

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/text"
)

// Facts are what was read from the cluster.
type Facts struct {
	// Now is when it was read.
	Now time.Time
	// Nodes and Services are all there are.
	Nodes    []corev1.Node
	Services []corev1.Service
	// Ledgers record who holds addresses of shared and brought blocks.
	Ledgers []plan.Ledger
	// Report is the controller's report on blocks; nil when there is none.
	Report *contract.BlockReport
	// Leader is the Lease of the controller; nil when there is none.
	Leader *coordinationv1.Lease
	// Unreadable describes what could not be read, and which permission is missing.
	Unreadable []string
}

// Overview is the document. Text from other sources is harmless to a terminal, see text.Clean. Its JSON is an interface
// for programs: fields are added, and change their meaning only with SchemaVersion.
type Overview struct {
	SchemaVersion int        `json:"schemaVersion"`
	Time          time.Time  `json:"time"`
	Controller    Controller `json:"controller"`
	Network       Network    `json:"network"`
	Nodes         []Node     `json:"nodes"`
	Services      []Service  `json:"services"`
	Blocks        []Block    `json:"blocks"`
	// Unreadable describes what is left out, and why.
	Unreadable []string `json:"unreadable,omitempty"`
}

// SchemaVersion is the version of the JSON.
const SchemaVersion = 1

// Controller is the state of the controller's replicas.
type Controller struct {
	// Leader is the replica that holds the Lease; empty when none does.
	Leader string `json:"leader,omitempty"`
	// Renewed is when it last renewed the Lease.
	Renewed *time.Time `json:"renewed,omitempty"`
	// Silent reports that the Lease expired, or that there is none.
	Silent bool `json:"silent"`
	// Looked is when it last reported the state of the account; nil when it never did.
	Looked *time.Time `json:"looked,omitempty"`
}

// Network is the public network, as the controller published it on Nodes.
type Network struct {
	ID        string `json:"id,omitempty"`
	VLAN      int    `json:"vlan,omitempty"`
	Announcer string `json:"announcer,omitempty"`
	// Blocks is how many IPv4 blocks are assigned to it; it holds ipblock.NetworkBlockLimit.
	Blocks int `json:"blocks"`
	// MaxBlocks is the most blocks that the controller may buy; 0 for no limit but the network's.
	MaxBlocks int `json:"maxBlocks,omitempty"`
}

// Condition is the state of a condition.
type Condition struct {
	// Status is True, False or Unknown; empty when the condition is not set.
	Status  string     `json:"status"`
	Reason  string     `json:"reason,omitempty"`
	Message string     `json:"message,omitempty"`
	Since   *time.Time `json:"since,omitempty"`
}

// True reports whether the condition holds.
func (v Condition) True() bool { return v.Status == string(corev1.ConditionTrue) }

// staleLease is how many of its durations a Lease may go without a renewal before its holder counts as silent: the
// clocks of the API server and of the user differ.
const staleLease = 3

// Make builds the overview.
func Make(f Facts) Overview {
	o := Overview{
		SchemaVersion: SchemaVersion, Time: f.Now.UTC().Truncate(time.Second),
		Controller: controllerOf(f), Network: networkOf(f),
		Nodes: nodesOf(f), Blocks: blocksOf(f), Unreadable: f.Unreadable,
	}
	o.Services = servicesOf(f, o.Blocks)
	return o
}

func controllerOf(f Facts) Controller {
	c := Controller{Silent: true}
	if f.Report != nil {
		c.Looked = &f.Report.Looked
	}
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

// networkOf returns the network of the first Node that has one: the controller publishes the same network on all Nodes.
func networkOf(f Facts) Network {
	var n Network
	for i := range f.Nodes {
		published, ok, err := contract.ParseNodeNetwork(f.Nodes[i].Annotations)
		if err != nil || !ok {
			continue
		}
		n = Network{ID: text.Clean(published.NetworkID), VLAN: published.VLAN,
			Announcer: text.Clean(published.Announcer)}
		for _, b := range published.Blocks {
			if b.CIDR.Addr().Is4() {
				n.Blocks++
			}
		}
		break
	}
	if f.Report != nil {
		n.MaxBlocks = f.Report.MaxBlocks
		if n.ID == "" {
			n.ID = text.Clean(f.Report.NetworkID)
		}
	}
	return n
}

// Package kubevip reads what kube-vip writes about the addresses that it announces: the Lease of an election and the
// annotation that names its winner.
package kubevip

import "time"

// Names that kube-vip gives (pkg/manager and pkg/kubevip of v0.9, pkg/services of v1.0).
const (
	// VIPHost is the annotation of a Service in which kube-vip writes the node that added its address. It is written
	// after the takeover and never removed, so it is the weakest evidence.
	VIPHost = "kube-vip.io/vipHost"
	// LeaseName is the annotation of a Service that gives its election another Lease (v1.0.1 and later).
	LeaseName = "kube-vip.io/leaseName"
	// leasePrefix and the name of a Service make the name of its Lease, in its namespace, with svc_election.
	leasePrefix = "kubevip-"
	// GlobalLease is the one Lease for all Services without svc_election.
	GlobalLease = "plndr-svcs-lock"
)

// Standing is the state of an election.
type Standing string

// The standings. The zero value means that it is not known: the Lease could not be read, or was never seen to change
// and may be left over from a time long ago.
const (
	// Held: the Lease was seen to be renewed, and has not ended since.
	Held Standing = "held"
	// Released: the last holder released it and no other has acquired it.
	Released Standing = "released"
	// Expired: it has not been renewed for longer than it lasts.
	Expired Standing = "expired"
	// Missing: there is no such Lease.
	Missing Standing = "missing"
)

// Lease is what is known of the election for one Service.
type Lease struct {
	// Name is namespace and name of the Lease, joined by "/".
	Name string
	// Standing of the election; empty when it is not known.
	Standing Standing
	// Holder is the name of the node that holds, or held, the Lease, in lower case.
	Holder string
	// Read is when the Lease was last read, by our clock.
	Read time.Time
	// Rival is another Lease, and RivalHolder the other node that holds it, where two elections run for the Service:
	// its own and the one for all Services. Empty where there is one.
	Rival, RivalHolder string
	// Error is why it could not be read; empty when it could.
	Error string
}

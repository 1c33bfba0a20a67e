// Package announcer says what differs between the kinds of announcers: which node should answer for the address of a
// Service, how a node answers, and what repairs it when it does not. Each kind is a package below this one.
package announcer

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Announcer is a kind of announcer.
type Announcer interface {
	// Placement is how a node answers for an address.
	Placement() Placement
	// Elected returns which node should answer for the address of a Service, as far as it is known. evidence is when
	// something about the address changed last on the wire or in the kernel; it may be zero.
	Elected(service *corev1.Service, evidence time.Time) Election
	// Named returns the node that the announcer itself names on a Service, and the annotation in which it does; empty
	// where it names none. It may have changed since.
	Named(service *corev1.Service) (node, annotation string)
	// NeedsEndpoints says why no node answers while a Service has no endpoints; empty where one answers all the same.
	NeedsEndpoints() (why string)
	// Fixes returns what repairs a fault.
	Fixes(f Fault) []check.Fix
}

// Placement is how a node answers for an address that it announces.
type Placement int

const (
	// Nowhere means that no node announces addresses.
	Nowhere Placement = iota
	// OnInterface means that an interface of the node carries the address, so its kernel answers.
	OnInterface
	// UserSpace means that a program answers, and stops when the Service leaves. No interface may carry the address.
	UserSpace
)

// State is the state of an election.
type State string

// The states. The zero value means that it is not known.
const (
	// Held: a node was elected, and showed since that it is alive.
	Held State = "held"
	// Released: the last owner stepped down and no other node was elected.
	Released State = "released"
	// Expired: the last owner has not shown in time that it is alive.
	Expired State = "expired"
	// Missing: there is no election.
	Missing State = "missing"
)

// Election is what is known of which node should answer for an address.
type Election struct {
	State State
	// Owner is the name of the node that should answer, or the last one that should, in lower case.
	Owner string
	// Rivals are other nodes that should answer by another election.
	Rivals []string
	// Source is where the result of the election is, such as "lease default/kubevip-web"; empty where it is nowhere.
	Source string
	// Shared reports that one election is for all Services, so it does not show that each of them is announced.
	Shared bool
	// Trouble is a clause about what is wrong with the election itself; empty while nothing is.
	Trouble string
	// Read is when it was last read, by our clock.
	Read time.Time
	// Error is why it could not be read; empty when it could.
	Error string
}

// OwnedBy reports whether a node should answer.
func (e Election) OwnedBy(node string) bool { return e.State == Held && node != "" && e.Owner == node }

// OwnedByOther reports whether another node should answer, and this one not even by another election.
func (e Election) OwnedByOther(node string) bool {
	return e.State == Held && node != "" && e.Owner != node && !slices.Contains(e.Rivals, node)
}

// Set are the kinds of announcers by the value of the annotation contract.NodeAnnouncer.
type Set map[string]Announcer

// Of returns the announcer of a kind: kube-vip where none is named, and None where the kind is not known.
func (s Set) Of(kind string) Announcer {
	if found := s[cmp.Or(kind, contract.AnnouncerKubeVIP)]; found != nil {
		return found
	}
	return None{}
}

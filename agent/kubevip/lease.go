// Package kubevip reads what kube-vip writes about the addresses that it announces: the Lease of an election and the
// annotation that names its winner.
package kubevip

import (
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// Names that kube-vip gives (pkg/manager and pkg/kubevip of v0.9, pkg/services of v1.0).
const (
	// VIPHost is the annotation of a Service in which kube-vip writes the node that took its address up. It is written
	// after the takeover and never taken back, so it is the weakest evidence of all.
	VIPHost = "kube-vip.io/vipHost"
	// LeaseName is the annotation of a Service that gives its election another Lease (v1.0.1 and later).
	LeaseName = "kube-vip.io/leaseName"
	// leasePrefix and the name of a Service make the name of its Lease, in its namespace, with svc_election.
	leasePrefix = "kubevip-"
	// GlobalLease is the one Lease for all Services without svc_election.
	GlobalLease = "plndr-svcs-lock"
)

// Standing is where an election stands.
type Standing string

// The standings. The zero value means that it is not known: the Lease could not be read, or was read only once and may
// be left over from a time long ago.
const (
	// Held: the holder has renewed the Lease since it was read the time before.
	Held Standing = "held"
	// Released: the last holder ended in good order and nobody has followed.
	Released Standing = "released"
	// Expired: nobody has renewed it for longer than it lasts.
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
	// Error says why it could not be read; empty when it could.
	Error string
}

// defaultDuration is taken where a Lease does not say how long it lasts (kube-vip's own default up to v1.0.4 is 5 s,
// later 15 s).
const defaultDuration = 15 * time.Second

// record is what is remembered of a Lease between two looks. Times are those of our own clock: that of the writer is
// only compared with itself.
type record struct {
	holder    string
	renewed   time.Time // as the writer wrote it
	duration  time.Duration
	missing   bool
	known     bool
	moved     bool      // the Lease was seen to change
	changedAt time.Time // when it was first read as it is
	readAt    time.Time
	triedAt   time.Time
	usedAt    time.Time
	err       string
}

// old tells whether the Lease is to be read again.
func (r *record) old(now time.Time) bool { return r.triedAt.IsZero() || now.Sub(r.triedAt) >= Pause }

// observe takes a Lease as read at a time; nil when there is none.
func (r *record) observe(lease *coordinationv1.Lease, now time.Time) {
	next := record{known: true, readAt: now, changedAt: now, triedAt: r.triedAt, usedAt: r.usedAt, missing: lease == nil}
	if lease != nil {
		next.duration = defaultDuration
		if s := lease.Spec.LeaseDurationSeconds; s != nil && *s > 0 {
			next.duration = time.Duration(*s) * time.Second
		}
		if h := lease.Spec.HolderIdentity; h != nil {
			next.holder = strings.ToLower(*h)
		}
		if t := lease.Spec.RenewTime; t != nil {
			next.renewed = t.Time
		}
	}
	switch {
	case !r.known || r.missing != next.missing:
		next.moved = r.known
	case r.holder == next.holder && r.renewed.Equal(next.renewed):
		next.changedAt, next.moved = r.changedAt, r.moved
	default:
		next.moved = true
	}
	*r = next
}

// standing tells where the election stands as of the last look.
func (r *record) standing() Standing {
	switch {
	case !r.known || r.err != "":
		return ""
	case r.missing:
		return Missing
	case r.holder == "":
		return Released
	case r.readAt.Sub(r.changedAt) > r.duration:
		return Expired
	case r.moved && r.changedAt.Equal(r.readAt):
		return Held
	default:
		return ""
	}
}

func (r *record) lease(name string) Lease {
	return Lease{Name: name, Standing: r.standing(), Holder: r.holder, Read: r.readAt, Error: r.err}
}

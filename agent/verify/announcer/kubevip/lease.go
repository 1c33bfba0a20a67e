// Package kubevip describes kube-vip as a kind of announcer, and reads what it writes about the addresses that it
// announces: the Lease of an election and the annotation that names its winner.
package kubevip

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Names that kube-vip gives (pkg/manager and pkg/kubevip of v0.9, pkg/services of v1.0).
const (
	// VIPHost is the annotation of a Service in which kube-vip writes the node that added its address. It is written
	// after the takeover and never removed, so it is the weakest evidence.
	VIPHost = contract.KubeVIPHost
	// LeaseName is the annotation of a Service that gives its election another Lease (v1.0.1 and later).
	LeaseName = "kube-vip.io/leaseName"
	// leasePrefix and the name of a Service make the name of its Lease, in its namespace, with svc_election.
	leasePrefix = "kubevip-"
	// GlobalLease is the one Lease for all Services without svc_election, unless svc_leasename (servicesLeaseName)
	// gives it another name.
	GlobalLease = "plndr-svcs-lock"
)

// Lease is what is known of the election for one Service.
type Lease struct {
	// Name is namespace and name of the Lease, joined by "/"; Global is that of the Lease for all Services.
	Name, Global string
	// State of the election; empty when it is not known: the Lease could not be read, or was never seen to change and
	// may be left over from a time long ago.
	State announcer.State
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

const (
	// Pause is the time between two reads of one Lease while nothing requires more.
	Pause = 30 * time.Second
	// minLookPause is the shortest time between two reads in any case: longer than kube-vip takes to renew.
	minLookPause = 3 * time.Second
	// burst is the most early reads of a Lease; one more is earned in each Pause.
	burst = 6
	// margin is how long after its end a Lease is read.
	margin = time.Second
	// scatter spreads the reads of many agents that notice the same thing.
	scatter = time.Second
	// defaultDuration is used if a Lease sets none (kube-vip's own default up to v1.0.4 is 5 s, later 15 s).
	defaultDuration = 15 * time.Second
)

// record is what is remembered of a Lease between two reads. Times are those of our own clock: that of the writer is
// only compared with itself, or with ours where the writer runs on this node.
type record struct {
	holder    string
	own       bool      // the holder is this node, so its clock is ours
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

	// every is the time between reads while nothing requires more.
	every time.Duration
	// evidence is when something last cast doubt on what is known, soonest when to read then, firstAt the first read.
	evidence, soonest, firstAt time.Time
	// paid is the budget of early reads: each costs a Pause, and at most burst of them are saved.
	paid time.Time
}

// doubt notes that something at a time casts doubt on what is known.
func (r *record) doubt(evidence time.Time) {
	if !evidence.After(r.evidence) {
		return
	}
	r.evidence = evidence
	r.soonest = evidence.Add(rand.N(scatter))
	r.firstAt = time.Time{}
	if r.readAt.After(evidence) {
		r.firstAt = r.readAt
	}
}

// settled reports whether the state of the election since the last evidence is known: it takes two reads to see that a
// Lease is renewed, and as long as it lasts to see that it is not.
func (r *record) settled() bool {
	switch {
	case r.firstAt.IsZero(), r.err != "":
		return false
	case r.missing, r.holder == "":
		return true
	default:
		return r.changedAt.After(r.firstAt) || r.state() == announcer.Expired
	}
}

// next is when to read next; early reports that it is before its time.
func (r *record) next() (at time.Time, early bool) {
	steady := r.triedAt.Add(r.every)
	switch {
	case r.triedAt.IsZero():
		return r.soonest, false
	case r.settled():
		return steady, false
	case r.firstAt.IsZero():
		at = r.soonest
	case r.err == "" && r.readAt.After(r.changedAt):
		at = r.changedAt.Add(r.duration + margin)
	}
	at = latest(at, r.triedAt.Add(minLookPause), r.paid.Add(Pause))
	if at.Before(steady) {
		return at, true
	}
	return steady, false
}

// try notes that a read begins.
func (r *record) try(now time.Time, early bool) {
	r.triedAt = now
	if early {
		r.paid = latest(r.paid, now.Add(-burst*Pause)).Add(Pause)
	}
}

// observe takes a Lease as read at a time; nil when there is none. node is the name of this node, in lower case.
func (r *record) observe(lease *coordinationv1.Lease, node string, now time.Time) {
	next := *r
	next.known = true
	next.readAt = now
	next.err = ""
	next.missing = lease == nil
	var spec coordinationv1.LeaseSpec
	if lease != nil {
		spec = lease.Spec
	}
	next.holder = strings.ToLower(ptr.Deref(spec.HolderIdentity, ""))
	next.renewed = ptr.Deref(spec.RenewTime, metav1.MicroTime{}).Time
	next.duration = defaultDuration
	if seconds := ptr.Deref(spec.LeaseDurationSeconds, 0); seconds > 0 {
		next.duration = time.Duration(seconds) * time.Second
	}
	next.own = node != "" && next.holder == node
	if !r.known || r.missing != next.missing || r.holder != next.holder || !r.renewed.Equal(next.renewed) {
		next.moved = r.known
		next.changedAt = now
	}
	if next.firstAt.IsZero() || next.overdue() && next.changedAt.Equal(now) {
		next.firstAt = now
	}
	*r = next
}

// overdue reports that the Lease has ended by the clock of this node, which is its holder.
func (r *record) overdue() bool { return r.own && r.readAt.Sub(r.renewed) > r.duration }

// state is the state of the election as of the last read. A Lease that is not renewed is held until it ends.
func (r *record) state() announcer.State {
	switch {
	case !r.known || r.err != "":
		return ""
	case r.missing:
		return announcer.Missing
	case r.holder == "":
		return announcer.Released
	case r.readAt.Sub(r.changedAt) > r.duration:
		return announcer.Expired
	case r.overdue() && r.readAt.After(r.changedAt):
		// Two reads agree, so the clock was not just set.
		return announcer.Expired
	case r.moved:
		return announcer.Held
	default:
		return ""
	}
}

func (r *record) lease(name string) Lease {
	return Lease{Name: name, State: r.state(), Holder: r.holder, Read: r.readAt, Error: r.err}
}

// Key is namespace and name of a Lease, joined by "/". kube-vip takes a name that has both as it is.
func Key(namespace, name string) string {
	if strings.Contains(name, "/") {
		return name
	}
	return namespace + "/" + name
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// Package vip checks, by what is received on the wire, whether addresses of Services are announced as they should be.
package vip

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/arp"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

const (
	// retry is the pause before a failed sample is tried again.
	retry = 2 * time.Second
	// allKnown is how long it takes until there is a result for every address.
	allKnown = startupTime + spread + 5*time.Second
	// minPause is the shortest time between two samples, whatever is received.
	minPause = 500 * time.Millisecond
)

// Prober sends ARP probes.
type Prober interface {
	Ask(ctx context.Context, interfaceName string, questions []arp.Question) ([]arp.Answer, error)
}

// Router looks up routes.
type Router interface {
	Routes(s check.Snapshot, questions []check.RouteQuestion) []check.RouteAnswer
}

// Config is what a Watcher works with.
type Config struct {
	Node   string // its name
	Prober Prober
	Router Router
	// Announcers are the kinds of announcers, one of which the View names.
	Announcers announcer.Set
	// Owners finds the Node to which a hardware address belongs, see MACTable.
	Owners func(mac string, thorough bool, likely ...string) (node string, known bool)
	// View returns the node's state; known is false before the first sample.
	View func() (view View, known bool)
	// Services returns the Services of the cluster; known is false before they were listed.
	Services func() (services []*corev1.Service, known bool)
	// Reported returns what the last agent reported on the Node; known is false before the Node was seen. May be nil.
	Reported func() (reported contract.ReportedAddresses, known bool)
	// Interval is the time between samples while nothing changes.
	Interval time.Duration
	// Record receives the findings of each address and their summary, Report what the node reports, Event each
	// change that this node must record. They must not block.
	Record func([]check.Finding, check.Outcome)
	Report func(contract.ReportedAddresses)
	Event  func(service *corev1.Service, node string, finding check.Finding)
	// Signals asks for a sample soon, as Wake does; nil for one that only the Watcher knows.
	Signals loop.Wake
}

// Watcher watches the addresses of Services on the wire, in the kernel and in the elections of their announcer.
type Watcher struct {
	Config
	scheduler *Scheduler
	wake      loop.Wake

	states map[netip.Addr]*addressState
	// since is when all states were reset: when the agent started, or after the path to the network was broken.
	since    time.Time
	reported contract.ReportedAddresses
	resumed  bool

	mu      sync.Mutex
	figures Figures
}

// New returns a watcher; it starts nothing.
func New(c Config) *Watcher {
	w := &Watcher{Config: c, wake: cmp.Or(c.Signals, loop.NewWake()), states: map[netip.Addr]*addressState{}}
	w.scheduler = NewScheduler(w.Wake)
	return w
}

// Hear takes a packet that was on the wire; it is for arp.Listener.
func (w *Watcher) Hear(h arp.Heard) { w.scheduler.Hear(h) }

// Wake requests a sample soon, because something that the checks depend on has changed.
func (w *Watcher) Wake() { w.wake.Signal() }

// Run watches until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	for {
		pause := w.sample(ctx)
		begun := time.Now()
		switch w.wake.Wait(ctx, pause) {
		case loop.Ended:
			return nil
		case loop.Due:
		case loop.Woken:
			if !loop.Sleep(ctx, minPause-time.Since(begun)) {
				return nil
			}
		}
	}
}

// sample takes one sample. It returns the time until the next.
func (w *Watcher) sample(ctx context.Context) time.Duration {
	view, services, ready := w.inputs()
	if !ready {
		return min(retry, w.Interval)
	}
	all := subjects(services, view, w.reported)
	if view.By.Placement() == announcer.Nowhere {
		all = nil
	}
	if len(all) > 0 && !view.Ready {
		w.reportNotReady(view, all)
		return w.Interval
	}
	now := time.Now()
	if w.since.IsZero() {
		w.since = now
	}
	w.track(view, all, now)
	if !w.ask(ctx, view, now) {
		return min(retry, w.Interval)
	}
	assessments, findings := w.evaluate(view, all)
	klog.FromContext(ctx).V(4).Info("Checked announced addresses", "addresses", len(all))
	w.publish(assessments, findings)
	return w.pause(time.Now())
}

// pause is the time until the next sample.
func (w *Watcher) pause(now time.Time) time.Duration {
	pause := w.Interval
	for _, st := range w.states {
		if !st.nextLook.IsZero() {
			pause = min(pause, max(st.nextLook.Sub(now), 0))
		}
	}
	if next := w.scheduler.Next(now); !next.IsZero() {
		pause = min(pause, max(next.Sub(now), minPause))
	}
	return pause
}

// inputs returns what a sample needs; ready is false while something is not known.
func (w *Watcher) inputs() (view View, services []*corev1.Service, ready bool) {
	view, seen := w.View()
	services, listed := w.Services()
	if !seen || !listed {
		return View{}, nil, false
	}
	view.Node = w.Node
	view.By = w.Announcers.Of(view.Announcer)
	if w.Reported != nil && !w.resumed {
		reported, known := w.Reported()
		if !known {
			return View{}, nil, false
		}
		w.reported = reported
		w.resumed = true
	}
	return view, services, true
}

// reportNotReady reports that nothing is known, because the node's own path to the network is broken. It withdraws the
// reports of addresses that are still published; addresses that are gone are checked when the path works again.
func (w *Watcher) reportNotReady(view View, all []subject) {
	kept := contract.ReportedAddresses{}
	for _, s := range all {
		if entry, had := w.reported[s.Address]; had && s.phase == gone {
			kept[s.Address] = entry
		}
		w.scheduler.Ask(s.Address)
	}
	w.states = map[netip.Addr]*addressState{}
	w.since = time.Time{}
	w.reported = kept
	w.Report(kept)
	w.Record(nil, check.Outcome{Status: check.Unknown, Reason: ReasonVLANNotReady, Message: "the addresses cannot be " +
		"checked: " + view.Why})
}

// track makes the scheduler follow the addresses, and probes those that concern this node and are not healthy.
func (w *Watcher) track(view View, all []subject, now time.Time) {
	involved := map[netip.Addr]bool{}
	states := make(map[netip.Addr]*addressState, len(all))
	for _, s := range all {
		st := w.states[s.Address]
		if st == nil {
			st = resume(w.reported[s.Address])
		}
		states[s.Address] = st
		st.update(s, view)
		st.noteLeaving(s, view, w.reported[s.Address].State)
		involved[s.Address] = st.involved
	}
	w.states = states
	w.scheduler.Watch(involved)
	for a, st := range states {
		if st.needsProbe(now) {
			w.scheduler.Ask(a)
		}
	}
}

// ask sends the probes that are due. It returns false when ctx has ended.
func (w *Watcher) ask(ctx context.Context, view View, now time.Time) bool {
	source := view.source()
	due := w.scheduler.Due(now)
	if len(due) == 0 || !source.IsValid() {
		return ctx.Err() == nil
	}
	questions := make([]arp.Question, len(due))
	for i, a := range due {
		questions[i] = arp.Question{Target: a, Source: source}
	}
	answers, err := w.Prober.Ask(ctx, view.Report.Interface, questions)
	w.mu.Lock()
	w.figures.Asked += uint64(len(questions))
	w.mu.Unlock()
	for i, a := range due {
		if err != nil {
			w.states[a].unasked = err.Error()
			w.scheduler.Unasked(a, now)
			continue
		}
		w.states[a].unasked = ""
		w.scheduler.Answered(a, answers[i], now)
	}
	return ctx.Err() == nil
}

// publish records and reports the results.
func (w *Watcher) publish(assessments []assessment, findings []check.Finding) {
	w.reported = report(w.reported, assessments, w.Node, time.Now())
	for _, o := range assessments {
		_, reporting := w.reported[o.Address]
		if finding, changed := w.states[o.Address].toRecord(o, reporting); changed {
			w.Event(o.service, w.Node, finding)
		}
	}
	w.account(assessments)
	w.Report(w.reported)
	w.Record(findings, Sum(w.confirmed(findings, time.Now())))
}

// confirmed leaves out what is not confirmed yet, so that a new Service does not delay the result for the others. When
// all are new, there is no result until all are known: a restart of the agent changes no condition that still holds.
func (w *Watcher) confirmed(findings []check.Finding, now time.Time) []check.Finding {
	confirmed := slices.DeleteFunc(slices.Clone(findings),
		func(f check.Finding) bool { return f.Reason == ReasonConfirming })
	if now.Sub(w.since) < allKnown || len(confirmed) == 0 {
		return findings
	}
	return confirmed
}

// Figures are what the watcher counted.
type Figures struct {
	// Asked is the number of questions that were put; each is up to three ARP requests.
	Asked uint64
	// Addresses are those that are watched at the moment.
	Addresses []AddressFigures
}

// AddressFigures are those of one address.
type AddressFigures struct {
	// Address, and namespace/name of the Service that has it; empty when none has it any more.
	Address netip.Addr
	Service string
	// Machines is how many machines claim the address, this one included.
	Machines int
	// Mismatch is for how long in all the wire or the kernel contradicted the election since the address is watched:
	// its holder is silent (PN602), this node carries it against that (PN603), or another node answers (PN607).
	Mismatch time.Duration
}

// Figures returns what was counted so far. It is safe for concurrent use.
func (w *Watcher) Figures() Figures {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Figures{Asked: w.figures.Asked, Addresses: slices.Clone(w.figures.Addresses)}
}

// account notes the figures of the addresses.
func (w *Watcher) account(assessments []assessment) {
	addresses := make([]AddressFigures, 0, len(assessments))
	for _, o := range assessments {
		st := w.states[o.Address]
		addresses = append(addresses, AddressFigures{Address: o.Address, Service: o.Service, Machines: st.machines,
			Mismatch: st.mismatch})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.figures.Addresses = addresses
}

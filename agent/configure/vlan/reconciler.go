package vlan

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/netstate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

const (
	// Interval is the time between two reconciliations without an event.
	Interval = 30 * time.Second
	// Grace is how long the interface outlives the membership: a short error of the API must not take it away.
	Grace = 5 * time.Minute
	// debounce gathers the events that one change makes.
	debounce = 100 * time.Millisecond
	// firstRetry, doubled up to Interval, is the pause after a failure.
	firstRetry = time.Second
)

// Config configures a Reconciler.
type Config struct {
	// Expected returns what the controller published.
	Expected func() check.Expected
	Kernel   Kernel
	// Prober probes whether an address is in use before it is added to the interface; nil skips that.
	Prober Prober
	// Watch calls changed when it has subscribed and at each change that the kernel reports, until ctx ends.
	Watch func(ctx context.Context, changed func()) error
	// BlockedReason returns why nothing may be changed, such as a wrong machine; empty or a nil function for nothing.
	BlockedReason func() string
	// Record receives events; it must not block.
	Record func(Event)
	// Signals asks for a look soon, as Wake does; nil for one that only the Reconciler knows.
	Signals loop.Wake
}

// Reconciler makes and keeps the VLAN interface.
type Reconciler struct {
	Config
	wake loop.Wake

	// Only Run's loop uses these fields.
	uplink   uplinkDebounce
	absent   time.Time
	spending budget
	failures int

	mu     sync.Mutex
	status Status
}

// Status is what is managed now.
type Status struct {
	// Interface is the name of the VLAN interface, empty when there is none of ours.
	Interface string
	// Made reports whether the agent made it; otherwise a person did, and the agent adopted it.
	Made bool
	// Problem is why the interface is not as it should be; empty when it is.
	Problem string
}

// New returns a Reconciler; it starts nothing.
func New(config Config) *Reconciler {
	if config.BlockedReason == nil {
		config.BlockedReason = func() string { return "" }
	}
	return &Reconciler{Config: config, wake: cmp.Or(config.Signals, loop.NewWake())}
}

// Wake requests a reconciliation soon.
func (r *Reconciler) Wake() { r.wake.Signal() }

// Status returns what is managed now.
func (r *Reconciler) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// Run keeps the interface until ctx ends. It leaves everything in place then.
func (r *Reconciler) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return netstate.Follow(ctx, r.Watch, r.Wake) })
	group.Go(func() error { return r.wake.Run(ctx, debounce, r.once) })
	return group.Wait()
}

// once reconciles and returns when to do so again.
func (r *Reconciler) once(ctx context.Context) time.Duration {
	due, err := r.look(ctx)
	if err != nil {
		r.failures++
		return loop.Backoff(firstRetry, Interval, r.failures-1)
	}
	r.failures = 0
	if due > 0 {
		return min(due, Interval)
	}
	return Interval
}

// look reads the node and does what is needed. A positive due is when to look again at the latest.
func (r *Reconciler) look(ctx context.Context) (due time.Duration, err error) {
	seen, err := r.Kernel.Look(ctx)
	if err != nil {
		r.report(ctx, Status{Problem: err.Error()}, ReasonNotConfigured)
		return 0, err
	}
	w, due, blocked := r.decide(seen, time.Now())
	if w == nil {
		if blocked != "" {
			r.report(ctx, Status{Problem: blocked}, ReasonNotConfigured)
		}
		return due, nil
	}
	status := statusOf(*w, seen)
	actions, problems := plan(*w, seen)
	if wait := r.spending.spend(len(actions) > 0, time.Now()); wait > 0 {
		status.Problem = "another program keeps undoing what the agent does: " + texts(actions) +
			": let only one of them configure the interface, by excluding it there or by removing vlan from --manage"
		r.report(ctx, status, ReasonDisputed)
		return wait, nil
	}
	done, err := r.apply(ctx, actions)
	r.recordActions(ctx, *w, seen, done)
	if err != nil {
		problems = append(problems, err.Error())
	}
	status.Problem = strings.Join(problems, "; ")
	r.report(ctx, status, ReasonNotConfigured)
	return 0, err
}

// statusOf is the status after a plan was executed completely.
func statusOf(w want, seen Observed) Status {
	switch target := w.target(seen); {
	case w.ID == 0:
		return Status{}
	case target != nil:
		return Status{Interface: target.Name, Made: target.Record.Made}
	default:
		return Status{Interface: w.Name, Made: true}
	}
}

// decide returns what the node must have, or nil, until due or for a blocked reason, when nothing may be changed.
func (r *Reconciler) decide(seen Observed, now time.Time) (w *want, due time.Duration, blocked string) {
	e := r.Expected()
	blocked = r.BlockedReason()
	switch {
	case e.Unreadable != "":
		return nil, 0, e.Unreadable
	case !e.Published:
		// Missing annotations mean nothing for the network.
		return nil, 0, ""
	case blocked != "":
		return nil, 0, blocked
	case !e.Network.Member:
		if r.absent.IsZero() {
			r.absent = now
		}
		if due = Grace - now.Sub(r.absent); due > 0 {
			return nil, due, ""
		}
		return &want{Others: e.Others}, 0, ""
	}
	r.absent = time.Time{}
	report := check.Evaluate(e, seen.snapshot())
	name := report.Uplink
	if due = r.uplink.wait(name, now); due > 0 {
		return nil, due, ""
	}
	uplink := seen.find(func(l Link) bool { return l.Name == name })
	if uplink == nil {
		return nil, 0, cmp.Or(report.Finding(check.UplinkUp).Cause, "no uplink to carry the VLAN was found") +
			": name it with --uplink"
	}
	return wanted(e, uplink.Link), 0, ""
}

func (r *Reconciler) apply(ctx context.Context, actions []action) (done []action, err error) {
	current := &run{kernel: r.Kernel, prober: r.Prober}
	for _, a := range actions {
		if ctx.Err() != nil {
			return done, ctx.Err()
		}
		klog.FromContext(ctx).V(2).Info("Managing the VLAN interface", "step", a.text)
		if err := a.do(ctx, current); err != nil {
			return done, err
		}
		done = append(done, a)
	}
	return done, nil
}

func texts(actions []action) string {
	var parts []string
	for _, a := range actions {
		if !a.silent {
			parts = append(parts, a.text)
		}
	}
	return strings.Join(parts, ", ")
}

// Reasons of the events on the Node about the managed VLAN interface.
const (
	// ReasonConfigured (Normal): the interface was made, or adopted and completed.
	ReasonConfigured = "VLANConfigured"
	// ReasonRepaired (Normal): what had been changed or lost was restored.
	ReasonRepaired = "VLANRepaired"
	// ReasonReleased (Normal): what the agent had made was removed.
	ReasonReleased = "VLANReleased"
	// ReasonNotConfigured (Warning): something prevents the agent from configuring the interface; says what to do.
	ReasonNotConfigured = "VLANNotConfigured"
	// ReasonDisputed (Warning): another program keeps undoing what the agent does; says what and what to do.
	ReasonDisputed = "VLANDisputed"
)

// Event is an event to record on the Node.
type Event struct {
	Warning         bool
	Reason, Message string
}

// recordActions records what was done.
func (r *Reconciler) recordActions(ctx context.Context, w want, before Observed, done []action) {
	text := texts(done)
	if text == "" {
		return
	}
	reason := ReasonConfigured
	target := w.target(before)
	switch {
	case w.ID == 0:
		reason = ReasonReleased
	case target != nil && target.Ours:
		reason = ReasonRepaired
	}
	r.record(ctx, Event{Reason: reason, Message: text})
}

// report keeps the status, and records a new problem.
func (r *Reconciler) report(ctx context.Context, status Status, reason string) {
	r.mu.Lock()
	isNew := status.Problem != "" && status.Problem != r.status.Problem
	r.status = status
	r.mu.Unlock()
	if isNew {
		r.record(ctx, Event{Warning: true, Reason: reason, Message: status.Problem})
	}
}

func (r *Reconciler) record(ctx context.Context, e Event) {
	klog.FromContext(ctx).Info("The VLAN interface is managed",
		"warning", e.Warning, "reason", e.Reason, "message", e.Message)
	if r.Record != nil {
		r.Record(e)
	}
}

const (
	// uplinkDelay is how long another uplink must stay before it is used: longer than a bond takes to be rebuilt.
	uplinkDelay = 10 * time.Second
	// budgetSize is how often something may be changed within budgetWindow.
	budgetSize   = 30
	budgetWindow = time.Minute
)

// uplinkDebounce is the uplink in use, and another one that was found instead.
type uplinkDebounce struct {
	current, other string
	since          time.Time
}

// wait returns how long to wait until the uplink name may be used.
func (u *uplinkDebounce) wait(name string, now time.Time) time.Duration {
	if name != u.current && u.current != "" {
		if name == "" {
			return 0
		}
		if name != u.other {
			u.other = name
			u.since = now
		}
		if wait := uplinkDelay - now.Sub(u.since); wait > 0 {
			return wait
		}
	}
	u.current = name
	u.other = ""
	return 0
}

// budget bounds how often the agent changes things in a minute, because another program may undo each change at once.
type budget struct{ spent []time.Time }

// spend takes one from the budget when there is something to do, or returns how long to wait.
func (b *budget) spend(something bool, now time.Time) time.Duration {
	if !something {
		return 0
	}
	for len(b.spent) > 0 && now.Sub(b.spent[0]) >= budgetWindow {
		b.spent = b.spent[1:]
	}
	if len(b.spent) >= budgetSize {
		return budgetWindow - now.Sub(b.spent[0])
	}
	b.spent = append(b.spent, now)
	return 0
}

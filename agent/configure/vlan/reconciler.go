package vlan

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/loop"
)

const (
	// Interval is the time between looks when no event calls for one.
	Interval = 30 * time.Second
	// Grace is how long the interface outlives the server's membership: an API that errs for a moment must not take a node
	// off the network.
	Grace = 5 * time.Minute
	// debounce gathers the events that one change makes.
	debounce = 100 * time.Millisecond
	// watchPause is the pause before a broken subscription to the kernel's events is made anew.
	watchPause = time.Second
	// firstRetry and the doublings of it up to Interval are the pauses after a failure.
	firstRetry = time.Second
)

// Config is what a Keeper works with.
type Config struct {
	// Expected returns what the controller published.
	Expected func() check.Expected
	Kernel   Kernel
	// Prober asks the wire whether an address is in use before it is put on the interface; nil asks nobody.
	Asker Prober
	// Watch calls changed at each change that the kernel reports, until ctx ends.
	Watch func(ctx context.Context, changed func()) error
	// Hindrance says why nothing may be changed at the moment, such as a machine that is not the server which its Node
	// names; empty when nothing hinders. May be nil.
	Hindrance func() string
	// Tell receives what happened; it must not block.
	Tell func(Event)
	// Signals asks for a look soon, as Wake does; nil for one that only the Keeper knows.
	Signals loop.Wake
}

// Reconciler makes and keeps the VLAN interface.
type Reconciler struct {
	Config
	wake loop.Wake

	// Only Run's loop uses these.
	uplink   uplinkMemory
	absent   time.Time
	spending budget
	failures int

	mu     sync.Mutex
	status Status
}

// Status is what is managed at the moment.
type Status struct {
	// Interface is the name of the VLAN interface, empty when there is none of ours.
	Interface string
	// Made tells that the agent made it; otherwise a person did, and the agent adopted it.
	Made bool
	// Problem says why the interface is not as it should be; empty when it is.
	Problem string
}

// New returns a keeper; it starts nothing.
func New(config Config) *Reconciler {
	if config.Hindrance == nil {
		config.Hindrance = func() string { return "" }
	}
	return &Reconciler{Config: config, wake: cmp.Or(config.Signals, loop.NewWake())}
}

// Wake asks for a look soon.
func (k *Reconciler) Wake() { k.wake.Signal() }

// Status returns what is managed at the moment.
func (k *Reconciler) Status() Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.status
}

// Run keeps the interface until ctx ends. It leaves everything as it is then.
func (k *Reconciler) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return k.follow(ctx) })
	group.Go(func() error { return k.loop(ctx) })
	return group.Wait()
}

// follow keeps the subscription to the kernel's events.
func (k *Reconciler) follow(ctx context.Context) error {
	for {
		if err := k.Watch(ctx, k.Wake); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Watching the kernel")
		}
		if !loop.Sleep(ctx, watchPause) {
			return nil
		}
		k.Wake()
	}
}

func (k *Reconciler) loop(ctx context.Context) error {
	for {
		switch k.wake.Wait(ctx, k.once(ctx)) {
		case loop.Ended:
			return nil
		case loop.Due:
		case loop.Woken:
			if !k.wake.Debounce(ctx, debounce) {
				return nil
			}
		}
	}
}

// once takes a look and returns when the next is due.
func (k *Reconciler) once(ctx context.Context) time.Duration {
	due, err := k.look(ctx)
	switch {
	case err != nil:
		due = loop.Backoff(firstRetry, Interval, k.failures)
		k.failures++
		return due
	case due > 0:
		k.failures = 0
		return min(due, Interval)
	default:
		k.failures = 0
		return Interval
	}
}

// look takes one look and does what is to be done. A positive due is when to look again at the latest.
func (k *Reconciler) look(ctx context.Context) (due time.Duration, err error) {
	seen, err := k.Kernel.Look(ctx)
	if err != nil {
		k.report(ctx, Status{Problem: err.Error()}, ReasonNotConfigured)
		return 0, err
	}
	d := k.decide(seen, time.Now())
	if !d.act {
		if d.hindrance != "" {
			k.report(ctx, Status{Problem: d.hindrance}, ReasonNotConfigured)
		}
		return d.due, nil
	}
	status := statusOf(d.want, seen)
	actions, problems := plan(d.want, seen)
	if wait := k.spending.spend(len(actions) > 0, time.Now()); wait > 0 {
		status.Problem = "somebody keeps undoing what the agent does: " + texts(actions)
		k.report(ctx, status, ReasonDisputed)
		return wait, nil
	}
	done, err := k.apply(ctx, actions)
	k.announce(ctx, d.want, seen, done)
	if err != nil {
		problems = append(problems, err.Error())
	}
	status.Problem = strings.Join(problems, "; ")
	k.report(ctx, status, ReasonNotConfigured)
	return 0, err
}

// statusOf is the status when a plan is carried out wholly.
func statusOf(w want, seen Seen) Status {
	switch target := w.target(seen); {
	case w.ID == 0:
		return Status{}
	case target != nil:
		return Status{Interface: target.Name, Made: target.Record.Made}
	default:
		return Status{Interface: w.Name, Made: true}
	}
}

// decision is what a look leads to.
type decision struct {
	// act tells that want is to stand on the node; otherwise nothing is to be changed.
	act  bool
	want want
	// due is when to decide anew at the latest, 0 when only a change calls for that.
	due time.Duration
	// hindrance says what stands in the way.
	hindrance string
}

func (k *Reconciler) decide(seen Seen, now time.Time) decision {
	e, hindrance := k.Expected(), k.Hindrance()
	switch {
	case e.Unreadable != "":
		return decision{hindrance: e.Unreadable}
	case !e.Published:
		// Annotations that are missing say nothing about the network.
		return decision{}
	case hindrance != "":
		return decision{hindrance: hindrance}
	case !e.Network.Member:
		wait := k.cleanUp(now)
		return decision{act: wait == 0, due: wait}
	}
	k.absent = time.Time{}
	name := check.Evaluate(e, seen.snapshot()).Uplink
	if wait := k.uplink.settled(name, now); wait > 0 {
		return decision{due: wait}
	}
	uplink := seen.named(name)
	if uplink == nil {
		return decision{hindrance: "no uplink to carry the VLAN was found: name it with --uplink"}
	}
	return decision{act: true, want: wanted(e, uplink.Link)}
}

// cleanUp returns how long what is there has to stay after the membership ended, 0 when its time is over.
func (k *Reconciler) cleanUp(now time.Time) time.Duration {
	if k.absent.IsZero() {
		k.absent = now
	}
	return max(0, Grace-now.Sub(k.absent))
}

func (k *Reconciler) apply(ctx context.Context, actions []action) (done []action, err error) {
	r := &run{kernel: k.Kernel, asker: k.Asker}
	for _, a := range actions {
		if ctx.Err() != nil {
			return done, ctx.Err()
		}
		klog.FromContext(ctx).V(2).Info("Managing the VLAN interface", "step", a.String())
		if err := a.do(ctx, r); err != nil {
			return done, err
		}
		done = append(done, a)
	}
	return done, nil
}

func texts(actions []action) string {
	var parts []string
	for _, a := range actions {
		if _, silent := a.(interface{ silent() }); !silent {
			parts = append(parts, a.String())
		}
	}
	return strings.Join(parts, ", ")
}

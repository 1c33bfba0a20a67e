//go:build linux

package returnpath

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/ownership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/netstate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

const (
	// interval is the time between two reconciliations without an event: for changes that the kernel does not report.
	interval = 30 * time.Second
	// retryAfter is the pause after a failure.
	retryAfter = 2 * time.Second
	// debounce gathers the burst of events that one change of the network makes.
	debounce = 200 * time.Millisecond
	// markerAge is how long a search for programs that use our mark bits is valid: it reads all rules of nftables.
	markerAge = 10 * time.Minute
	// looseFilter is the rp_filter that only checks whether the source is reachable at all (RFC 3704).
	looseFilter = 2
	// maxReported bounds how many changes one event lists.
	maxReported = 3
)

// Reasons of the events on the Node about the return path.
const (
	// ReasonManaged (Normal): the return path is configured.
	ReasonManaged = "ReturnPathManaged"
	// ReasonRepaired (Normal): another program had changed the return path, and it was repaired.
	ReasonRepaired = "ReturnPathRepaired"
	// ReasonRemoved (Normal): everything was removed, because no block needs it.
	ReasonRemoved = "ReturnPathRemoved"
	// ReasonFailed (Warning): something could not be configured; says what and what to check.
	ReasonFailed = "ReturnPathFailed"
	// ReasonMarkClash (Warning): another program uses the mark bits; the return path is not managed. Names the program
	// and what to do.
	ReasonMarkClash = "MarkClash"
)

// Notice is a change of state, recorded as an event.
type Notice struct {
	// Warning is set when a person should look.
	Warning bool
	Reason  string
	Message string
}

// Status is what is managed now.
type Status struct {
	// Managing reports whether the return path is configured.
	Managing bool
	// Interface is the name of the VLAN interface, empty when there is none; of several, separated by commas.
	Interface string
	// Blocks are the blocks whose replies leave by their gateway.
	Blocks []netip.Prefix
	// Problem is why it is not; empty when it is.
	Problem string
	// Repairs counts how often something that had been made was changed by others and restored.
	Repairs int
}

// Config configures a Reconciler.
type Config struct {
	// Expected returns what the controller published of each network of the Node.
	Expected func() []check.Expected
	// BlockedReason returns why nothing may be changed, such as a wrong machine; empty or a nil function for nothing.
	BlockedReason func() string
	// Bits are the mark bits; 0 means DefaultBits.
	Bits Bits
	// Journal records the previous settings of interfaces; all reconcilers of a process share one.
	Journal *ownership.Journal
	// Watches call changed until ctx ends, such as netstate.Watch and WatchTable.
	Watches []func(ctx context.Context, changed func()) error
	// Record receives changes of state; it must not block. Nil discards them.
	Record func(Notice)
	// Signals asks for a look soon, as Wake does; nil for one that only the Reconciler knows.
	Signals loop.Wake
}

// Reconciler makes and keeps the return path.
type Reconciler struct {
	config  Config
	machine interface {
		kernel
		observe(ctx context.Context, networks []check.Expected) (observed, error)
		marker(bits Bits) (string, error)
		restoreFilters(ctx context.Context) error
	}
	wake loop.Wake
	// markersCheckedAt is when other programs' marks were last searched for and not found. Only the loop uses it.
	markersCheckedAt time.Time

	mu     sync.Mutex
	status Status
	// kept are the blocks of the last successful pass: a change without another set of blocks is a repair.
	kept       []netip.Prefix
	lastNotice Notice
}

// New returns a Reconciler; it starts nothing.
func New(config Config) *Reconciler {
	if config.Journal == nil {
		config.Journal = &ownership.Journal{}
	}
	config.Bits = cmp.Or(config.Bits, DefaultBits)
	if config.BlockedReason == nil {
		config.BlockedReason = func() string { return "" }
	}
	if config.Record == nil {
		config.Record = func(Notice) {}
	}
	return &Reconciler{config: config, machine: machine{config.Journal}, wake: cmp.Or(config.Signals, loop.NewWake())}
}

// Wake requests a reconciliation soon, because the expected state may have changed.
func (r *Reconciler) Wake() { r.wake.Signal() }

// Status returns what is managed now.
func (r *Reconciler) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// Run keeps the return path until ctx ends. What it made stays: traffic continues while the agent restarts.
func (r *Reconciler) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, watch := range r.config.Watches {
		group.Go(func() error { return netstate.Follow(ctx, watch, r.Wake) })
	}
	group.Go(func() error { return r.wake.Run(ctx, debounce, r.once) })
	return group.Wait()
}

// once reconciles and returns when to do so again.
func (r *Reconciler) once(ctx context.Context) time.Duration {
	if err := r.Reconcile(ctx); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Failed to reconcile the return path")
		return retryAfter
	}
	return interval
}

// Reconcile reads the state once and makes what is missing. While nothing is published, it changes nothing.
func (r *Reconciler) Reconcile(ctx context.Context) error {
	networks := r.config.Expected()
	targets, known := targetsOf(networks)
	if !known {
		return nil
	}
	if why := r.config.BlockedReason(); why != "" {
		r.stopped(why) // others report it
		return nil
	}
	o, err := r.machine.observe(ctx, networks)
	if err != nil {
		return r.failed(err)
	}
	o.marker = r.marker(ctx)
	if problem := clash(o, r.config.Bits); problem != "" {
		r.stopped(problem)
		r.record(Notice{Warning: true, Reason: ReasonMarkClash, Message: "the return path is not managed: " + problem})
		return nil
	}
	w := want(targets, r.config.Bits, o)
	done, err := r.act(ctx, plan(o, w))
	if err == nil && len(w.unmarked) > 0 {
		err = fmt.Errorf("the mark bits %s have too few values for the network with VLAN ID %d: set more bits with "+
			"--mark", r.config.Bits, w.unmarked[0])
	}
	if err != nil {
		return r.failed(err)
	}
	r.succeeded(targets, o, done)
	return nil
}

// marker returns which other program marks with our bits, searched for periodically; a failed search is no obstacle.
func (r *Reconciler) marker(ctx context.Context) string {
	if time.Since(r.markersCheckedAt) < markerAge {
		return ""
	}
	who, err := r.machine.marker(r.config.Bits)
	switch {
	case err != nil:
		klog.FromContext(ctx).V(2).Info("Failed to find out whether another program uses the mark bits",
			"reason", err.Error())
	case who == "":
		r.markersCheckedAt = time.Now()
	default:
	}
	return who
}

// act executes actions. A failed one does not prevent the rest.
func (r *Reconciler) act(ctx context.Context, actions []action) (done []string, err error) {
	var errs []error
	for _, a := range actions {
		if err := a.do(r.machine); err != nil {
			errs = append(errs, err)
			continue
		}
		klog.FromContext(ctx).V(2).Info("Changed the return path", "what", a.text)
		done = append(done, a.text)
	}
	return done, errors.Join(errs...)
}

// Cleanup removes what was made, by any process, and nothing else. The reverse path filter gets its previous value.
func (r *Reconciler) Cleanup(ctx context.Context) error {
	o, err := r.machine.observe(ctx, r.config.Expected())
	if err != nil {
		return fmt.Errorf("remove the return path: %w", err)
	}
	_, err = r.act(ctx, plan(o, wanted{ruleset: &ruleset{}}))
	return errors.Join(err, r.machine.restoreFilters(ctx))
}

// failed records what could not be done and returns it.
func (r *Reconciler) failed(err error) error {
	problem := strings.ReplaceAll(err.Error(), "\n", "; ")
	r.stopped(problem)
	r.record(Notice{Warning: true, Reason: ReasonFailed, Message: "the return path cannot be configured, which is " +
		"tried again: " + problem + "; if this lasts, check that the agent has the capability NET_ADMIN and that the kernel has " +
		"nftables and policy routing"})
	return err
}

// stopped keeps why nothing is managed.
func (r *Reconciler) stopped(problem string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Managing = false
	r.status.Problem = problem
}

// statusOf is the status once the kernel is in the wanted state.
func statusOf(targets []target, o observed) Status {
	var s Status
	var names, problems []string
	for _, t := range targets {
		for _, b := range t.blocks {
			s.Blocks = append(s.Blocks, b.CIDR.Masked())
		}
		l := o.vlans[t.vlan]
		if l == nil {
			problems = append(problems, "there is no VLAN interface")
			continue
		}
		names = append(names, l.name)
		if !l.up {
			problems = append(problems, l.name+" is down")
		}
	}
	s.Interface = strings.Join(names, ",")
	s.Problem = strings.Join(problems, "; ")
	s.Managing = len(s.Blocks) > 0 && len(problems) == 0
	return s
}

// succeeded records that the kernel is in the wanted state, after the changes that were made.
func (r *Reconciler) succeeded(targets []target, o observed, done []string) {
	status := statusOf(targets, o)
	r.mu.Lock()
	status.Repairs = r.status.Repairs
	notice := noticeFor(status, slices.Equal(status.Blocks, r.kept), done)
	switch notice.Reason {
	case ReasonRepaired:
		status.Repairs++
	case ReasonManaged:
		notice.Message += o.caveat()
	default:
	}
	if status.Managing || len(status.Blocks) == 0 {
		r.kept = status.Blocks
	}
	r.status = status
	r.mu.Unlock()
	r.record(notice)
}

// noticeFor returns what to record about a successful pass. same reports whether the same blocks were kept before.
func noticeFor(s Status, same bool, done []string) Notice {
	switch {
	case len(done) == 0:
		return Notice{}
	case len(s.Blocks) == 0:
		return Notice{Reason: ReasonRemoved,
			Message: "no block needs a return path any more: " + text.Some(done, maxReported)}
	case !s.Managing:
		return Notice{}
	case same:
		return Notice{
			Reason:  ReasonRepaired,
			Message: "the return path was changed by another program and is repaired: " + text.Some(done, maxReported),
		}
	default:
		blocks := make([]string, len(s.Blocks))
		for i, b := range s.Blocks {
			blocks[i] = b.String()
		}
		return Notice{Reason: ReasonManaged,
			Message: fmt.Sprintf("replies from %s leave by %s", strings.Join(blocks, ", "), s.Interface)}
	}
}

// record passes on a notice that differs from the previous one; one without a reason only ends a failure.
func (r *Reconciler) record(n Notice) {
	r.mu.Lock()
	same := r.lastNotice == n
	r.lastNotice = n
	r.mu.Unlock()
	if !same && n.Reason != "" {
		r.config.Record(n)
	}
}

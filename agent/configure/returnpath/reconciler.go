//go:build linux

package returnpath

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/configure/ownership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/loop"
)

const (
	// interval is the time between two looks without an event: for what the kernel changes without a word.
	interval = 30 * time.Second
	// retryAfter is the pause after a failure.
	retryAfter = 2 * time.Second
	// debounce gathers the burst of events that one change of the network makes.
	debounce = 200 * time.Millisecond
	// watchPause is the pause before a broken subscription to the kernel's events is made anew.
	watchPause = time.Second
	// markerAge is how long it holds that nobody else marks with our bits: all rules of nftables are read for it.
	markerAge = 10 * time.Minute
	// looseFilter is the rp_filter that asks only whether the source is reached at all (RFC 3704).
	looseFilter = 2
	// maxTold bounds how many changes one event tells.
	maxTold = 3
)

// Reasons of the events on the Node about the way of replies.
const (
	// ReasonManaged (Normal): replies have their way now.
	ReasonManaged = "ReturnPathManaged"
	// ReasonRepaired (Normal): somebody had disturbed it.
	ReasonRepaired = "ReturnPathRepaired"
	// ReasonRemoved (Normal): all that was made is gone, for no block needs it.
	ReasonRemoved = "ReturnPathRemoved"
	// ReasonFailed (Warning): something could not be made.
	ReasonFailed = "ReturnPathFailed"
	// ReasonMarkClash (Warning): another program uses the mark bits; nothing is done then.
	ReasonMarkClash = "MarkClash"
)

// Notice is a change of state, to be told as an event.
type Notice struct {
	// Warning tells that a person should look.
	Warning bool
	Reason  string
	Message string
}

// Status is what is managed at the moment.
type Status struct {
	// Managing tells that replies have their way.
	Managing bool
	// Interface is the name of the VLAN interface, empty when there is none.
	Interface string
	// Blocks are the blocks whose replies leave by their gateway.
	Blocks []netip.Prefix
	// Problem says what stands in the way; empty when nothing does.
	Problem string
	// Clash tells that Problem is another program's use of the mark bits.
	Clash bool
	// Repairs counts how often something that had been made was disturbed and made again.
	Repairs int
}

// Config is what a Keeper works with.
type Config struct {
	// Expected returns what the controller published.
	Expected func() check.Expected
	// Hindrance says why nothing may be changed at the moment, such as a machine that is not the server which its Node names;
	// empty when nothing stands in the way. Nil means that nothing ever does.
	Hindrance func() string
	// Bits are the mark bits; 0 means DefaultBits.
	Bits Bits
	// Journal notes what settings of interfaces were before; all keepers of a process share one.
	Journal *ownership.Journal
	// Watches call changed at changes of links, addresses, routes and rules (netinfo.Watch) and of the nftables table
	// (WatchTable), until ctx ends.
	Watches []func(ctx context.Context, changed func()) error
	// Tell receives changes of state; it must not block. Nil discards them.
	Tell func(Notice)
	// SysctlRoot is the directory of the kernel's settings; empty means /proc/sys.
	SysctlRoot string
	// Signals asks for a look soon, as Wake does; nil for one that only the Keeper knows.
	Signals loop.Wake
}

// Reconciler makes and keeps the way of replies.
type Reconciler struct {
	config  Config
	machine interface {
		kernel
		observe(ctx context.Context, e check.Expected) (observed, error)
		marker(bits Bits) (string, error)
		restoreFilters(ctx context.Context) error
	}
	wake loop.Wake
	// unmarked is when somebody else's marks were last looked for and not found. Only the loop touches it.
	unmarked time.Time

	mu     sync.Mutex
	status Status
	// kept are the blocks of the latest pass that went well: a change without another set of blocks is a repair.
	kept []netip.Prefix
	told Notice
}

// New returns a keeper; it starts nothing.
func New(config Config) *Reconciler {
	if config.Journal == nil {
		config.Journal = &ownership.Journal{}
	}
	if config.Bits == 0 {
		config.Bits = DefaultBits
	}
	if config.SysctlRoot == "" {
		config.SysctlRoot = "/proc/sys"
	}
	if config.Hindrance == nil {
		config.Hindrance = func() string { return "" }
	}
	if config.Tell == nil {
		config.Tell = func(Notice) {}
	}
	return &Reconciler{config: config, machine: machine{config.Journal, config.SysctlRoot}, wake: cmp.Or(config.Signals, loop.NewWake())}
}

// Wake asks for a look soon, because what to expect may have changed.
func (k *Reconciler) Wake() { k.wake.Signal() }

// Status returns what is managed at the moment.
func (k *Reconciler) Status() Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.status
}

// Run keeps the way of replies until ctx ends. What it made stays: traffic goes on while the agent restarts.
func (k *Reconciler) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, watch := range k.config.Watches {
		group.Go(func() error { return k.follow(ctx, watch) })
	}
	group.Go(func() error { return k.loop(ctx) })
	return group.Wait()
}

// follow keeps a subscription to the kernel's events, and asks for a look when it had to be made anew.
func (k *Reconciler) follow(ctx context.Context, watch func(context.Context, func()) error) error {
	for {
		if err := watch(ctx, k.Wake); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Watching the kernel for the return path")
		}
		if !loop.Sleep(ctx, watchPause) {
			return nil
		}
		k.Wake()
	}
}

func (k *Reconciler) loop(ctx context.Context) error {
	for {
		next := interval
		if err := k.Reconcile(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Keeping the return path")
			next = retryAfter
		}
		switch k.wake.Wait(ctx, next) {
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

// Reconcile looks once and makes what is missing. While nothing is published, it changes nothing.
func (k *Reconciler) Reconcile(ctx context.Context) error {
	e := k.config.Expected()
	t, known := targetOf(e, k.config.Bits)
	if !known {
		return nil
	}
	if why := k.config.Hindrance(); why != "" {
		k.blocked(why)
		return nil
	}
	o, err := k.machine.observe(ctx, e)
	if err != nil {
		return k.failed(err)
	}
	o.marker = k.marker(ctx)
	if problem := clash(o, k.config.Bits); problem != "" {
		k.clashed(problem)
		return nil
	}
	done, err := k.act(ctx, plan(o, t.want(o)))
	if err != nil {
		return k.failed(err)
	}
	k.succeeded(t, o, done)
	return nil
}

// marker is who else marks with our bits, looked for now and then. That it cannot be found out is no hindrance.
func (k *Reconciler) marker(ctx context.Context) string {
	if time.Since(k.unmarked) < markerAge {
		return ""
	}
	who, err := k.machine.marker(k.config.Bits)
	switch {
	case err != nil:
		klog.FromContext(ctx).V(2).Info("Cannot tell whether somebody else uses the mark bits", "reason", err.Error())
	case who == "":
		k.unmarked = time.Now()
	default:
	}
	return who
}

// act carries actions out. One that fails does not keep the rest from being done.
func (k *Reconciler) act(ctx context.Context, actions []action) (done []string, err error) {
	var errs []error
	for _, a := range actions {
		if err := a.do(k.machine); err != nil {
			errs = append(errs, err)
			continue
		}
		klog.FromContext(ctx).V(2).Info("Changed the return path", "what", a.text)
		done = append(done, a.text)
	}
	return done, errors.Join(errs...)
}

// Cleanup removes what was made, by this process or an earlier one, and nothing else. The reverse path filter of the VLAN
// interface becomes what it was.
func (k *Reconciler) Cleanup(ctx context.Context) error {
	o, err := k.machine.observe(ctx, k.config.Expected())
	if err != nil {
		return fmt.Errorf("remove the return path: %w", err)
	}
	_, err = k.act(ctx, plan(o, wanted{ruleset: &ruleset{}}))
	return errors.Join(err, k.machine.restoreFilters(ctx))
}

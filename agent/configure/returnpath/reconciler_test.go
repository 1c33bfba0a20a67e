//go:build linux

package returnpath

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
)

// memory is a kernel in memory that counts looks and can be made to fail.
type memory struct {
	model
	// mu orders what a test changes before the next look.
	mu       sync.Mutex
	looks    int
	fail     error
	scans    int
	restored int
}

func (m *memory) observe(context.Context, check.Expected) (observed, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.looks++
	o := m.observed
	o.rules, o.routes, o.ruleset = slices.Clone(o.rules), slices.Clone(o.routes), slices.Clone(o.ruleset)
	return o, m.fail
}

func (m *memory) change(do func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do()
}

// scan counts the searches for marks of others.
func (m *memory) scan(Bits) (string, error) {
	m.scans++
	return m.marker, nil
}

func (m *memory) restoreFilters(context.Context) error {
	m.restored++
	return nil
}

// scanning gives memory the method that the embedded state hides by a field of that name.
type scanning struct{ *memory }

func (s scanning) marker(bits Bits) (string, error) { return s.scan(bits) }

// bench is a keeper on a kernel in memory.
type bench struct {
	*Reconciler
	kernel    *memory
	expected  check.Expected
	hindrance string
	told      []string
}

func newBench() *bench {
	b := &bench{kernel: &memory{}, expected: expected(blocks[0], blocks[1])}
	b.kernel.link = &link{index: 6, name: "bond0.100", up: true, strict: true}
	b.Reconciler = New(Config{
		Expected: func() check.Expected { return b.expected }, Hindrance: func() string { return b.hindrance },
		Tell: func(n Notice) { b.told = append(b.told, n.Reason) },
	})
	b.machine = scanning{b.kernel}
	return b
}

func (b *bench) reconcile(t *testing.T) {
	t.Helper()
	if err := b.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) tells(t *testing.T, want ...string) {
	t.Helper()
	b.kernel.change(func() {
		if !slices.Equal(b.told, want) {
			t.Errorf("told %q, want %q", b.told, want)
		}
		b.told = nil
	})
}

func TestTellsTransitions(t *testing.T) {
	b := newBench()
	b.reconcile(t)
	b.tells(t, ReasonManaged)
	b.reconcile(t)
	b.tells(t)
	b.kernel.rules, b.kernel.routes = nil, nil
	b.reconcile(t)
	b.tells(t, ReasonRepaired)
	b.reconcile(t)
	b.kernel.ruleset = nil
	b.reconcile(t)
	b.tells(t, ReasonRepaired)
	if s := b.Status(); !s.Managing || s.Interface != "bond0.100" || s.Repairs != 2 || s.Problem != "" || len(s.Blocks) != 2 {
		t.Errorf("status %+v", s)
	}
	b.expected = expected(blocks[0])
	b.reconcile(t)
	b.tells(t, ReasonManaged)
	b.expected = expected()
	b.reconcile(t)
	b.tells(t, ReasonRemoved)
	if s := b.Status(); s.Managing || len(b.kernel.rules)+len(b.kernel.routes)+len(b.kernel.ruleset) != 0 {
		t.Errorf("without blocks the status is %+v and %d rules are left", s, len(b.kernel.rules))
	}
}

// TestInterfaceComesAndGoes: rules wait for the interface, and its return is a repair.
func TestInterfaceComesAndGoes(t *testing.T) {
	b := newBench()
	there := b.kernel.link
	b.kernel.link = nil
	b.reconcile(t)
	if s := b.Status(); s.Managing || s.Problem == "" {
		t.Errorf("without an interface the status is %+v", s)
	}
	b.kernel.link = there
	b.reconcile(t)
	b.kernel.link, b.kernel.routes = nil, nil
	b.reconcile(t)
	b.kernel.link = there
	b.reconcile(t)
	b.tells(t, ReasonManaged, ReasonRepaired)
}

func TestRestartTellsNothing(t *testing.T) {
	b := newBench()
	b.reconcile(t)
	again := newBench()
	again.machine = b.machine
	again.reconcile(t)
	again.tells(t)
	if !again.Status().Managing {
		t.Error("after a restart nothing is managed")
	}
}

// TestKeepsHandsOff: nothing is done on a clash, with a hindrance, and while nothing is published.
func TestKeepsHandsOff(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(b *bench)
		told   []string
		clash  bool
	}{
		"a foreign rule":  {func(b *bench) { b.kernel.rules = []seenRule{{rule: rule{mark: 0x10, mask: 0xff}}} }, []string{ReasonMarkClash}, true},
		"a foreign mark":  {func(b *bench) { b.kernel.marker = "a rule of the chain x" }, []string{ReasonMarkClash}, true},
		"another machine": {func(b *bench) { b.hindrance = "PN003: another server" }, nil, false},
		"not published":   {func(b *bench) { b.expected = check.Expected{} }, nil, false},
	} {
		b := newBench()
		tc.change(b)
		rules := len(b.kernel.rules)
		b.reconcile(t)
		b.reconcile(t)
		b.tells(t, tc.told...)
		if s := b.Status(); s.Managing || s.Clash != tc.clash || len(b.kernel.rules) != rules || b.kernel.ruleset != nil || !b.kernel.link.strict {
			t.Errorf("%s: status %+v, and something was changed", name, s)
		}
	}
}

// TestLooksForMarksSeldom: reading all rules of nftables is dear.
func TestLooksForMarksSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		for range 100 {
			b.reconcile(t)
		}
		time.Sleep(markerAge)
		b.reconcile(t)
		if b.kernel.scans != 2 {
			t.Errorf("%d scans, want one at the start and one after %s", b.kernel.scans, markerAge)
		}
	})
}

// TestRun: a look at once, on a wake, every 30 s, soon after a failure; a failure is told once; the end of the context is none.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		ctx, cancel := context.WithCancel(t.Context())
		subscriptions := 0
		b.config.Watches = []func(context.Context, func()) error{func(ctx context.Context, _ func()) error {
			if subscriptions++; subscriptions == 1 {
				return errors.New("no buffer space")
			}
			<-ctx.Done()
			return nil
		}}
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx) }()
		pass := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		pass(2 * time.Second)
		if subscriptions != 2 || b.kernel.looks != 2 {
			t.Errorf("%d subscriptions and %d looks, want the broken one made anew, and a look at once and one then", subscriptions, b.kernel.looks)
		}
		b.kernel.change(func() { b.kernel.looks = 0 })
		pass(10 * interval)
		if b.kernel.looks != 10 {
			t.Errorf("%d looks in %s, want 10", b.kernel.looks, 10*interval)
		}
		b.kernel.change(func() { b.kernel.looks, b.told, b.kernel.rules = 0, nil, nil })
		for range 50 {
			b.Wake()
		}
		pass(2 * debounce)
		b.tells(t, ReasonRepaired)
		if b.kernel.looks != 1 {
			t.Errorf("a burst of events makes %d looks", b.kernel.looks)
		}
		b.kernel.change(func() { b.kernel.fail = errors.New("interrupted") })
		b.Wake()
		pass(5 * retryAfter)
		b.tells(t, ReasonFailed)
		if s := b.Status(); s.Managing || !strings.Contains(s.Problem, "interrupted") {
			t.Errorf("after a failure the status is %+v", s)
		}
		b.kernel.change(func() { b.kernel.fail = nil })
		pass(retryAfter)
		if !b.Status().Managing {
			t.Errorf("after the failure the status is %+v", b.Status())
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run ended with %v", err)
		}
	})
}

func TestCleanup(t *testing.T) {
	b := newBench()
	b.reconcile(t)
	b.expected = check.Expected{}
	b.kernel.rules = append(b.kernel.rules, seenRule{rule: rule{priority: sourcePriority, table: 7}, protocol: 3})
	if err := b.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(b.kernel.rules) != 1 || len(b.kernel.routes) != 0 || b.kernel.ruleset != nil || b.kernel.restored != 1 {
		t.Errorf("left: %+v", b.kernel.observed)
	}
}

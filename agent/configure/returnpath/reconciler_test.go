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

// memory is a kernel in memory that counts reads and can be made to fail.
type memory struct {
	model
	// mu orders what a test changes before the next read.
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

// scan counts the searches for marks of other programs.
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

// harness is a Reconciler on a kernel in memory.
type harness struct {
	*Reconciler
	kernel        *memory
	expected      check.Expected
	blockedReason string
	recorded      []string
}

func newHarness() *harness {
	b := &harness{kernel: &memory{}, expected: expected(blocks[0], blocks[1])}
	b.kernel.link = &link{index: 6, name: "bond0.100", up: true, strict: true}
	b.Reconciler = New(Config{
		Expected: func() check.Expected { return b.expected }, BlockedReason: func() string { return b.blockedReason },
		Record: func(n Notice) { b.recorded = append(b.recorded, n.Reason) },
	})
	b.machine = scanning{b.kernel}
	return b
}

func (h *harness) reconcile(t *testing.T) {
	t.Helper()
	if err := h.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (h *harness) mustRecord(t *testing.T, want ...string) {
	t.Helper()
	h.kernel.change(func() {
		if !slices.Equal(h.recorded, want) {
			t.Errorf("recorded %q, want %q", h.recorded, want)
		}
		h.recorded = nil
	})
}

func TestRecordsTransitions(t *testing.T) {
	b := newHarness()
	b.reconcile(t)
	b.mustRecord(t, ReasonManaged)
	b.reconcile(t)
	b.mustRecord(t)
	b.kernel.rules = nil
	b.kernel.routes = nil
	b.reconcile(t)
	b.mustRecord(t, ReasonRepaired)
	b.reconcile(t)
	b.kernel.ruleset = nil
	b.reconcile(t)
	b.mustRecord(t, ReasonRepaired)
	if s := b.Status(); !s.Managing || s.Interface != "bond0.100" || s.Repairs != 2 || s.Problem != "" ||
		len(s.Blocks) != 2 {
		t.Errorf("status %+v", s)
	}
	b.expected = expected(blocks[0])
	b.reconcile(t)
	b.mustRecord(t, ReasonManaged)
	b.expected = expected()
	b.reconcile(t)
	b.mustRecord(t, ReasonRemoved)
	if s := b.Status(); s.Managing || len(b.kernel.rules)+len(b.kernel.routes)+len(b.kernel.ruleset) != 0 {
		t.Errorf("without blocks the status is %+v and %d rules are left", s, len(b.kernel.rules))
	}
}

// TestInterfaceComesAndGoes: rules wait for the interface, and its return is a repair.
func TestInterfaceComesAndGoes(t *testing.T) {
	b := newHarness()
	there := b.kernel.link
	b.kernel.link = nil
	b.reconcile(t)
	if s := b.Status(); s.Managing || s.Problem == "" {
		t.Errorf("without an interface the status is %+v", s)
	}
	b.kernel.link = there
	b.reconcile(t)
	b.kernel.link = nil
	b.kernel.routes = nil
	b.reconcile(t)
	b.kernel.link = there
	b.reconcile(t)
	b.mustRecord(t, ReasonManaged, ReasonRepaired)
}

func TestRestartRecordsNothing(t *testing.T) {
	b := newHarness()
	b.reconcile(t)
	again := newHarness()
	again.machine = b.machine
	again.reconcile(t)
	again.mustRecord(t)
	if !again.Status().Managing {
		t.Error("after a restart nothing is managed")
	}
}

// TestChangesNothing: nothing is done on a clash, with a blocked reason, and while nothing is published.
func TestChangesNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(b *harness)
		record []string
		clash  bool
	}{
		"a foreign rule": {func(b *harness) { b.kernel.rules = []kernelRule{{rule: rule{mark: 0x10, mask: 0xff}}} },
			[]string{ReasonMarkClash}, true},
		"a foreign mark": {func(b *harness) { b.kernel.marker = "a rule of the chain x" }, []string{ReasonMarkClash},
			true},
		"another machine": {func(b *harness) { b.blockedReason = "PN003: another server" }, nil, false},
		"not published":   {func(b *harness) { b.expected = check.Expected{} }, nil, false},
	} {
		b := newHarness()
		tc.change(b)
		rules := len(b.kernel.rules)
		b.reconcile(t)
		b.reconcile(t)
		b.mustRecord(t, tc.record...)
		if s := b.Status(); s.Managing || strings.Contains(s.Problem, "mark bits") != tc.clash ||
			len(b.kernel.rules) != rules || b.kernel.ruleset != nil || !b.kernel.link.strict {
			t.Errorf("%s: status %+v, and something was changed", name, s)
		}
	}
}

// TestSearchesForMarksSeldom: reading all rules of nftables is expensive.
func TestSearchesForMarksSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness()
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

// TestRun reconciles at once, on a wake, every 30 s and soon after a failure; a failure is recorded once; the end of
// the context is not a failure.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness()
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
			t.Errorf("%d subscriptions and %d reads, want the broken one renewed, and a read at once and one then",
				subscriptions, b.kernel.looks)
		}
		b.kernel.change(func() { b.kernel.looks = 0 })
		pass(10 * interval)
		if b.kernel.looks != 10 {
			t.Errorf("%d looks in %s, want 10", b.kernel.looks, 10*interval)
		}
		b.kernel.change(func() {
			b.kernel.looks = 0
			b.recorded = nil
			b.kernel.rules = nil
		})
		for range 50 {
			b.Wake()
		}
		pass(2 * debounce)
		b.mustRecord(t, ReasonRepaired)
		if b.kernel.looks != 1 {
			t.Errorf("a burst of events makes %d looks", b.kernel.looks)
		}
		b.kernel.change(func() { b.kernel.fail = errors.New("interrupted") })
		b.Wake()
		pass(5 * retryAfter)
		b.mustRecord(t, ReasonFailed)
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
	b := newHarness()
	b.reconcile(t)
	b.expected = check.Expected{}
	b.kernel.rules = append(b.kernel.rules, kernelRule{rule: rule{priority: sourcePriority, table: 7}, protocol: 3})
	if err := b.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(b.kernel.rules) != 1 || len(b.kernel.routes) != 0 || b.kernel.ruleset != nil || b.kernel.restored != 1 {
		t.Errorf("left: %+v", b.kernel.observed)
	}
}

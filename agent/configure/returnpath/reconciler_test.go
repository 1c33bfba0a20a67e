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

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
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

func (m *memory) observe(context.Context, []check.Expected) (observed, error) {
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
	h := &harness{kernel: &memory{}, expected: expected(blocks[0], blocks[1])}
	h.kernel.vlans = map[int]*link{100: {index: 6, name: "bond0.100", up: true, strict: true}}
	h.Reconciler = New(Config{
		Expected:      func() []check.Expected { return []check.Expected{h.expected} },
		BlockedReason: func() string { return h.blockedReason },
		Record:        func(n Notice) { h.recorded = append(h.recorded, n.Reason) },
	})
	h.machine = scanning{h.kernel}
	return h
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
	h := newHarness()
	h.reconcile(t)
	h.mustRecord(t, ReasonManaged)
	h.reconcile(t)
	h.mustRecord(t)
	h.kernel.rules = nil
	h.kernel.routes = nil
	h.reconcile(t)
	h.mustRecord(t, ReasonRepaired)
	h.reconcile(t)
	h.kernel.ruleset = nil
	h.reconcile(t)
	h.mustRecord(t, ReasonRepaired)
	if s := h.Status(); !s.Managing || s.Interface != "bond0.100" || s.Repairs != 2 || s.Problem != "" ||
		len(s.Blocks) != 2 {
		t.Errorf("status %+v", s)
	}
	h.expected = expected(blocks[0])
	h.reconcile(t)
	h.mustRecord(t, ReasonManaged)
	h.expected = expected()
	h.reconcile(t)
	h.mustRecord(t, ReasonRemoved)
	if s := h.Status(); s.Managing || len(h.kernel.rules)+len(h.kernel.routes)+len(h.kernel.ruleset) != 0 {
		t.Errorf("without blocks the status is %+v and %d rules are left", s, len(h.kernel.rules))
	}
}

// TestInterfaceComesAndGoes: rules wait for the interface, and its return is a repair.
func TestInterfaceComesAndGoes(t *testing.T) {
	h := newHarness()
	there := h.kernel.vlans[100]
	h.kernel.vlans[100] = nil
	h.reconcile(t)
	if s := h.Status(); s.Managing || s.Problem == "" {
		t.Errorf("without an interface the status is %+v", s)
	}
	h.kernel.vlans[100] = there
	h.reconcile(t)
	h.kernel.vlans[100] = nil
	h.kernel.routes = nil
	h.reconcile(t)
	h.kernel.vlans[100] = there
	h.reconcile(t)
	h.mustRecord(t, ReasonManaged, ReasonRepaired)
}

func TestRestartRecordsNothing(t *testing.T) {
	h := newHarness()
	h.reconcile(t)
	again := newHarness()
	again.machine = h.machine
	again.reconcile(t)
	again.mustRecord(t)
	if !again.Status().Managing {
		t.Error("after a restart nothing is managed")
	}
}

// TestChangesNothing: nothing is done on a clash, with a blocked reason, and while nothing is published.
func TestChangesNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(h *harness)
		record []string
		clash  bool
	}{
		"a foreign rule": {func(h *harness) { h.kernel.rules = []kernelRule{{rule: rule{mark: 0x10, mask: 0xff}}} },
			[]string{ReasonMarkClash}, true},
		"a foreign mark": {func(h *harness) { h.kernel.marker = "a rule of the chain x" }, []string{ReasonMarkClash},
			true},
		"another machine": {func(h *harness) { h.blockedReason = "PN003: another server" }, nil, false},
		"not published":   {func(h *harness) { h.expected = check.Expected{} }, nil, false},
	} {
		h := newHarness()
		tc.change(h)
		rules := len(h.kernel.rules)
		h.reconcile(t)
		h.reconcile(t)
		h.mustRecord(t, tc.record...)
		if s := h.Status(); s.Managing || strings.Contains(s.Problem, "mark bits") != tc.clash ||
			len(h.kernel.rules) != rules || h.kernel.ruleset != nil || !h.kernel.vlans[100].strict {
			t.Errorf("%s: status %+v, and something was changed", name, s)
		}
	}
}

// TestSearchesForMarksSeldom: reading all rules of nftables is expensive.
func TestSearchesForMarksSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness()
		for range 100 {
			h.reconcile(t)
		}
		time.Sleep(markerAge)
		h.reconcile(t)
		if h.kernel.scans != 2 {
			t.Errorf("%d scans, want one at the start and one after %s", h.kernel.scans, markerAge)
		}
	})
}

// TestRun reconciles at once, on a wake, every 30 s and soon after a failure; a failure is recorded once; the end of
// the context is not a failure.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness()
		ctx, cancel := context.WithCancel(t.Context())
		subscriptions := 0
		h.config.Watches = []func(context.Context, func()) error{func(ctx context.Context, changed func()) error {
			if subscriptions++; subscriptions == 1 {
				return errors.New("no buffer space")
			}
			changed()
			<-ctx.Done()
			return nil
		}}
		ended := make(chan error, 1)
		go func() { ended <- h.Run(ctx) }()
		pass := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		pass(2 * time.Second)
		if subscriptions != 2 || h.kernel.looks != 2 {
			t.Errorf("%d subscriptions and %d reads, want the broken one renewed, and a read at once and one then",
				subscriptions, h.kernel.looks)
		}
		h.kernel.change(func() { h.kernel.looks = 0 })
		pass(10 * interval)
		if h.kernel.looks != 10 {
			t.Errorf("%d looks in %s, want 10", h.kernel.looks, 10*interval)
		}
		h.kernel.change(func() {
			h.kernel.looks = 0
			h.recorded = nil
			h.kernel.rules = nil
		})
		for range 50 {
			h.Wake()
		}
		pass(2 * debounce)
		h.mustRecord(t, ReasonRepaired)
		if h.kernel.looks != 1 {
			t.Errorf("a burst of events makes %d looks", h.kernel.looks)
		}
		h.kernel.change(func() { h.kernel.fail = errors.New("interrupted") })
		h.Wake()
		pass(5 * retryAfter)
		h.mustRecord(t, ReasonFailed)
		if s := h.Status(); s.Managing || !strings.Contains(s.Problem, "interrupted") {
			t.Errorf("after a failure the status is %+v", s)
		}
		h.kernel.change(func() { h.kernel.fail = nil })
		pass(retryAfter)
		if !h.Status().Managing {
			t.Errorf("after the failure the status is %+v", h.Status())
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run ended with %v", err)
		}
	})
}

func TestCleanup(t *testing.T) {
	h := newHarness()
	h.reconcile(t)
	h.expected = check.Expected{}
	h.kernel.rules = append(h.kernel.rules, kernelRule{rule: rule{priority: sourcePriority, table: 7}, protocol: 3})
	if err := h.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(h.kernel.rules) != 1 || len(h.kernel.routes) != 0 || h.kernel.ruleset != nil || h.kernel.restored != 1 {
		t.Errorf("left: %+v", h.kernel.observed)
	}
}

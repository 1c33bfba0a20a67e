package vlan

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/ownership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/arp"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// harness is a Reconciler on a model of a kernel, in virtual time.
type harness struct {
	t             *testing.T
	kernel        *model
	expected      check.Expected
	blockedReason string
	events        []Event
	*Reconciler
}

func network() contract.NodeNetwork {
	return contract.NodeNetwork{
		ServerID: "0123456789abcdef01234567", ID: "6104105e6b7c9a0012345678", VLAN: 100, Member: true,
		IPs: []netip.Addr{netip.MustParseAddr("192.0.2.2")},
		Blocks: []contract.NetworkBlock{{CIDR: netip.MustParsePrefix("192.0.2.0/28"),
			Gateway: netip.MustParseAddr("192.0.2.1")}},
	}
}

// runHarness runs a test in virtual time in which a Reconciler starts on a bare server.
func runHarness(t *testing.T, prepare func(*harness), test func(*harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &harness{t: t, kernel: newModel(), expected: check.Expected{Published: true, Network: network()}}
		h.kernel.add(Link{Link: check.Link{Name: "bond0", Type: "bond", MTU: 9000, Up: true, LowerUp: true,
			OperState: "up", MAC: "02:00:00:00:00:01"}})
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
		config := Config{
			Expected: func() check.Expected { return h.expected }, Kernel: h.kernel,
			BlockedReason: func() string { return h.blockedReason },
			Watch:         func(ctx context.Context, _ func()) error { <-ctx.Done(); return nil },
			Record:        func(e Event) { h.events = append(h.events, e) },
		}
		h.Reconciler = New(config)
		if prepare != nil {
			prepare(h)
		}
		ended := make(chan error, 1)
		go func() { ended <- h.Run(ctx) }()
		synctest.Wait()
		test(h)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run ended with %v after its context, want nil", err)
		}
	})
}

// wake requests a reconciliation and waits for its result.
func (h *harness) wake() {
	h.kernel.handOver()
	h.Wake()
	h.pass(debounce)
}

func (h *harness) pass(d time.Duration) {
	h.kernel.handOver()
	time.Sleep(d)
	synctest.Wait()
}

func (h *harness) link() *Link {
	for i := range h.kernel.links {
		if h.kernel.links[i].Name == "bond0.100" {
			return &h.kernel.links[i]
		}
	}
	return nil
}

func (h *harness) last() Event {
	if len(h.events) == 0 {
		return Event{}
	}
	return h.events[len(h.events)-1]
}

func TestMakesAndRecords(t *testing.T) {
	runHarness(t, nil, func(h *harness) {
		if h.link() == nil || h.Status() != (Status{Interface: "bond0.100", Made: true}) {
			t.Fatalf("status %+v, links %+v", h.Status(), h.kernel.links)
		}
		e := h.last()
		if len(h.events) != 1 || e.Warning || e.Reason != ReasonConfigured ||
			!strings.Contains(e.Message, "added 192.0.2.2/28 to bond0.100") {
			t.Errorf("events %+v", h.events)
		}
		changes := h.kernel.changes
		h.pass(10 * Interval)
		if h.kernel.changes != changes || len(h.events) != 1 {
			t.Errorf("%d changes and %d events without a reason", h.kernel.changes-changes, len(h.events)-1)
		}
	})
}

// TestFindsSilentChanges: a change that the kernel does not report is found within the interval.
func TestFindsSilentChanges(t *testing.T) {
	runHarness(t, nil, func(h *harness) {
		h.pass(time.Second)
		h.link().Settings[ownership.ARPIgnore] = 8
		h.pass(Interval)
		if got := h.link().Settings[ownership.ARPIgnore]; got != 1 || h.last().Reason != ReasonRepaired {
			t.Errorf("arp_ignore is %d, last event %+v", got, h.last())
		}
	})
}

// TestNothingPublished: missing or unreadable annotations change nothing.
func TestNothingPublished(t *testing.T) {
	for name, e := range map[string]check.Expected{
		"not published": {}, "not readable": {Unreadable: "annotation phoenixnap.com/public-networks: x"},
	} {
		t.Run(name, func(t *testing.T) {
			runHarness(t, nil, func(h *harness) {
				h.expected = e
				h.kernel.addresses = nil
				changes := h.kernel.changes
				h.wake()
				h.pass(time.Hour)
				if h.kernel.changes != changes || h.link() == nil {
					t.Errorf("%d changes", h.kernel.changes-changes)
				}
				if h.Status().Problem != e.Unreadable {
					t.Errorf("status %+v", h.Status())
				}
			})
		})
	}
}

func TestAfterTheMembership(t *testing.T) {
	runHarness(t, nil, func(h *harness) {
		h.expected.Network.Member = false
		h.wake()
		h.pass(Grace - time.Second)
		if h.link() == nil {
			t.Fatal("the interface was deleted within the grace period")
		}
		h.expected.Network.Member = true // the API had failed
		h.wake()
		h.expected.Network.Member = false
		h.wake()
		h.pass(Grace - time.Second)
		if h.link() == nil {
			t.Fatal("the grace period did not start again")
		}
		h.pass(2 * time.Second)
		if h.link() != nil || h.last().Reason != ReasonReleased || h.Status() != (Status{}) {
			t.Errorf("status %+v, last event %+v", h.Status(), h.last())
		}
	})
}

func TestBlocked(t *testing.T) {
	runHarness(t, func(h *harness) { h.blockedReason = "this machine is another server" }, func(h *harness) {
		if h.link() != nil ||
			h.last() != (Event{Warning: true, Reason: ReasonNotConfigured, Message: "this machine is another server"}) {
			t.Errorf("events %+v", h.events)
		}
		h.wake()
		h.wake()
		if len(h.events) != 1 {
			t.Errorf("%d events, want 1", len(h.events))
		}
		h.blockedReason = ""
		h.wake()
		if h.link() == nil || h.Status().Problem != "" {
			t.Errorf("status %+v", h.Status())
		}
	})
}

// TestWaitsForTheUplink: while bond0 is rebuilt, another interface that looks like an uplink is not used.
func TestWaitsForTheUplink(t *testing.T) {
	runHarness(t, nil, func(h *harness) {
		h.kernel.remove(1)
		other := h.kernel.add(Link{Link: check.Link{Name: "bond7", Type: "bond", MTU: 9000, Up: true}}).Index
		h.wake()
		h.pass(uplinkDelay - time.Second)
		if len(h.kernel.links) != 1 {
			t.Fatalf("links %+v", h.kernel.links)
		}
		h.kernel.remove(other)
		h.kernel.add(Link{Link: check.Link{Name: "bond0", Type: "bond", MTU: 9000, Up: true}})
		h.wake()
		if h.link() == nil {
			t.Fatal("the interface was not made on bond0 when bond0 was back")
		}
		h.kernel.remove(h.link().Parent)
		h.kernel.add(Link{Link: check.Link{Name: "bond7", Type: "bond", MTU: 9000, Up: true}})
		h.wake()
		h.pass(uplinkDelay)
		if got := h.Status().Interface; got != "bond7.100" {
			t.Errorf("the interface is %q after bond7 stayed, want bond7.100", got)
		}
	})
}

// TestRetries: a failure is recorded once and retried, at growing intervals, until it works.
func TestRetries(t *testing.T) {
	runHarness(t, func(h *harness) { h.kernel.left = 0 }, func(h *harness) {
		if e := h.last(); !e.Warning || !strings.Contains(e.Message, errKilled.Error()) {
			t.Fatalf("events %+v", h.events)
		}
		h.pass(time.Minute)
		if len(h.events) != 1 {
			t.Errorf("%d events, want 1", len(h.events))
		}
		h.kernel.left = -1
		h.pass(Interval)
		if h.link() == nil || h.Status().Problem != "" {
			t.Errorf("status %+v", h.Status())
		}
	})
}

// TestDispute: when another program undoes everything at once, the agent does not work without a pause.
func TestDispute(t *testing.T) {
	runHarness(t, nil, func(h *harness) {
		began := h.kernel.changes
		disputed := false
		for range 600 {
			h.kernel.addresses = nil
			h.wake()
			disputed = disputed || h.last().Reason == ReasonDisputed
		}
		// A pass adds one address and writes nothing else; ten minutes of it would be 600 without a bound.
		if did := h.kernel.changes - began; did > 2*budgetSize || !disputed {
			t.Errorf("%d changes in a minute, dispute reported: %t", did, disputed)
		}
		h.pass(2 * budgetWindow)
		if h.Status().Problem != "" || len(h.kernel.addresses) != 1 {
			t.Errorf("afterwards: status %+v, addresses %v", h.Status(), h.kernel.addresses)
		}
	})
}

// wire answers for addresses.
type wire map[netip.Addr]string

func (w wire) Ask(_ context.Context, _ string, questions []arp.Question) ([]arp.Answer, error) {
	if w == nil {
		return nil, errors.New("network is down")
	}
	answers := make([]arp.Answer, len(questions))
	for i, q := range questions {
		if mac, taken := w[q.Target]; taken && q.Source.IsUnspecified() {
			answers[i].MACs = []string{mac}
		}
	}
	return answers, nil
}

func TestProbesBeforeItAdds(t *testing.T) {
	own := netip.MustParseAddr("192.0.2.2")
	for name, tc := range map[string]struct {
		wire  wire
		added bool
	}{
		"free": {wire{}, true}, "taken": {wire{own: "02:00:00:00:00:77"}, false}, "no carrier": {nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			runHarness(t, func(h *harness) { h.Prober = tc.wire }, func(h *harness) {
				if added := len(h.kernel.addresses) == 1; added != tc.added {
					t.Errorf("addresses %v", h.kernel.addresses)
				}
				if reported := strings.Contains(h.Status().Problem, "02:00:00:00:00:77"); reported == tc.added {
					t.Errorf("status %+v", h.Status())
				}
			})
		})
	}
}

func TestLinkLocal(t *testing.T) {
	low := netip.MustParseAddr("169.254.1.0")
	high := netip.MustParseAddr("169.254.254.255")
	seen := map[netip.Addr]bool{}
	for i := range 2000 {
		a := LinkLocal(strings.Repeat("x", i))
		if a.Less(low) || high.Less(a) {
			t.Fatalf("%s is outside of the range that RFC 3927 leaves to hosts", a)
		}
		seen[a] = true
	}
	if len(seen) < 1900 {
		t.Errorf("2000 servers have %d addresses", len(seen))
	}
}

func TestNameFor(t *testing.T) {
	for uplink, want := range map[string]string{"bond0": "bond0.4094", "enp65s0f0": "enp65s0f0.4094",
		"enp65s0f0np": "vlan4094"} {
		if got := nameFor(uplink, 4094); got != want {
			t.Errorf("on %s the interface is called %s, want %s", uplink, got, want)
		}
	}
}

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

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/configure/ownership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/wire/arp"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// life is a keeper's life on a model of a kernel, in a bubble of time.
type life struct {
	t         *testing.T
	kernel    *model
	expected  check.Expected
	hindrance string
	events    []Event
	*Reconciler
}

func network() contract.NodeNetwork {
	return contract.NodeNetwork{
		ServerID: "0123456789abcdef01234567", NetworkID: "6104105e6b7c9a0012345678", VLAN: 100, Member: true,
		IPs:    []netip.Addr{netip.MustParseAddr("192.0.2.2")},
		Blocks: []contract.NetworkBlock{{CIDR: netip.MustParsePrefix("192.0.2.0/28"), Gateway: netip.MustParseAddr("192.0.2.1")}},
	}
}

// live runs tell in a bubble in which a keeper begins to run on a bare server.
func live(t *testing.T, prepare func(*life), tell func(*life)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &life{t: t, kernel: newModel(), expected: check.Expected{Published: true, Network: network()}}
		l.kernel.add(Link{Link: check.Link{Name: "bond0", Type: "bond", MTU: 9000, Up: true, LowerUp: true, OperState: "up", MAC: "02:00:00:00:00:01"}})
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
		config := Config{
			Expected: func() check.Expected { return l.expected }, Kernel: l.kernel, Hindrance: func() string { return l.hindrance },
			Watch: func(ctx context.Context, _ func()) error { <-ctx.Done(); return nil },
			Tell:  func(e Event) { l.events = append(l.events, e) },
		}
		l.Reconciler = New(config)
		if prepare != nil {
			prepare(l)
		}
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		synctest.Wait()
		tell(l)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run ended with %v after its context, want nil", err)
		}
	})
}

// wake calls for a look and waits for what comes of it.
func (l *life) wake() {
	l.kernel.handOver()
	l.Wake()
	l.pass(debounce)
}

func (l *life) pass(d time.Duration) {
	l.kernel.handOver()
	time.Sleep(d)
	synctest.Wait()
}

func (l *life) link() *Link {
	for i := range l.kernel.links {
		if l.kernel.links[i].Name == "bond0.100" {
			return &l.kernel.links[i]
		}
	}
	return nil
}

func (l *life) last() Event {
	if len(l.events) == 0 {
		return Event{}
	}
	return l.events[len(l.events)-1]
}

func TestKeeperMakesAndTells(t *testing.T) {
	live(t, nil, func(l *life) {
		if l.link() == nil || l.Status() != (Status{Interface: "bond0.100", Made: true}) {
			t.Fatalf("status %+v, links %+v", l.Status(), l.kernel.links)
		}
		if e := l.last(); len(l.events) != 1 || e.Warning || e.Reason != ReasonConfigured || !strings.Contains(e.Message, "put 192.0.2.2/28 on bond0.100") {
			t.Errorf("events %+v", l.events)
		}
		changes := l.kernel.changes
		l.pass(10 * Interval)
		if l.kernel.changes != changes || len(l.events) != 1 {
			t.Errorf("%d changes and %d events while nothing happened", l.kernel.changes-changes, len(l.events)-1)
		}
	})
}

// TestKeeperLooksByItself: a change of which the kernel says nothing is found within the interval.
func TestKeeperLooksByItself(t *testing.T) {
	live(t, nil, func(l *life) {
		l.pass(time.Second)
		l.link().Settings[ownership.ARPIgnore] = 8
		l.pass(Interval)
		if got := l.link().Settings[ownership.ARPIgnore]; got != 1 || l.last().Reason != ReasonRepaired {
			t.Errorf("arp_ignore is %d, last event %+v", got, l.last())
		}
	})
}

// TestKeeperWithoutWord: what the controller does not say, or what cannot be read, changes nothing.
func TestKeeperWithoutWord(t *testing.T) {
	for name, e := range map[string]check.Expected{
		"not published": {}, "not readable": {Unreadable: "annotation phoenixnap.com/public-network-vlan: x"},
	} {
		t.Run(name, func(t *testing.T) {
			live(t, nil, func(l *life) {
				l.expected = e
				l.kernel.addresses = nil
				changes := l.kernel.changes
				l.wake()
				l.pass(time.Hour)
				if l.kernel.changes != changes || l.link() == nil {
					t.Errorf("%d changes", l.kernel.changes-changes)
				}
				if l.Status().Problem != e.Unreadable {
					t.Errorf("status %+v", l.Status())
				}
			})
		})
	}
}

func TestKeeperAfterTheMembership(t *testing.T) {
	live(t, nil, func(l *life) {
		l.expected.Network.Member = false
		l.wake()
		l.pass(Grace - time.Second)
		if l.link() == nil {
			t.Fatal("the interface went within the grace")
		}
		l.expected.Network.Member = true // the API had erred
		l.wake()
		l.expected.Network.Member = false
		l.wake()
		l.pass(Grace - time.Second)
		if l.link() == nil {
			t.Fatal("the grace did not begin anew")
		}
		l.pass(2 * time.Second)
		if l.link() != nil || l.last().Reason != ReasonReleased || l.Status() != (Status{}) {
			t.Errorf("status %+v, last event %+v", l.Status(), l.last())
		}
	})
}

func TestKeeperIsHindered(t *testing.T) {
	live(t, func(l *life) { l.hindrance = "this machine is another server" }, func(l *life) {
		if l.link() != nil || l.last() != (Event{Warning: true, Reason: ReasonNotConfigured, Message: "this machine is another server"}) {
			t.Errorf("events %+v", l.events)
		}
		l.wake()
		l.wake()
		if len(l.events) != 1 {
			t.Errorf("told %d times", len(l.events))
		}
		l.hindrance = ""
		l.wake()
		if l.link() == nil || l.Status().Problem != "" {
			t.Errorf("status %+v", l.Status())
		}
	})
}

// TestKeeperWaitsForTheUplink: while bond0 is made anew, another interface that looks like an uplink is not believed.
func TestKeeperWaitsForTheUplink(t *testing.T) {
	live(t, nil, func(l *life) {
		l.kernel.remove(1)
		other := l.kernel.add(Link{Link: check.Link{Name: "bond7", Type: "bond", MTU: 9000, Up: true}}).Index
		l.wake()
		l.pass(settle - time.Second)
		if len(l.kernel.links) != 1 {
			t.Fatalf("links %+v", l.kernel.links)
		}
		l.kernel.remove(other)
		l.kernel.add(Link{Link: check.Link{Name: "bond0", Type: "bond", MTU: 9000, Up: true}})
		l.wake()
		if l.link() == nil {
			t.Fatal("the interface was not made on bond0 when that was back")
		}
		l.kernel.remove(l.link().Parent)
		l.kernel.add(Link{Link: check.Link{Name: "bond7", Type: "bond", MTU: 9000, Up: true}})
		l.wake()
		l.pass(settle)
		if got := l.Status().Interface; got != "bond7.100" {
			t.Errorf("the interface is %q after bond7 stayed, want bond7.100", got)
		}
	})
}

// TestKeeperRetries: a failure is told once and tried again, ever more seldom, until it works.
func TestKeeperRetries(t *testing.T) {
	live(t, func(l *life) { l.kernel.left = 0 }, func(l *life) {
		if e := l.last(); !e.Warning || !strings.Contains(e.Message, errKilled.Error()) {
			t.Fatalf("events %+v", l.events)
		}
		l.pass(time.Minute)
		if len(l.events) != 1 {
			t.Errorf("told %d times", len(l.events))
		}
		l.kernel.left = -1
		l.pass(Interval)
		if l.link() == nil || l.Status().Problem != "" {
			t.Errorf("status %+v", l.Status())
		}
	})
}

// TestKeeperInADispute: where somebody undoes everything at once, the agent does not work without a pause.
func TestKeeperInADispute(t *testing.T) {
	live(t, nil, func(l *life) {
		began, disputed := l.kernel.changes, false
		for range 600 {
			l.kernel.addresses = nil
			l.wake()
			disputed = disputed || l.last().Reason == ReasonDisputed
		}
		// A pass adds one address and writes nothing else; ten minutes of it would be 600 without a bound.
		if did := l.kernel.changes - began; did > 2*budgetSize || !disputed {
			t.Errorf("%d changes in a minute, dispute told: %t", did, disputed)
		}
		l.pass(2 * budgetWindow)
		if l.Status().Problem != "" || len(l.kernel.addresses) != 1 {
			t.Errorf("afterwards: status %+v, addresses %v", l.Status(), l.kernel.addresses)
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

func TestKeeperAsksBeforeItAdds(t *testing.T) {
	own := netip.MustParseAddr("192.0.2.2")
	for name, tc := range map[string]struct {
		wire  wire
		added bool
	}{
		"free": {wire{}, true}, "taken": {wire{own: "02:00:00:00:00:77"}, false}, "no carrier": {nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			live(t, func(l *life) { l.Asker = tc.wire }, func(l *life) {
				if added := len(l.kernel.addresses) == 1; added != tc.added {
					t.Errorf("addresses %v", l.kernel.addresses)
				}
				if told := strings.Contains(l.Status().Problem, "02:00:00:00:00:77"); told == tc.added {
					t.Errorf("status %+v", l.Status())
				}
			})
		})
	}
}

func TestLinkLocal(t *testing.T) {
	low, high := netip.MustParseAddr("169.254.1.0"), netip.MustParseAddr("169.254.254.255")
	seen := map[netip.Addr]bool{}
	for i := range 2000 {
		a := LinkLocal(strings.Repeat("x", i))
		if a.Less(low) || high.Less(a) {
			t.Fatalf("%s lies outside of what RFC 3927 leaves to hosts", a)
		}
		seen[a] = true
	}
	if len(seen) < 1900 {
		t.Errorf("2000 servers have %d addresses", len(seen))
	}
}

func TestNameFor(t *testing.T) {
	for uplink, want := range map[string]string{"bond0": "bond0.4094", "enp65s0f0": "enp65s0f0.4094", "enp65s0f0np": "vlan4094"} {
		if got := nameFor(uplink, 4094); got != want {
			t.Errorf("on %s the interface is called %s, want %s", uplink, got, want)
		}
	}
}

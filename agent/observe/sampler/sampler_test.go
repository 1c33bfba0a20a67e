package sampler

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/arp"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// machine is a server whose VLAN interface and gateway the test breaks and repairs.
type machine struct {
	mu      sync.Mutex
	up      bool
	silent  bool
	unread  bool // the Node
	asks    int
	samples []Sample
	changed func()
}

func (m *machine) Read(context.Context) (check.Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	state := "down"
	if m.up {
		state = "up"
	}
	return check.Snapshot{
		Links: []check.Link{
			{Index: 1, Name: "bond0", Type: "bond", Up: true, LowerUp: true, OperState: "up",
				Bond: &check.Bond{Mode: "active-backup"}},
			{Index: 2, Name: "bond0.100", Type: "vlan", MTU: 1500, Up: m.up, LowerUp: m.up, OperState: state, Parent: 1,
				VLAN: &check.VLAN{ID: 100, Protocol: "802.1q"}},
		},
		Addresses: []check.Address{{LinkIndex: 2, Prefix: netip.MustParsePrefix("192.0.2.2/28")}},
		Settings:  map[string]check.Settings{"all": {}, "bond0.100": {"rp_filter": 2}},
		IPForward: true,
	}, nil
}

func (m *machine) Routes(check.Snapshot, []check.RouteQuestion) []check.RouteAnswer { return nil }

func (m *machine) Ask(_ context.Context, _ string, questions []arp.Question) ([]arp.Answer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(questions) > 0 {
		m.asks++
	}
	answers := make([]arp.Answer, len(questions))
	for i, q := range questions {
		if q.Source.IsUnspecified() || m.silent {
			continue
		}
		answers[i] = arp.Answer{MACs: []string{"00:1c:73:00:00:01"}, Replied: true}
	}
	return answers, nil
}

func (m *machine) Watch(ctx context.Context, changed func()) error {
	m.mu.Lock()
	m.changed = changed
	m.mu.Unlock()
	<-ctx.Done()
	return nil
}

func (m *machine) record(s Sample) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.samples = append(m.samples, s)
}

// set changes the machine; with event the kernel reports the change.
func (m *machine) set(event bool, change func()) {
	m.mu.Lock()
	change()
	changed := m.changed
	m.mu.Unlock()
	if event {
		changed()
	}
}

func (m *machine) verdict() check.Outcome {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.samples[len(m.samples)-1].Report.Outcome()
}

func (m *machine) counts() (samples, asks int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.samples), m.asks
}

func expectation() check.Expected {
	return check.Expected{Published: true, Network: contract.NodeNetwork{
		ID: "n1", VLAN: 100, Member: true, IPs: []netip.Addr{netip.MustParseAddr("192.0.2.2")},
		Blocks: []contract.NetworkBlock{{CIDR: netip.MustParsePrefix("192.0.2.0/28"),
			Gateway: netip.MustParseAddr("192.0.2.1")}},
	}}
}

func (m *machine) expected() check.Expected {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unread {
		return check.Expected{Unreached: true}
	}
	return expectation()
}

func run(t *testing.T, test func(t *testing.T, m *machine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := &machine{up: true}
		sampler := New(Config{
			Reader: m, Prober: m, Expected: m.expected, Watch: m.Watch, Interval: 10 * time.Second, Record: m.record,
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- sampler.Run(ctx) }()
		synctest.Wait()
		test(t, m)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v after its context ended, want nil", err)
		}
	})
}

func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestLinkFaultShowsAtOnceAndRecoversAfterTwoSamples(t *testing.T) {
	run(t, func(t *testing.T, m *machine) {
		if v := m.verdict(); v.Status != check.OK {
			t.Fatalf("first sample: %s %s", v.Status, v.Message)
		}
		wait(time.Second)
		m.set(true, func() { m.up = false })
		wait(eventDebounce)
		if v := m.verdict(); v.Status != check.Fail || v.Reason != "VLANInterfaceDown" {
			t.Errorf("%s after the event: %s %s, want the failure", eventDebounce, v.Status, v.Reason)
		}
		wait(3 * time.Second)
		m.set(true, func() { m.up = true })
		wait(eventDebounce)
		if v := m.verdict(); v.Status != check.Fail {
			t.Errorf("one good sample made it %s", v.Status)
		}
		wait(confirm)
		if v := m.verdict(); v.Status != check.OK {
			t.Errorf("two good samples: %s %s, want OK", v.Status, v.Message)
		}
	})
}

// TestReadingTheNodeIsNoRecovery: the first sample since the Node was read counts.
func TestReadingTheNodeIsNoRecovery(t *testing.T) {
	run(t, func(t *testing.T, m *machine) {
		wait(time.Second)
		m.set(true, func() { m.unread = true })
		wait(eventDebounce)
		if v := m.verdict(); v.Reason != check.ReasonUnreached {
			t.Fatalf("before the Node was read: %s %s", v.Status, v.Reason)
		}
		wait(time.Second)
		m.set(true, func() { m.unread = false })
		wait(eventDebounce)
		if v := m.verdict(); v.Status != check.OK {
			t.Errorf("the first sample since then: %s %s, want OK", v.Status, v.Reason)
		}
	})
}

func TestSilentGatewayMustBeSilentTwice(t *testing.T) {
	run(t, func(t *testing.T, m *machine) {
		m.set(false, func() { m.silent = true })
		wait(10 * time.Second)
		if v := m.verdict(); v.Status != check.OK {
			t.Errorf("one silent sample made it %s %s", v.Status, v.Reason)
		}
		wait(confirm)
		if v := m.verdict(); v.Status != check.Fail || v.Reason != "GatewaySilent" {
			t.Errorf("two silent samples: %s %s, want the failure", v.Status, v.Reason)
		}
	})
}

func TestLostReplyIsNoFault(t *testing.T) {
	run(t, func(t *testing.T, m *machine) {
		m.set(false, func() { m.silent = true })
		wait(10*time.Second + confirm/2)
		m.set(false, func() { m.silent = false })
		wait(time.Minute)
		m.mu.Lock()
		defer m.mu.Unlock()
		for i, s := range m.samples {
			if v := s.Report.Outcome(); v.Status != check.OK {
				t.Errorf("sample %d: %s %s", i, v.Status, v.Reason)
			}
		}
	})
}

func TestEventsOfPodsAskTheWireRarely(t *testing.T) {
	run(t, func(t *testing.T, m *machine) {
		samplesBefore, asksBefore := m.counts()
		for range 100 {
			m.set(true, func() {})
			wait(50 * time.Millisecond)
		}
		samples, asks := m.counts()
		if samples-samplesBefore > 11 || asks-asksBefore > 2 {
			t.Errorf("100 events in 5 s made %d samples and %d questions", samples-samplesBefore, asks-asksBefore)
		}
	})
}

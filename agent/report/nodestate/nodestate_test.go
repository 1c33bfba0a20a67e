package nodestate

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/sampler"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/vip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// fake takes what a NodeState reports.
type fake struct {
	outcomes map[corev1.NodeConditionType]check.Outcome
	identity *contract.Identity
	blocks   []contract.NetworkBlock
	awaited  bool
	ready    bool
	sampled  int
}

func (f *fake) Outcome(condition corev1.NodeConditionType, o check.Outcome) {
	f.outcomes[condition] = o
}
func (f *fake) Identity(id contract.Identity)                                  { f.identity = &id }
func (f *fake) Sample(check.Report, check.Snapshot, check.Expected, time.Time) {}
func (f *fake) Addresses([]check.Finding)                                      {}
func (f *fake) Sampled(time.Time)                                              {}
func (f *fake) SetReady()                                                      { f.ready = true }

// newNodeState returns a NodeState whose Services the test may set, and counts changes of the expectation.
func newNodeState(services *[]*corev1.Service) (s *NodeState, b *fake, changes *int) {
	b = &fake{outcomes: map[corev1.NodeConditionType]check.Outcome{}}
	changes = new(int)
	s = New(Config{Reporter: b, Metrics: b, Health: b,
		Services:      func() ([]*corev1.Service, bool) { return *services, *services != nil },
		Blocks:        func(string) ([]contract.NetworkBlock, bool) { return b.blocks, !b.awaited },
		OnExpectation: func() { *changes++ }, OnSample: func() { b.sampled++ }})
	return s, b, changes
}

func sample(status check.Status, reason string) sampler.Sample {
	return sampler.Sample{
		Report: check.Report{Interface: "bond0.100", Findings: []check.Finding{
			{ID: check.VLANUp, Status: status, Severity: check.Error, Reason: reason, Cause: "it is so"}}},
		Snapshot: check.Snapshot{Hostname: "srv-a", Links: []check.Link{{Index: 1, Name: "bond0.100", Type: "vlan"}},
			Addresses: []check.Address{
				{LinkIndex: 1, Prefix: netip.MustParsePrefix("192.0.2.2/28")},
				{LinkIndex: 1, Prefix: netip.MustParsePrefix("203.0.113.3/29")},
			}},
	}
}

func TestSampleBecomesAnOutcome(t *testing.T) {
	for name, tc := range map[string]struct {
		status, want check.Status
		reason       string
	}{
		"healthy": {check.OK, check.OK, check.ReasonReady},
		"warned":  {check.Warn, check.OK, check.ReasonReady},
		"failed":  {check.Fail, check.Fail, "VLANInterfaceDown"},
		"unknown": {check.Unknown, check.Unknown, "VLANInterfaceDown"},
	} {
		t.Run(name, func(t *testing.T) {
			s, b, _ := newNodeState(&[]*corev1.Service{})
			s.Sample(sample(tc.status, "VLANInterfaceDown"))
			if o := b.outcomes[contract.ConditionVLANReady]; o.Status != tc.want || o.Reason != tc.reason {
				t.Errorf("the outcome is %+v, want %s %s", o, tc.want, tc.reason)
			}
		})
	}
}

// TestTheConditionNamesTheServer, once, so that who reads it knows which machine to look for in phoenixNAP's portal.
func TestTheConditionNamesTheServer(t *testing.T) {
	s, b, _ := newNodeState(&[]*corev1.Service{})
	taken := sample(check.Fail, "VLANInterfaceDown")
	taken.Report.Server = "0123456789abcdef01234567"
	s.Sample(taken)
	if c := b.outcomes[contract.ConditionVLANReady]; strings.Count(c.Message, "0123456789abcdef01234567") != 1 {
		t.Errorf("the message is %q, want the server in it once", c.Message)
	}
}

// TestSampleFromBeforeTheNodeWasRead: on a busy machine the first sample may last until after the Node was read. It
// says nothing of what the controller has published, so it leaves the Node as it is, and the agent cannot continue in
// place of an earlier one.
func TestSampleFromBeforeTheNodeWasRead(t *testing.T) {
	s, b, changes := newNodeState(&[]*corev1.Service{})
	early := sample(check.Unknown, check.ReasonWaiting)
	early.Expected = s.Expected()
	s.Expect(check.Expected{})
	s.Sample(early)
	if len(b.outcomes) != 0 || b.identity != nil {
		t.Errorf("reported %v and %v, want nothing", b.outcomes, b.identity)
	}
	if _, sampled := s.View(); sampled || b.ready || b.sampled != 0 {
		t.Errorf("a sample was taken: %t, ready %t, reported %d times; want none", sampled, b.ready, b.sampled)
	}
	if *changes != 1 {
		t.Errorf("%d changes of the expectation, want 1: a Node without a network is news, too", *changes)
	}
	late := sample(check.Unknown, check.ReasonWaiting)
	late.Expected = s.Expected()
	s.Sample(late)
	if _, sampled := s.View(); !sampled || !b.ready || b.sampled != 1 {
		t.Errorf("a sample was taken: %t, ready %t, reported %d times; want one", sampled, b.ready, b.sampled)
	}
	if c := b.outcomes[contract.ConditionVLANReady]; c.Reason != check.ReasonWaiting {
		t.Errorf("condition is %+v, want that the controller has published nothing", c)
	}
}

// TestUnconfirmedChangesNothing: an agent that restarts while the gateway is silent leaves the condition as it stands.
func TestUnconfirmedChangesNothing(t *testing.T) {
	s, b, _ := newNodeState(&[]*corev1.Service{})
	s.Sample(sample(check.Unknown, sampler.ReasonConfirming))
	s.Addresses(nil, check.Outcome{Status: check.Unknown, Reason: vip.ReasonConfirming})
	if len(b.outcomes) != 0 {
		t.Errorf("reported %v, want nothing", b.outcomes)
	}
}

func TestIdentityWaitsForServices(t *testing.T) {
	var services []*corev1.Service
	s, b, _ := newNodeState(&services)
	s.Sample(sample(check.OK, ""))
	if b.identity != nil {
		t.Errorf("reported %+v before the Services are known", b.identity)
	}
	services = []*corev1.Service{{
		ObjectMeta: metav1.ObjectMeta{Name: "web",
			Annotations: map[string]string{contract.ServiceIPAddress: "203.0.113.3"}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
	}}
	s.Sample(sample(check.OK, ""))
	if b.identity == nil {
		t.Fatal("reported nothing")
	}
	if diff := cmp.Diff([]netip.Addr{netip.MustParseAddr("192.0.2.2")}, b.identity.Addresses,
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	if got := s.Expected(); len(got.Virtual) != 1 {
		t.Errorf("expects %+v, want the Service's address as virtual", got)
	}
}

func TestOnlyWhatIsPublishedChangesTheExpectation(t *testing.T) {
	s, _, changes := newNodeState(&[]*corev1.Service{})
	published := func() check.Expected {
		return check.Expected{Published: true, Uplink: "bond7", Network: contract.NodeNetwork{ID: "n1",
			VLAN: 100, IPs: []netip.Addr{netip.MustParseAddr("192.0.2.2")}}}
	}
	s.Expect(published())
	s.Expect(published())
	if *changes != 1 {
		t.Errorf("%d changes, want 1", *changes)
	}
	if e := s.Expected(); !e.Published || e.Network.VLAN != 100 || e.Uplink != "bond7" {
		t.Errorf("expects %+v, want VLAN 100 on the named uplink", e)
	}
	s.Expect(check.Expected{})
	if *changes != 2 || s.Expected().Published {
		t.Errorf("%d changes, published %t after the Node was deleted; want 2, false", *changes, s.Expected().Published)
	}
}

// TestBlocks: those around the node's own addresses, which stand on the Node, and those of IPBlocks, for which a node
// that starts waits.
func TestBlocks(t *testing.T) {
	s, b, _ := newNodeState(&[]*corev1.Service{})
	own := contract.NetworkBlock{CIDR: netip.MustParsePrefix("192.0.2.0/28"), Gateway: netip.MustParseAddr("192.0.2.1")}
	served := contract.NetworkBlock{CIDR: netip.MustParsePrefix("203.0.113.0/29"),
		Gateway: netip.MustParseAddr("203.0.113.1")}
	published := contract.NodeNetwork{ID: "n1", VLAN: 100, Blocks: []contract.NetworkBlock{own},
		IPs: []netip.Addr{netip.MustParseAddr("192.0.2.2")}}
	s.Expect(check.Expected{Published: true, Network: published})
	b.awaited = true
	if !s.Expected().Unreached {
		t.Error("what to expect is known before the IPBlocks are")
	}
	b.awaited = false
	b.blocks = []contract.NetworkBlock{served, own}
	if e := s.Expected(); e.Unreached || !slices.Equal(e.Network.Blocks, []contract.NetworkBlock{own, served}) {
		t.Errorf("expects %+v, want both blocks once", e)
	}
}

func TestVLANInterface(t *testing.T) {
	s, b, _ := newNodeState(&[]*corev1.Service{})
	if s.VLANInterface() != "" {
		t.Error("the interface is known before a sample was taken")
	}
	s.Sample(sample(check.OK, ""))
	if b.sampled != 1 || s.VLANInterface() != "bond0.100" {
		t.Errorf("%d samples reported, interface %q", b.sampled, s.VLANInterface())
	}
}

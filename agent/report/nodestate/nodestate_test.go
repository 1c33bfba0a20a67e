package nodestate

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/sampler"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/conditions"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/vip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// fake takes what a NodeState reports.
type fake struct {
	node        *corev1.Node
	conditions  map[corev1.NodeConditionType]conditions.Condition
	annotations map[string]string
	ready       bool
	sampled     int
}

func (f *fake) Observe(node *corev1.Node)                                      { f.node = node }
func (f *fake) Set(c conditions.Condition)                                     { f.conditions[c.Type] = c }
func (f *fake) Annotate(key, value string)                                     { f.annotations[key] = value }
func (f *fake) Sample(check.Report, check.Snapshot, check.Expected, time.Time) {}
func (f *fake) Addresses([]check.Finding)                                      {}
func (f *fake) Sampled(time.Time)                                              {}
func (f *fake) SetReady()                                                      { f.ready = true }

// newNodeState returns a NodeState whose Services the test may set, and counts changes of the expectation.
func newNodeState(services *[]*corev1.Service) (s *NodeState, b *fake, changes *int) {
	b = &fake{conditions: map[corev1.NodeConditionType]conditions.Condition{}, annotations: map[string]string{}}
	changes = new(int)
	s = New(Config{Publisher: b, Metrics: b, Health: b, Uplink: "bond7",
		Services:      func() ([]*corev1.Service, bool) { return *services, *services != nil },
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

func TestSampleBecomesACondition(t *testing.T) {
	for name, tc := range map[string]struct {
		status check.Status
		want   corev1.ConditionStatus
		reason string
	}{
		"healthy": {check.OK, corev1.ConditionTrue, check.ReasonReady},
		"warned":  {check.Warn, corev1.ConditionTrue, check.ReasonReady},
		"failed":  {check.Fail, corev1.ConditionFalse, "VLANInterfaceDown"},
		"unknown": {check.Unknown, corev1.ConditionUnknown, "VLANInterfaceDown"},
	} {
		t.Run(name, func(t *testing.T) {
			s, b, _ := newNodeState(&[]*corev1.Service{})
			s.Sample(sample(tc.status, "VLANInterfaceDown"))
			if c := b.conditions[contract.ConditionVLANReady]; c.Status != tc.want || c.Reason != tc.reason {
				t.Errorf("condition is %+v, want %s %s", c, tc.want, tc.reason)
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
	if c := b.conditions[contract.ConditionVLANReady]; strings.Count(c.Message, "0123456789abcdef01234567") != 1 {
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
	s.ObserveNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "srv-a"}})
	s.Sample(early)
	if len(b.conditions) != 0 || len(b.annotations) != 0 {
		t.Errorf("published %v and %v, want nothing", b.conditions, b.annotations)
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
	if c := b.conditions[contract.ConditionVLANReady]; c.Reason != check.ReasonWaiting {
		t.Errorf("condition is %+v, want that the controller has published nothing", c)
	}
}

// TestUnconfirmedChangesNothing: an agent that restarts while the gateway is silent leaves the condition as it stands.
func TestUnconfirmedChangesNothing(t *testing.T) {
	s, b, _ := newNodeState(&[]*corev1.Service{})
	s.Sample(sample(check.Unknown, sampler.ReasonConfirming))
	s.Addresses(nil, check.Outcome{Status: check.Unknown, Reason: vip.ReasonConfirming})
	if len(b.conditions) != 0 {
		t.Errorf("published %v, want nothing", b.conditions)
	}
}

func TestIdentityWaitsForServices(t *testing.T) {
	var services []*corev1.Service
	s, b, _ := newNodeState(&services)
	s.Sample(sample(check.OK, ""))
	if got := b.annotations[contract.NodeReportedIdentity]; got != "" {
		t.Errorf("reported %s before the Services are known", got)
	}
	services = []*corev1.Service{{
		ObjectMeta: metav1.ObjectMeta{Name: "web",
			Annotations: map[string]string{contract.ServiceIPAddress: "203.0.113.3"}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
	}}
	s.Sample(sample(check.OK, ""))
	var id contract.Identity
	if err := json.Unmarshal([]byte(b.annotations[contract.NodeReportedIdentity]), &id); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]netip.Addr{netip.MustParseAddr("192.0.2.2")}, id.Addresses,
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	if got := s.Expected(); len(got.Virtual) != 1 || got.Uplink != "bond7" {
		t.Errorf("expects %+v, want the Service's address as virtual and the named uplink", got)
	}
}

func TestOnlyTheNetworkChangesTheExpectation(t *testing.T) {
	s, b, changes := newNodeState(&[]*corev1.Service{})
	network, err := contract.NodeNetwork{NetworkID: "n1", VLAN: 100}.Annotations()
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "srv-a", Annotations: network}}
	s.ObserveNode(node)
	other := node.DeepCopy()
	other.Annotations["example.com/other"] = "changed"
	s.ObserveNode(other)
	if *changes != 1 || b.node != other {
		t.Errorf("%d changes, observed %p; want 1, the last Node", *changes, b.node)
	}
	if e := s.Expected(); !e.Published || e.Network.VLAN != 100 {
		t.Errorf("expects %+v, want VLAN 100", e)
	}
	s.ObserveNode(nil)
	if *changes != 2 || s.Expected().Published {
		t.Errorf("%d changes, published %t after the Node was deleted; want 2, false", *changes, s.Expected().Published)
	}
}

// TestReportedAddresses: the report is on the Node, and an agent that starts reads what the last one
// reported.
func TestReportedAddresses(t *testing.T) {
	s, b, _ := newNodeState(&[]*corev1.Service{})
	if _, known := s.ReportedBefore(); known || s.VLANInterface() != "" {
		t.Error("something is known before the Node and a sample were seen")
	}
	want := contract.ReportedAddresses{netip.MustParseAddr("203.0.113.3"): {State: contract.AddressAnswered,
		MAC: "02:00:00:00:00:01", Held: true}}
	s.Reported(want)
	s.Sample(sample(check.OK, ""))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		contract.NodeReportedAddresses: b.annotations[contract.NodeReportedAddresses]}}}
	s.ObserveNode(node)
	if got, known := s.ReportedBefore(); !known || !cmp.Equal(got, want) {
		t.Errorf("reported before: %v, %t; want %v", got, known, want)
	}
	node.Annotations = map[string]string{contract.NodeReportedAddresses: "{"}
	s.ObserveNode(node)
	if got, known := s.ReportedBefore(); !known || len(got) != 0 {
		t.Errorf("a report that cannot be read is read as %v, %t", got, known)
	}
	if b.sampled != 1 || s.VLANInterface() != "bond0.100" {
		t.Errorf("%d samples reported, interface %q", b.sampled, s.VLANInterface())
	}
}

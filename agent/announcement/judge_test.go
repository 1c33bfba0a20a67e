package announcement

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/l2"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

const (
	macA = "02:00:00:00:00:0a"
	macB = "02:00:00:00:00:0b"
)

var web = Target{Address: netip.MustParseAddr("203.0.113.3"), Service: "default/web"}

func TestJudge(t *testing.T) {
	for name, tc := range map[string]struct {
		seen   Observation
		id     check.ID
		status check.Status
		reason string
	}{
		"nobody":                          {Observation{}, AddressAnswers, check.Fail, ReasonNoAnswer},
		"another node":                    {Observation{MACs: []string{macA}, Replied: true}, AddressAnswers, check.OK, ReasonAnswered},
		"announced, but no reply":         {Observation{MACs: []string{macA}}, AddressAnswers, check.Fail, ReasonNoAnswer},
		"this node":                       {Observation{Held: []string{"bond0.100"}}, AddressAnswers, check.OK, ReasonAnswered},
		"this node, way back":             {Observation{Held: []string{"bond0.100"}, ReturnBy: "bond0.100"}, AddressAnswers, check.OK, ReasonAnswered},
		"this node, no way back":          {Observation{Held: []string{"bond0.100"}, ReturnBy: "bond0.11"}, ReturnByNetwork, check.Fail, ReasonReturnPath},
		"two others":                      {Observation{MACs: []string{macA, macB}, Replied: true}, SingleAnswer, check.Fail, ReasonDuplicate},
		"this node and another":           {Observation{Held: []string{"bond0.100"}, MACs: []string{macA}, Replied: true}, SingleAnswer, check.Fail, ReasonDuplicate},
		"this node and a claim":           {Observation{Held: []string{"bond0.100"}, MACs: []string{macA}}, SingleAnswer, check.Fail, ReasonDuplicate},
		"wrong interface":                 {Observation{Held: []string{"bond0.11"}}, RightInterface, check.Fail, ReasonWrongInterface},
		"wrong and right interface":       {Observation{Held: []string{"bond0.11", "bond0.100"}}, AddressAnswers, check.OK, ReasonAnswered},
		"IPVS holds it everywhere":        {Observation{Held: []string{"kube-ipvs0"}, MACs: []string{macA}, Replied: true}, AddressAnswers, check.OK, ReasonAnswered},
		"IPVS holds it, nobody announces": {Observation{Held: []string{"kube-ipvs0"}}, AddressAnswers, check.Fail, ReasonNoAnswer},
		"not asked":                       {Observation{Error: "operation not permitted", MACs: []string{macA}}, AddressAnswers, check.Unknown, ReasonNotAsked},
	} {
		t.Run(name, func(t *testing.T) {
			tc.seen.Target, tc.seen.Interface = web, "bond0.100"
			got := Judge(tc.seen)
			if got.ID != tc.id || got.Status != tc.status || got.Reason != tc.reason {
				t.Errorf("%s %s %s, want %s %s %s", got.ID, got.Status, got.Reason, tc.id, tc.status, tc.reason)
			}
			if got.Status == check.Fail && (got.Cause == "" || len(got.Fixes) == 0) {
				t.Errorf("failure without cause (%q) or fix", got.Cause)
			}
		})
	}
}

func service(name string, edit func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{contract.ServiceIPAddress: "203.0.113.3"}},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
	}
	edit(s)
	return s
}

func TestTargets(t *testing.T) {
	now := metav1.Now()
	got := Targets([]*corev1.Service{
		service("web", func(*corev1.Service) {}),
		service("early", func(s *corev1.Service) { s.Annotations[contract.ServiceIPAddress] = "192.0.2.200" }),
		service("unpublished", func(s *corev1.Service) { s.Annotations = nil }),
		service("internal", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP }),
		service("going", func(s *corev1.Service) { s.DeletionTimestamp = &now }),
		service("six", func(s *corev1.Service) { s.Annotations[contract.ServiceIPAddress] = "2001:db8::3" }),
		service("broken", func(s *corev1.Service) { s.Annotations[contract.ServiceIPAddress] = "203.0.113" }),
	})
	want := []Target{{netip.MustParseAddr("192.0.2.200"), "default/early"}, web}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("targets (-want +got):\n%s", diff)
	}
}

func TestSumBoundsItsMessage(t *testing.T) {
	var findings []check.Finding
	for i := range 200 {
		f := Judge(Observation{Target: Target{Address: netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}), Service: "default/web"}})
		findings = append(findings, f)
	}
	v := Sum(findings)
	if v.Status != check.Fail || v.Reason != ReasonNoAnswer || len(v.Message) > 1024 {
		t.Errorf("verdict %s %s with a message of %d bytes, want a failure of at most 1024", v.Status, v.Reason, len(v.Message))
	}
}

// segment is a wire whose answers the test sets.
type segment struct {
	answer l2.Answer
	asked  []l2.Question
}

func (s *segment) Ask(_ context.Context, _ string, questions []l2.Question) ([]l2.Answer, error) {
	s.asked = append(s.asked, questions...)
	answers := make([]l2.Answer, len(questions))
	for i := range answers {
		answers[i] = s.answer
	}
	return answers, nil
}

func (s *segment) Routes(check.Snapshot, []check.RouteQuestion) []check.RouteAnswer { return nil }

// TestWatcher: an address that falls silent is reported after two samples, one that answers again at once.
func TestWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire := &segment{answer: l2.Answer{MACs: []string{macA}, Replied: true}}
		view := View{Ready: true, Announcer: contract.AnnouncerKubeVIP, Report: check.Report{Interface: "bond0.100", Source: "192.0.2.2"}}
		var told []string
		w := &Watcher{
			Asker: wire, Router: wire, Interval: 10 * time.Second,
			View: func() (View, bool) { return view, true },
			Services: func() ([]*corev1.Service, bool) {
				return []*corev1.Service{service("web", func(*corev1.Service) {})}, true
			},
			Tell: func(_ []check.Finding, v check.Verdict) {
				if len(told) == 0 || told[len(told)-1] != v.Reason {
					told = append(told, v.Reason)
				}
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		// Only between samples is the scene changed; all of it happens at exact instants, one second after a sample.
		at := func(after time.Duration, change func()) {
			time.Sleep(after)
			synctest.Wait()
			change()
		}
		at(time.Second, func() { wire.answer = l2.Answer{} })
		at(9*time.Second, func() {})                                       // first silent sample at 10 s
		at(time.Second, func() { expectReasons(t, told, ReasonAnswered) }) // not believed yet
		at(2*time.Second, func() { expectReasons(t, told, ReasonAnswered, ReasonNoAnswer) })
		at(0, func() { wire.answer = l2.Answer{MACs: []string{macB}, Replied: true} })
		at(10*time.Second, func() { expectReasons(t, told, ReasonAnswered, ReasonNoAnswer, ReasonAnswered) })
		at(0, func() { view.Ready, view.Why = false, "VLANInterfaceDown" })
		at(10*time.Second, func() {
			expectReasons(t, told, ReasonAnswered, ReasonNoAnswer, ReasonAnswered, ReasonVLANNotReady)
		})
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v after its context ended, want nil", err)
		}
		for _, q := range wire.asked {
			if q.Source != netip.MustParseAddr("192.0.2.2") {
				t.Errorf("asked as %s, want the node's own address", q.Source)
			}
		}
	})
}

func expectReasons(t *testing.T, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reasons told (-want +got):\n%s", diff)
	}
}

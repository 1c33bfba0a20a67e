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

func TestUnaskedNamesTheCause(t *testing.T) {
	for name, tc := range map[string]struct {
		address check.Finding
		broken  bool
		because string
	}{
		"address there":          {check.Finding{Status: check.OK}, false, ""},
		"address missing":        {check.Finding{Status: check.Fail}, true, "because of PN201"},
		"interface down":         {check.Finding{Status: check.Skip, Because: "because of PN103"}, true, "because of PN103"},
		"address not determined": {check.Finding{Status: check.Unknown}, true, "because of PN201"},
	} {
		tc.address.ID = check.NodeAddress
		findings, broken := Unasked(check.Report{Findings: []check.Finding{tc.address}}, []Target{web})
		if broken != tc.broken || broken != (len(findings) == 1) {
			t.Errorf("%s: %v, %t; want broken %t", name, findings, broken, tc.broken)
			continue
		}
		if broken && (findings[0].Status != check.Skip || findings[0].Because != tc.because) {
			t.Errorf("%s: %s %q, want SKIP %q", name, findings[0].Status, findings[0].Because, tc.because)
		}
	}
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
	wire := &segment{}
	view := View{Ready: true, Announcer: contract.AnnouncerKubeVIP, Report: check.Report{Interface: "bond0.100", Source: "192.0.2.2"}}
	services := []*corev1.Service{service("web", func(*corev1.Service) {})}
	var told check.Verdict
	w := &Watcher{
		Asker: wire, Router: wire,
		View:     func() (View, bool) { return view, true },
		Services: func() ([]*corev1.Service, bool) { return services, true },
		Tell:     func(_ []check.Finding, v check.Verdict) { told = v },
	}
	answered, silent := l2.Answer{MACs: []string{macA}, Replied: true}, l2.Answer{}
	both := l2.Answer{MACs: []string{macA, macB}, Replied: true}
	for i, step := range []struct {
		answer  l2.Answer
		ready   bool
		reason  string
		pending bool
	}{
		{silent, true, ReasonConfirming, true},
		{answered, true, ReasonAnswered, false},
		{silent, true, ReasonAnswered, true},
		{answered, true, ReasonAnswered, false},
		{silent, true, ReasonAnswered, true},
		{silent, true, ReasonNoAnswer, false},
		{both, true, ReasonNoAnswer, true},
		{both, true, ReasonDuplicate, false},
		{answered, true, ReasonAnswered, false},
		{answered, false, ReasonVLANNotReady, true},
		{answered, true, ReasonAnswered, false},
	} {
		wire.answer, view.Ready = step.answer, step.ready
		if pending := w.sample(t.Context()); pending != step.pending || told.Reason != step.reason {
			t.Errorf("sample %d: %s, pending %t; want %s, pending %t", i, told.Reason, pending, step.reason, step.pending)
		}
	}
	for _, q := range wire.asked {
		if q.Source != netip.MustParseAddr("192.0.2.2") {
			t.Errorf("asked as %s, want the node's own address", q.Source)
		}
	}
	services = nil
	if pending := w.sample(t.Context()); pending || told.Status != check.OK || told.Reason != ReasonNothingAnnounced {
		t.Errorf("without Services: %s %s, pending %t; want %s", told.Status, told.Reason, pending, ReasonNothingAnnounced)
	}
}

func TestWatcherWithoutANodeAddress(t *testing.T) {
	seen, err := Observe(t.Context(), &segment{}, &segment{}, View{Ready: true, Report: check.Report{Interface: "bond0.100"}}, []Target{web})
	if err != nil || Judge(seen[0]).Reason != ReasonNotAsked {
		t.Errorf("observed %+v (%v), want that nothing could be asked", seen, err)
	}
}

// TestWatcherSamplesAtIntervals: one sample per interval in a steady state, soon another while one waits to be confirmed.
func TestWatcherSamplesAtIntervals(t *testing.T) {
	for name, tc := range map[string]struct {
		answer l2.Answer
		want   int
	}{
		"steady":    {l2.Answer{MACs: []string{macA}, Replied: true}, 7},
		"unsettled": {l2.Answer{}, 7 + 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				wire := &segment{answer: tc.answer}
				w := &Watcher{
					Asker: wire, Router: wire, Interval: 10 * time.Second,
					View: func() (View, bool) {
						return View{Ready: true, Report: check.Report{Interface: "bond0.100", Source: "192.0.2.2"}}, true
					},
					Services: func() ([]*corev1.Service, bool) {
						return []*corev1.Service{service("web", func(*corev1.Service) {})}, true
					},
					Tell: func([]check.Finding, check.Verdict) {},
				}
				ctx, cancel := context.WithTimeout(t.Context(), 65*time.Second)
				defer cancel()
				if err := w.Run(ctx); err != nil {
					t.Errorf("Run returned %v after its context ended, want nil", err)
				}
				if len(wire.asked) != tc.want {
					t.Errorf("%d samples in 65 s, want %d", len(wire.asked), tc.want)
				}
			})
		})
	}
}

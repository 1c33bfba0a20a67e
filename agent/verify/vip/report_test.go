package vip

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// TestReport: what is reported of one address, given what was reported before.
func TestReport(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	address := netip.MustParseAddr("203.0.113.3")
	held := contract.ReportedAddress{State: contract.AddressAnswered, MAC: macA, Held: true}
	heard := contract.ReportedAddress{State: contract.AddressAnswered, MAC: macA}
	silent := contract.ReportedAddress{State: contract.AddressSilent}
	since := func(e contract.ReportedAddress, age time.Duration) contract.ReportedAddresses {
		e.Since = now.Add(-age)
		return contract.ReportedAddresses{address: e}
	}
	for name, tc := range map[string]struct {
		before contract.ReportedAddresses
		o      assessment
		want   contract.ReportedAddresses
	}{
		"held": {nil, assessment{entry: held, settled: true, involved: true}, since(held, 0)},
		"held as before": {since(held, time.Hour),
			assessment{entry: held, settled: true, involved: true}, since(held, time.Hour)},
		"taken over from another": {since(heard, time.Hour),
			assessment{entry: held, settled: true, involved: true}, since(held, 0)},
		"given up": {since(held, time.Hour), assessment{entry: silent, settled: true},
			since(silent, 0)},
		"not settled, nothing before":   {nil, assessment{entry: silent, involved: true}, contract.ReportedAddresses{}},
		"not settled, something before": {since(held, time.Hour), assessment{entry: silent}, since(held, time.Hour)},
		"received, published already":   {nil, assessment{entry: heard, settled: true}, contract.ReportedAddresses{}},
		"received, not its turn yet": {
			nil, assessment{entry: heard, settled: true, unpublishedSince: now}, contract.ReportedAddresses{}},
		"received, not reported yet": {nil, assessment{entry: heard, settled: true, unpublishedSince: now.Add(-spread),
			proven: now}, since(heard, 0)},
		"only received long ago": {nil, assessment{entry: heard, settled: true, unpublishedSince: now.Add(-spread),
			proven: now.Add(-time.Minute)}, contract.ReportedAddresses{}},
		"silent, not reported yet": {
			nil, assessment{entry: silent, settled: true, unpublishedSince: now.Add(-spread)}, since(silent, 0)},
		"gone, not reported before": {nil, assessment{subject: subject{phase: gone}, entry: heard, settled: true,
			unpublishedSince: now.Add(-spread)}, contract.ReportedAddresses{}},
		"gone, reported before": {since(held, time.Hour),
			assessment{subject: subject{phase: gone}, entry: silent, settled: true}, since(silent, 0)},
		"gone long ago": {since(silent, time.Hour), assessment{subject: subject{phase: gone}, entry: silent,
			settled: true, expired: true}, contract.ReportedAddresses{}},
		"reported and published": {
			since(heard, time.Hour), assessment{entry: heard, settled: true}, since(heard, time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			tc.o.Address = address
			got := report(tc.before, []assessment{tc.o}, "srv-a", now)
			if diff := cmp.Diff(tc.want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
		})
	}
}

// TestReportIsBounded: what this node holds and what conflicts is kept, and the annotation stays small.
func TestReportIsBounded(t *testing.T) {
	var assessments []assessment
	for i := range 250 {
		entry := contract.ReportedAddress{State: contract.AddressAnswered, MAC: macA}
		switch {
		case i >= 245:
			entry.State = contract.AddressDuplicate
		case i >= 240:
			entry.Held = true
		}
		assessments = append(assessments, assessment{
			subject: subject{Target: Target{Address: netip.AddrFrom4([4]byte{203, 0, 113, byte(i)})}}, entry: entry,
			settled: true, involved: true,
		})
	}
	got := report(nil, assessments, "srv-a", time.Now())
	for i := 240; i < 250; i++ {
		if _, kept := got[netip.AddrFrom4([4]byte{203, 0, 113, byte(i)})]; !kept {
			t.Errorf("the entry of 203.0.113.%d is not kept", i)
		}
	}
	raw, err := got.Encode()
	if err != nil || len(got) != maxReported || len(raw) > 4<<10 {
		t.Errorf("%d entries in %d bytes (%v), want %d in at most 4 KiB", len(got), len(raw), err, maxReported)
	}
}

// TestSubjects: which addresses are watched, and where they stand.
func TestSubjects(t *testing.T) {
	now := metav1.Now()
	own := netip.MustParseAddr("203.0.113.20")
	view := View{
		Expected: check.Expected{Network: contract.NodeNetwork{
			IPs: []netip.Addr{own}, Blocks: []contract.NetworkBlock{{CIDR: netip.MustParsePrefix("203.0.113.0/24")}},
		}},
		Snapshot: check.Snapshot{Links: []check.Link{{Index: 1, Name: "bond0.100"}, {Index: 2, Name: ipvsInterface}}},
	}
	for text, index := range map[string]int{
		"203.0.113.3/32": 1, "203.0.113.9/32": 1, "203.0.113.10/32": 2, "203.0.113.20/32": 1, "203.0.113.11/24": 1,
		"198.51.100.1/32": 1, "203.0.113.12/32": 7,
	} {
		view.Snapshot.Addresses = append(view.Snapshot.Addresses,
			check.Address{LinkIndex: index, Prefix: netip.MustParsePrefix(text)})
	}
	services := []*corev1.Service{
		service("web", func(*corev1.Service) {}),
		service("going", func(s *corev1.Service) {
			s.DeletionTimestamp = &now
			s.Annotations = map[string]string{contract.KubeVIPAddresses: "203.0.113.4, 2001:db8::1"}
		}),
		service("internal", func(s *corev1.Service) {
			s.Spec.Type = corev1.ServiceTypeClusterIP
			s.Annotations = nil
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.5"}}
		}),
		service("web-again", func(*corev1.Service) {}),
	}
	reported := contract.ReportedAddresses{netip.MustParseAddr("203.0.113.6"): {},
		netip.MustParseAddr("203.0.113.3"): {}}
	type row struct {
		address, service string
		phase            phase
	}
	want := []row{
		{"203.0.113.3", "default/web", published}, {"203.0.113.4", "default/going", leaving},
		{"203.0.113.5", "default/internal", leaving},
		{"203.0.113.6", "", gone}, {"203.0.113.9", "", gone},
	}
	var got []row
	for _, s := range subjects(services, view, reported) {
		got = append(got, row{s.Address.String(), s.Service, s.phase})
		if (s.service == nil) != (s.phase == gone) {
			t.Errorf("%s: phase %d with Service %v", s.Address, s.phase, s.service)
		}
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(row{})); diff != "" {
		t.Errorf("subjects (-want +got):\n%s", diff)
	}
}

// TestTurns: the turns of nodes are spread over the time.
func TestTurns(t *testing.T) {
	address := netip.MustParseAddr("203.0.113.3")
	var turns []time.Duration
	for i := range 1000 {
		turns = append(turns, turn(time.Unix(int64(i), 0).String(), address))
	}
	slices.Sort(turns)
	if turns[0] < 0 || turns[999] >= spread || turns[100] > spread/5 || turns[900] < spread*4/5 {
		t.Errorf("turns from %s to %s, tenths at %s and %s", turns[0], turns[999], turns[100], turns[900])
	}
}

// TestRecorder: each finding has its event on the Service, worded for its reader.
func TestRecorder(t *testing.T) {
	web := service("web", func(*corev1.Service) {})
	for id, want := range map[check.ID]string{
		AddressAnswers: EventNotAnswered, HolderAnswers: EventNotAnswered, NothingStale: EventStale,
		SingleAnswer: EventDuplicate, RightInterface: EventMisplaced,
		RightNode: EventMisplaced, ReturnByNetwork: EventReturnPath, OwnMachine: EventForeign,
		LeaseAlive: EventUnguarded,
	} {
		events := record.NewFakeRecorder(1)
		Recorder(events)(web, "srv-a", check.Finding{ID: id, Status: check.Fail, Cause: "the cause"})
		if got := <-events.Events; !strings.HasPrefix(got, "Warning "+want+" "+string(id)+": the cause") ||
			!strings.Contains(got, "srv-a") {
			t.Errorf("%s: event %q, want %s", id, got, want)
		}
	}
	events := record.NewFakeRecorder(1)
	Recorder(events)(web, "srv-a", check.Finding{ID: AddressAnswers, Status: check.Unknown, Reason: ReasonNotAsked})
	Recorder(events)(web, "srv-a", check.Finding{ID: AddressAnswers, Status: check.OK, Title: "T", Observed: "held"})
	if got := <-events.Events; got != "Normal AddressAnnounced T: held (reported by node srv-a)" {
		t.Errorf("event %q", got)
	}
}

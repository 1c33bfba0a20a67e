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

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer/kubevip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

const (
	macA = "02:00:00:00:00:0a"
	macB = "02:00:00:00:00:0b"
)

var web = Target{Address: netip.MustParseAddr("203.0.113.3"), Service: "default/web"}

// globalLease is kube-vip's Lease for all Services, with a name of its own.
const globalLease = "kube-vip/all-services"

func leaseOf(state announcer.State, holder string) announcer.Election {
	return kubevip.Lease{Name: "default/kubevip-web", Global: globalLease, State: state, Holder: holder}.Election()
}

// twoLeases are those of two elections for one Service.
func twoLeases(own, global string) announcer.Election {
	return kubevip.Lease{Name: "default/kubevip-web", Global: globalLease, State: announcer.Held, Holder: own,
		Rival: "kube-system/plndr-svcs-lock", RivalHolder: global}.Election()
}

func TestJudge(t *testing.T) {
	for name, tc := range map[string]struct {
		seen   Observation
		id     check.ID
		status check.Status
		reason string
	}{
		"no machine": {Observation{}, AddressAnswers, check.Fail, ReasonNoAnswer},
		"another node": {Observation{MACs: []string{macA}, Replied: true}, AddressAnswers, check.OK,
			ReasonAnswered},
		"announced, but no reply": {Observation{MACs: []string{macA}}, AddressAnswers, check.Fail, ReasonNoAnswer},
		"this node":               {Observation{Held: []string{"bond0.100"}}, AddressAnswers, check.OK, ReasonAnswered},
		"this node, way back": {Observation{Held: []string{"bond0.100"}, ReturnBy: "bond0.100"}, AddressAnswers,
			check.OK, ReasonAnswered},
		"this node, no way back": {Observation{Held: []string{"bond0.100"}, ReturnBy: "bond0.11"}, ReturnByNetwork,
			check.Fail, ReasonReturnPath},
		"two others": {Observation{MACs: []string{macA, macB}, Replied: true}, SingleAnswer, check.Fail,
			ReasonDuplicate},
		"this node and another": {Observation{Held: []string{"bond0.100"}, MACs: []string{macA}, Replied: true},
			SingleAnswer, check.Fail, ReasonDuplicate},
		"this node and a claim": {Observation{Held: []string{"bond0.100"}, MACs: []string{macA}}, SingleAnswer,
			check.Fail, ReasonDuplicate},
		"wrong interface": {Observation{Held: []string{"bond0.11"}}, RightInterface, check.Fail, ReasonWrongInterface},
		"wrong and right interface": {Observation{Held: []string{"bond0.11",
			"bond0.100"}}, AddressAnswers, check.OK, ReasonAnswered},
		"IPVS holds it everywhere": {Observation{Held: []string{"kube-ipvs0"}, MACs: []string{macA}, Replied: true},
			AddressAnswers, check.OK, ReasonAnswered},
		"IPVS holds it, none announces": {
			Observation{Held: []string{"kube-ipvs0"}}, AddressAnswers, check.Fail, ReasonNoAnswer},
		"stale: another node has the lease": {Observation{Held: []string{"bond0.100"},
			Election: leaseOf(announcer.Held, "srv-b")},
			NothingStale, check.Fail, ReasonStaleAddress},
		"stale, and the holder answers too": {Observation{Held: []string{"bond0.100"}, MACs: []string{macA},
			Replied: true, Election: leaseOf(announcer.Held, "srv-b")},
			NothingStale, check.Fail, ReasonStaleAddress},
		"stale on another interface": {Observation{Held: []string{"bond0"}, Election: leaseOf(announcer.Held, "srv-b")},
			NothingStale, check.Fail, ReasonStaleAddress},
		"stale: no Service has it": {Observation{Held: []string{"bond0.100"}, Gone: true}, NothingStale, check.Fail,
			ReasonStaleAddress},
		"IPVS holds it against the lease": {Observation{Held: []string{"kube-ipvs0"}, MACs: []string{macA},
			Replied: true, Election: leaseOf(announcer.Held, "srv-b")},
			AddressAnswers, check.OK, ReasonAnswered},
		"this node has the lease": {Observation{Held: []string{"bond0.100"},
			Election: leaseOf(announcer.Held, "srv-a")}, AddressAnswers, check.OK, ReasonAnswered},
		"this node leads, another holds": {Observation{MACs: []string{macA}, Replied: true,
			Election: leaseOf(announcer.Held, "srv-a")}, RightNode, check.Fail, ReasonWrongNode},
		"another node than the holder": {Observation{MACs: []string{macA}, Replied: true,
			Names: map[string]string{macA: "srv-c"}, Election: leaseOf(announcer.Held, "srv-b")},
			RightNode, check.Fail, ReasonWrongNode},
		"the holder": {Observation{MACs: []string{macA}, Replied: true, Names: map[string]string{macA: "srv-b"},
			Election: leaseOf(announcer.Held, "srv-b")},
			AddressAnswers, check.OK, ReasonAnswered},
		"some node, not known which": {Observation{MACs: []string{macA}, Replied: true,
			Election: leaseOf(announcer.Held, "srv-b")}, AddressAnswers, check.OK, ReasonAnswered},
		"the holder is silent": {Observation{Election: leaseOf(announcer.Held, "srv-b")}, HolderAnswers, check.Fail,
			ReasonHolderSilent},
		"the holder announces, but no reply": {Observation{MACs: []string{macA},
			Election: leaseOf(announcer.Held, "srv-b")},
			HolderAnswers, check.Fail, ReasonHolderSilent},
		"silent, the lease expired": {Observation{Election: leaseOf(announcer.Expired, "srv-b")}, AddressAnswers,
			check.Fail,
			ReasonNoAnswer},
		"without endpoints": {Observation{NoEndpoints: true}, AddressAnswers, check.Warn, ReasonNoEndpoints},
		"without endpoints, the lease released": {Observation{NoEndpoints: true,
			Election: leaseOf(announcer.Released, "")}, AddressAnswers, check.Warn, ReasonNoEndpoints},
		"without endpoints, and a node holds its lease": {Observation{NoEndpoints: true,
			Election: leaseOf(announcer.Held, "srv-b")}, HolderAnswers, check.Fail, ReasonHolderSilent},
		"without endpoints, one lease for all Services": {Observation{NoEndpoints: true, Election: kubevip.Lease{
			Name: globalLease, Global: globalLease, State: announcer.Held, Holder: "srv-b"}.Election()},
			AddressAnswers, check.Warn, ReasonNoEndpoints},
		"without endpoints and answered": {Observation{NoEndpoints: true, MACs: []string{macA}, Replied: true},
			AddressAnswers, check.OK, ReasonAnswered},
		"a foreign machine": {Observation{MACs: []string{macA}, Replied: true, Foreign: []string{macA}}, OwnMachine,
			check.Fail, ReasonForeignOwner},
		"a foreign machine besides": {Observation{Held: []string{"bond0.100"}, MACs: []string{macA},
			Foreign: []string{macA}, Election: leaseOf(announcer.Held, "srv-a")},
			OwnMachine, check.Fail, ReasonForeignOwner},
		"a foreign machine that is silent now": {Observation{Held: []string{"bond0.100"}, Foreign: []string{macA}},
			AddressAnswers, check.OK, ReasonAnswered},
		"held, the lease expired": {Observation{Held: []string{"bond0.100"},
			Election: leaseOf(announcer.Expired, "srv-a")}, LeaseAlive, check.Fail, ReasonLeaseExpired},
		"answered, the lease released": {Observation{MACs: []string{macA}, Replied: true,
			Election: leaseOf(announcer.Released, "")}, LeaseAlive, check.Fail, ReasonLeaseExpired},
		"held, no lease": {Observation{Held: []string{"bond0.100"}, Election: leaseOf(announcer.Missing, "")},
			LeaseAlive,
			check.Warn, ReasonLeaseMissing},
		"duplicate, the lease expired": {Observation{Held: []string{"bond0.100"}, MACs: []string{macA},
			Election: leaseOf(announcer.Expired, "srv-a")},
			SingleAnswer, check.Fail, ReasonDuplicate},
		"elected twice, and this node is one of them": {Observation{Held: []string{"bond0.100"}, MACs: []string{macA},
			Replied: true, Election: twoLeases("srv-b", "srv-a")},
			SingleAnswer, check.Fail, ReasonDuplicate},
		"elected twice, this node is neither": {Observation{Held: []string{"bond0.100"}, MACs: []string{macA},
			Replied: true, Election: twoLeases("srv-b", "srv-c")},
			NothingStale, check.Fail, ReasonStaleAddress},
		"not asked": {Observation{Error: "operation not permitted", MACs: []string{macA}}, AddressAnswers,
			check.Unknown, ReasonNotAsked},
	} {
		t.Run(name, func(t *testing.T) {
			tc.seen.Target = web
			tc.seen.Interface = "bond0.100"
			tc.seen.Node = "srv-a"
			tc.seen.By = kubevip.Announcer{}
			got := Evaluate(tc.seen)
			if got.ID != tc.id || got.Status != tc.status || got.Reason != tc.reason {
				t.Errorf("%s %s %s, want %s %s %s", got.ID, got.Status, got.Reason, tc.id, tc.status, tc.reason)
			}
			if (got.Status == check.Fail || got.Status == check.Warn) &&
				(got.Cause == "" || len(got.Fixes) == 0 || got.Observed == "") {
				t.Errorf("failure without cause (%q), evidence (%q) or fix", got.Cause, got.Observed)
			}
			if !strings.Contains(got.Title, "203.0.113.3 of Service default/web") {
				t.Errorf("the title %q does not name the address", got.Title)
			}
			if reasons := declared(got.ID).Reasons; got.Status != check.OK && !slices.Contains(reasons, got.Reason) {
				t.Errorf("%s is declared with the reasons %q, not %s", got.ID, reasons, got.Reason)
			}
		})
	}
}

// TestReturnByOfAnAddressThatIsGone: a snapshot may be older than the look-up, and the kernel has no route from an
// address that it does not carry.
func TestReturnByOfAnAddressThatIsGone(t *testing.T) {
	o := Observation{Target: web, Interface: "bond0.100", Held: []string{"bond0.100"}}
	for name, tc := range map[string]struct {
		answers routes
		want    string
	}{
		"by an interface":     {routes{{Interface: "bond0.11"}, {Local: true}}, "bond0.11"},
		"no way":              {routes{{Error: "ENETUNREACH"}, {Local: true}}, "no interface (ENETUNREACH)"},
		"it is gone":          {routes{{Error: "ENETUNREACH"}, {Interface: "bond0"}}, ""},
		"cannot be looked up": {nil, ""},
	} {
		if got := returnBy(tc.answers, View{}, o); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// routes are the answers of a kernel.
type routes []check.RouteAnswer

func (r routes) Routes(check.Snapshot, []check.RouteQuestion) []check.RouteAnswer { return r }

func service(name string, edit func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
			Annotations: map[string]string{contract.ServiceIPAddress: "203.0.113.3"}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
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
		"address there":   {check.Finding{Status: check.OK}, false, ""},
		"address missing": {check.Finding{Status: check.Fail}, true, "because of PN201"},
		"interface down": {check.Finding{Status: check.Skip, Because: "because of PN103"}, true,
			"because of PN103"},
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

// TestTwoElectionsAreNamed: who sees two answers learns why there are two.
func TestTwoElectionsAreNamed(t *testing.T) {
	f := Evaluate(Observation{Target: web, Interface: "bond0.100", Node: "srv-a",
		Held: []string{"bond0.100"}, MACs: []string{macA}, Replied: true,
		Election: twoLeases("srv-b", "srv-a")})
	for _, want := range []string{"elected twice", "default/kubevip-web is held by Node srv-b",
		"kube-system/plndr-svcs-lock by Node srv-a"} {
		if !strings.Contains(f.Cause, want) {
			t.Errorf("the cause %q does not contain %q", f.Cause, want)
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
		f := Evaluate(Observation{Target: Target{Address: netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}),
			Service: "default/web"}})
		findings = append(findings, f)
	}
	v := Sum(findings)
	if v.Status != check.Fail || v.Reason != ReasonNoAnswer || len(v.Message) > 1024 {
		t.Errorf("result %s %s with a message of %d bytes, want a failure of at most 1024", v.Status, v.Reason,
			len(v.Message))
	}
}

// TestSumOrders: what a node carries itself is the first cause, whatever else is received.
func TestSumOrders(t *testing.T) {
	other := Target{Address: netip.MustParseAddr("203.0.113.2"), Service: "default/api"}
	findings := []check.Finding{
		Evaluate(Observation{Target: other}),
		Evaluate(Observation{Target: web, Interface: "bond0.100", Node: "srv-a",
			Held: []string{"bond0.100"}, MACs: []string{macA}, Election: leaseOf(announcer.Held, "srv-b")}),
		{ID: LeaseAlive, Status: check.Warn, Reason: ReasonLeaseMissing},
	}
	if v := Sum(findings); v.Status != check.Fail || v.Reason != ReasonStaleAddress ||
		!strings.HasPrefix(v.Message, "PN603: ") || !strings.Contains(v.Message, "; PN601: ") {
		t.Errorf("result %+v, want the stale address first and the silent one too", v)
	}
	if v := Sum(findings[2:]); v.Status != check.OK {
		t.Errorf("only a warning: %+v, want OK", v)
	}
	endless := Evaluate(Observation{Target: web, NoEndpoints: true})
	if v := Sum([]check.Finding{endless}); v.Status != check.OK || !strings.Contains(v.Message, "without endpoints") {
		t.Errorf("without endpoints: %+v, want OK and the exception", v)
	}
}

func TestCatalogueIsComplete(t *testing.T) {
	for _, c := range Catalogue() {
		if c.Title == "" || c.Meaning == "" || len(c.Causes) == 0 || c.Remedy == "" || len(c.Reasons) == 0 ||
			rank(c.ID) < 0 {
			t.Errorf("the declaration of %s lacks something: %+v", c.ID, c)
		}
	}
}

// TestLeaseInvolvesAtOnce: the node that holds the lease of an address reports it without a turn, as soon as it knows.
func TestLeaseInvolvesAtOnce(t *testing.T) {
	for holder, want := range map[string]bool{"srv-a": true, "srv-b": false} {
		var st addressState
		o := Observation{Node: "srv-a", Election: leaseOf(announcer.Held, holder)}
		got := st.observe(subject{}, o, macA, "srv-a", time.Now())
		if got.involved != want || got.atOnce != want {
			t.Errorf("%s holds the lease: involved %t, at once %t; want %t", holder, got.involved, got.atOnce, want)
		}
	}
}

// TestNothingIsNext: without addresses no probe is due, so that nothing wakes up for one.
func TestNothingIsNext(t *testing.T) {
	s := NewScheduler(func() {})
	if next := s.Next(time.Now()); !next.IsZero() {
		t.Errorf("a probe of nothing is due at %s", next)
	}
}

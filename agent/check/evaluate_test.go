package check

import (
	"encoding/json"
	"flag"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/seeds"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestGoodNode(t *testing.T) {
	report := Evaluate(expectedNode(), goodNode())
	for _, f := range report.Findings {
		if f.Status != OK && f.ID != StrictARP {
			t.Errorf("%s is %s (%s%s), want OK", f.ID, f.Status, f.Cause, f.Because)
		}
	}
	want := Verdict{Status: OK, Reason: ReasonReady, Message: "interface bond0.100 is ready for the public network"}
	if diff := cmp.Diff(want, report.Verdict()); diff != "" {
		t.Errorf("verdict (-want +got):\n%s", diff)
	}
	if report.Interface != "bond0.100" || report.Uplink != "bond0" || report.Source != "192.0.2.2" {
		t.Errorf("interface %q, uplink %q, source %q", report.Interface, report.Uplink, report.Source)
	}
}

func TestFaults(t *testing.T) {
	for name, f := range faults() {
		t.Run(name, func(t *testing.T) {
			e, s := expectedNode(), goodNode()
			f.inject(&e, &s)
			report := Evaluate(e, s)
			got := report.Finding(f.id)
			if got.Status != f.status || got.Reason != f.reason {
				t.Errorf("%s is %s %s, want %s %s", f.id, got.Status, got.Reason, f.status, f.reason)
			}
			if got.Cause == "" || len(got.Fixes) == 0 && f.status != Unknown {
				t.Errorf("%s has cause %q and %d fixes; both must be there", f.id, got.Cause, len(got.Fixes))
			}
			if v := report.Verdict(); v.Status != f.verdict() || v.Status != OK && v.Reason != f.reason {
				t.Errorf("verdict is %s %s, want %s %s", v.Status, v.Reason, f.verdict(), f.reason)
			}
			checkGolden(t, name, report)
		})
	}
}

// checkGolden compares everything that is not well with testdata.
func checkGolden(t *testing.T, name string, report Report) {
	t.Helper()
	report.Findings = slices.DeleteFunc(report.Findings, func(f Finding) bool { return f.Status == OK })
	got, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", strings.ReplaceAll(name, " ", "-")+".json")
	if *update {
		if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)+"\n"); diff != "" {
		t.Errorf("report differs from %s; run go test ./agent/check -update if it should (-want +got):\n%s", path, diff)
	}
}

func TestConsequencesAreSkipped(t *testing.T) {
	e, s := expectedNode(), goodNode()
	removeLink("bond0.100")(&e, &s)
	report := Evaluate(e, s)
	for _, id := range []ID{VLANUp, MTU, NodeAddress, NoDuplicate, GatewayAnswers, ReversePath, ReturnPath} {
		if f := report.Finding(id); f.Status != Skip || f.Because != "because of PN102" {
			t.Errorf("%s is %s %q, want it skipped because of PN102", id, f.Status, f.Because)
		}
	}
}

func TestWaitingForController(t *testing.T) {
	report := Evaluate(ExpectedOf(map[string]string{"some": "other"}, nil), goodNode())
	if v := report.Verdict(); v.Status != Unknown || v.Reason != ReasonWaiting {
		t.Errorf("verdict is %s %s, want Unknown %s", v.Status, v.Reason, ReasonWaiting)
	}
}

func TestUnreadableAnnotation(t *testing.T) {
	report := Evaluate(ExpectedOf(map[string]string{"phoenixnap.com/public-network-id": "x", "phoenixnap.com/public-network-vlan": "ten"}, nil), goodNode())
	if v := report.Verdict(); v.Status != Unknown || v.Reason != "NetworkUnreadable" {
		t.Errorf("verdict is %s %s, want Unknown NetworkUnreadable", v.Status, v.Reason)
	}
}

func TestNoBlockYet(t *testing.T) {
	e, s := expectedNode(), goodNode()
	e.Network.Blocks = nil
	report := Evaluate(e, s)
	if f := report.Finding(GatewayAnswers); f.Status != Skip {
		t.Errorf("%s is %s, want it skipped: there is no gateway to ask", f.ID, f.Status)
	}
	if v := report.Verdict(); v.Status != OK {
		t.Errorf("verdict is %s %s (%s), want OK", v.Status, v.Reason, v.Message)
	}
}

func TestStrictReversePathIsHarmlessWithDefaultRouteByVLAN(t *testing.T) {
	e, s := expectedNode(), goodNode()
	editSettings("bond0.100", func(x *Settings) { x.RPFilter = 1 })(&e, &s)
	s.Routes[0].Interface = "bond0.100"
	if f := Evaluate(e, s).Finding(ReversePath); f.Status != OK {
		t.Errorf("%s is %s (%s), want OK", f.ID, f.Status, f.Cause)
	}
}

func TestMembershipWithoutAddress(t *testing.T) {
	for name, tc := range map[string]struct {
		address string
		want    Status
	}{
		"an address of a block": {"192.0.2.7/28", OK},
		"link-local":            {"169.254.3.4/32", OK},
		"none":                  {"", Fail},
	} {
		t.Run(name, func(t *testing.T) {
			e, s := expectedNode(), goodNode()
			e.Network.IPs = nil
			removeAddress(nodeIP)(&e, &s)
			if tc.address != "" {
				s.Addresses = append(s.Addresses, Address{LinkIndex: 6, Prefix: netip.MustParsePrefix(tc.address)})
			}
			if f := Evaluate(e, s).Finding(NodeAddress); f.Status != tc.want {
				t.Errorf("%s is %s (%s), want %s", f.ID, f.Status, f.Cause, tc.want)
			}
		})
	}
}

// TestBorrowedSender: before the server has an address of the network, the kernel asks with one of another network.
func TestBorrowedSender(t *testing.T) {
	e, s := expectedNode(), goodNode()
	e.Network.IPs, e.Network.Blocks = nil, nil
	removeAddress(nodeIP)(&e, &s)
	editSettings("bond0.100", func(x *Settings) { x.ARPAnnounce = 0 })(&e, &s)
	report := Evaluate(e, s)
	if f := report.Finding(ARPSource); f.Status != Warn || f.Reason != "ARPSourceForeign" || len(f.Fixes) == 0 {
		t.Errorf("%s is %s %s with %d fixes, want WARN ARPSourceForeign with a fix", f.ID, f.Status, f.Reason, len(f.Fixes))
	}
	if v := report.Verdict(); v.Status != OK {
		t.Errorf("verdict is %s %s, want OK: a warning keeps no node from traffic", v.Status, v.Reason)
	}
}

func rank(s Status) int {
	return slices.Index([]Status{OK, Unknown, Fail}, s)
}

// TestAnotherFaultNeverImprovesTheVerdict walks from a healthy node through random faults. Faults that hide evidence
// are left out: what cannot be seen any more is no longer known to have failed; and so is arp_ignore=2, which mends
// what IPVS breaks.
func TestAnotherFaultNeverImprovesTheVerdict(t *testing.T) {
	all := faults()
	names := make([]string, 0, len(all))
	for name, f := range all {
		if f.status != Unknown && f.reason != "ARPRestricted" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for seed := range uint64(seeds.Count(t, 2000)) {
		random := rand.New(rand.NewPCG(seed, 1))
		e, s := expectedNode(), goodNode()
		before := Evaluate(e, s).Verdict()
		var injected []string
		for range 1 + random.IntN(6) {
			name := names[random.IntN(len(names))]
			injected = append(injected, name)
			all[name].inject(&e, &s)
			after := Evaluate(e, s).Verdict()
			if rank(after.Status) < rank(before.Status) {
				t.Fatalf("seed %d: after %q the verdict went from %s %s to %s %s",
					seed, injected, before.Status, before.Reason, after.Status, after.Reason)
			}
			before = after
		}
	}
}

// TestOrderDoesNotMatter shuffles everything that the kernel lists, with random faults.
func TestOrderDoesNotMatter(t *testing.T) {
	all := faults()
	for seed := range uint64(seeds.Count(t, 2000)) {
		random := rand.New(rand.NewPCG(seed, 2))
		e, s := expectedNode(), goodNode()
		s.Links = append(s.Links, Link{Index: 40, Name: "eno1.100", Type: "vlan", Parent: 2, VLAN: &VLAN{ID: 100, Protocol: "802.1q"}})
		for _, f := range all {
			if random.IntN(12) == 0 {
				f.inject(&e, &s)
			}
		}
		want := Evaluate(e, s)
		wantLink, wantAsks, wantRoutes := Questions(e, s)
		shuffle(random, s.Links)
		shuffle(random, s.Addresses)
		shuffle(random, s.ARP)
		shuffle(random, s.Routes)
		shuffle(random, e.Network.Blocks)
		if diff := cmp.Diff(want, Evaluate(e, s)); diff != "" {
			t.Fatalf("seed %d: report depends on the order (-before +after):\n%s", seed, diff)
		}
		link, asks, routes := Questions(e, s)
		if diff := cmp.Diff([]any{wantLink, wantAsks, wantRoutes}, []any{link, asks, routes}, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Fatalf("seed %d: questions depend on the order (-before +after):\n%s", seed, diff)
		}
	}
}

func shuffle[T any](random *rand.Rand, values []T) {
	random.Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
}

func TestQuestions(t *testing.T) {
	e, s := expectedNode(), goodNode()
	link, asks, _ := Questions(e, s)
	want := []Question{
		{Target: nodeIP, Source: netip.IPv4Unspecified()},
		{Target: gateway, Source: nodeIP},
		{Target: second, Source: nodeIP},
	}
	if diff := cmp.Diff(want, asks, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || link != "bond0.100" {
		t.Errorf("questions on %q (-want +got):\n%s", link, diff)
	}
}

// TestNeverAsksAsAService: a request whose sender is the address of a Service would redirect its traffic.
func TestNeverAsksAsAService(t *testing.T) {
	e, s := expectedNode(), goodNode()
	removeAddress(nodeIP)(&e, &s)
	s.Addresses = append(s.Addresses, Address{LinkIndex: 6, Prefix: netip.MustParsePrefix("203.0.113.4/29")})
	e.Virtual = []netip.Addr{netip.MustParseAddr("203.0.113.4")}
	if _, asks, _ := Questions(e, s); len(asks) != 0 {
		t.Errorf("asks %v although the interface has addresses of Services alone", asks)
	}
	if got := Evaluate(e, s).Source; got != "" {
		t.Errorf("source is %q, want none", got)
	}
}

func TestCatalogue(t *testing.T) {
	seen := map[ID]bool{}
	for _, c := range Catalogue() {
		if seen[c.ID] {
			t.Errorf("%s is there twice", c.ID)
		}
		for _, deeper := range c.DependsOn {
			if !seen[deeper] {
				t.Errorf("%s depends on %s, which does not come before it", c.ID, deeper)
			}
		}
		seen[c.ID] = true
		covered := c.ID == NetworkPublished || c.ID == BlockAssigned || c.ID == ARPSource
		for _, f := range faults() {
			covered = covered || f.id == c.ID
		}
		if !covered {
			t.Errorf("no fault of the fixtures makes %s fail", c.ID)
		}
	}
}

package overview

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

func TestStyleFollowsTheEnvironment(t *testing.T) {
	for name, tc := range map[string]struct {
		env     map[string]string
		unicode bool
	}{
		"nothing is set":           {nil, false},
		"UTF-8":                    {map[string]string{"LANG": "en_US.UTF-8"}, true},
		"LC_ALL overrides LANG":    {map[string]string{"LC_ALL": "C", "LANG": "en_US.UTF-8"}, false},
		"an empty LC_ALL does not": {map[string]string{"LC_ALL": "", "LC_CTYPE": "de_DE.utf8"}, true},
	} {
		style := StyleFor(&bytes.Buffer{}, func(name string) (string, bool) {
			value, set := tc.env[name]
			return value, set
		})
		if style.Unicode != tc.unicode || style.Color || style.Width != 80 {
			t.Errorf("%s: %+v", name, style)
		}
	}
}

// Colours take no columns, and without Unicode the glyphs are ASCII; the words are the same.
func TestMarks(t *testing.T) {
	for _, o := range []outcome{healthy, waiting, broken, unknown} {
		plain := sheet{}.mark(o, "word")
		painted := sheet{Style: text.Style{Color: true, Unicode: true}}.mark(o, "word")
		if text.Columns(plain) != 6 || text.Columns(painted) != 6 || !strings.Contains(painted, "word") ||
			strings.ContainsFunc(plain, func(r rune) bool { return r > 126 }) {
			t.Errorf("%q, %q", plain, painted)
		}
	}
}

func TestTable(t *testing.T) {
	got := sheet{Style: text.Style{Unicode: true}}.table([]string{"A", "B"},
		[][]string{{"x", "y"}, {"longer", strings.Repeat("word ", 20)}})
	want := "A       B\nx       y\nlonger  word word word word word word word word word word word word word word\n   " +
		"     word word word word word word\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// An old report, a silent controller and missing answers are shown, not hidden.
func TestWhatIsOldIsCalledOld(t *testing.T) {
	holder := "a"
	renewed := metav1.NewMicroTime(now.Add(-time.Hour))
	o := Make(Facts{Now: now, Report: &contract.BlockReport{Looked: now.Add(-2 * time.Hour)},
		Leader: &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &renewed}}})
	var out bytes.Buffer
	if err := PrintStatus(&out, text.Style{}, o); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"x no active replica: a renewed its Lease 60m ago", "account reported 120m ago", "is 120m old",
		"none is published on the Nodes",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}

// Every standing is shown in one of the two lists of blocks, and the list of reclaimable blocks includes what to do.
func TestEveryStandingIsShown(t *testing.T) {
	for _, standing := range []string{contract.StandingInUse, contract.StandingBrought, contract.StandingChecking,
		"orphan", "leftover", "empty", "unclear", "retained"} {
		b := Block{ID: "id-of-it", CIDR: "203.0.113.0/29", Standing: standing, For: "Service a/b"}
		var out bytes.Buffer
		if err := PrintBlocks(&out, text.Style{}, Overview{Blocks: []Block{b}}); err != nil {
			t.Fatal(err)
		}
		before, after, _ := strings.Cut(out.String(), "RECLAIMABLE")
		if b.Releasable() != strings.Contains(after, "id-of-it") ||
			b.Releasable() == strings.Contains(before, "id-of-it") && standing != contract.StandingBrought {
			t.Errorf("%s:\n%s", standing, out.String())
		}
		if b.Releasable() && !strings.Contains(after, "- "+standing+": ") {
			t.Errorf("%s: the output does not say what to do:\n%s", standing, out.String())
		}
	}
}

// A block from which no address can be given is shown with its status, and not among the free ones.
func TestUnusableBlocksAreNotFree(t *testing.T) {
	blocks := blocksOf(Facts{
		Report: &contract.BlockReport{Looked: now, Blocks: []contract.ReportedBlock{
			{ID: "id-of-parent", CIDR: netip.MustParsePrefix("203.0.113.0/28"), Status: "subnetted",
				Standing: contract.StandingBrought, Unusable: true},
			{ID: "id-of-part", CIDR: netip.MustParsePrefix("203.0.113.8/29"), Status: "unassigned",
				Standing: contract.StandingBrought},
			{ID: "id-of-pool", CIDR: netip.MustParsePrefix("203.0.113.16/29"), Status: "resting",
				Purpose: contract.PurposePool, Name: "default", Standing: contract.StandingInUse, Unusable: true},
		}},
		Ledgers: []plan.Ledger{plan.NewLedger("id-of-pool", netip.MustParsePrefix("203.0.113.16/29"))},
	})
	var out bytes.Buffer
	if err := PrintBlocks(&out, text.Style{}, Overview{Blocks: blocks}); err != nil {
		t.Fatal(err)
	}
	before, free, _ := strings.Cut(out.String(), "FREE")
	for _, want := range []string{"Services that request it, unusable: subnetted", "pool default, unusable: resting"} {
		if !strings.Contains(strings.Join(strings.Fields(before), " "), want) {
			t.Errorf("%q is missing in\n%s", want, before)
		}
	}
	if strings.Contains(free, "203.0.113.0/28") || strings.Contains(free, "203.0.113.16/29") ||
		!strings.Contains(free, "203.0.113.8/29") {
		t.Errorf("free are\n%s", free)
	}
}

// An unused block that a person brought is shown with the annotation that names it, where that is known.
func TestABroughtBlockIsShownByItsName(t *testing.T) {
	report := &contract.BlockReport{Looked: now, Blocks: []contract.ReportedBlock{
		{ID: "id", CIDR: netip.MustParsePrefix("203.0.113.8/29"), Status: "unassigned",
			Standing: contract.StandingBrought}}}
	for want, brought := range map[string]plan.BroughtBlocks{
		"phoenixnap.com/ip-block: mine": {{Object: "other", BlockID: "id-of-other"}, {Object: "mine", BlockID: "id"}},
		"Services that request it":      nil,
	} {
		var out bytes.Buffer
		blocks := blocksOf(Facts{Report: report, Brought: brought})
		if err := PrintBlocks(&out, text.Style{}, Overview{Blocks: blocks}); err != nil {
			t.Fatal(err)
		}
		_, free, _ := strings.Cut(out.String(), "FREE")
		if !strings.Contains(free, want) {
			t.Errorf("%q is missing in\n%s", want, free)
		}
	}
}

// An orphan that waits for a person is shown with the command that confirms its deletion, and not with the option that
// is on already.
func TestAHeldOrphanIsShownWithItsCommand(t *testing.T) {
	blocks := blocksOf(Facts{Report: &contract.BlockReport{Collecting: true, Blocks: []contract.ReportedBlock{
		{ID: "id-of-it", Standing: "orphan", Held: true},
	}}})
	var out bytes.Buffer
	if err := PrintBlocks(&out, text.Style{}, Overview{Blocks: blocks}); err != nil {
		t.Fatal(err)
	}
	shown := strings.Join(strings.Fields(out.String()), " ")
	const command = "kubectl annotate ipb <name> phoenixnap.com/allow-release=true && kubectl delete ipb <name>"
	if !strings.Contains(shown, command) ||
		strings.Contains(shown, "set --collect-orphans") {
		t.Error(out.String())
	}
}

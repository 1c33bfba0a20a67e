package check

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files again")

func TestGoodNode(t *testing.T) {
	report := Evaluate(nodeWith())
	passedOver := []ID{StrictARP, MarkBits}
	for _, f := range report.Findings {
		if f.Status != OK && !slices.Contains(passedOver, f.ID) {
			t.Errorf("%s is %s (%s%s), want OK", f.ID, f.Status, f.Cause, f.Because)
		}
	}
	want := Outcome{Status: OK, Reason: ReasonReady,
		Message: "interface bond0.100 of server 0123456789abcdef01234567 is ready for the public network"}
	if diff := cmp.Diff(want, report.Outcome()); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	if report.Interface != "bond0.100" || report.Uplink != "bond0" || report.Source != "192.0.2.2" {
		t.Errorf("interface %q, uplink %q, source %q", report.Interface, report.Uplink, report.Source)
	}
	if f, found := report.FirstCause(); found {
		t.Errorf("first cause %s %s of a healthy node", f.ID, f.Reason)
	}
	checkGolden(t, "good node", report)
}

func TestFaults(t *testing.T) {
	for name, f := range faults() {
		t.Run(name, func(t *testing.T) {
			report := Evaluate(nodeWith(f.inject))
			got, found := report.FirstCause()
			if !found || got.ID != f.id || got.Status != f.status || got.Reason != f.reason {
				t.Errorf("first cause is %s %s %s (%s), want %s %s %s", got.ID, got.Status, got.Reason, got.Observed,
					f.id, f.status, f.reason)
			}
			if got.Cause == "" || len(got.Fixes) == 0 && f.status != Unknown {
				t.Errorf("%s has cause %q and %d fixes; both must be there", got.ID, got.Cause, len(got.Fixes))
			}
			if v := report.Outcome(); v.Status != f.nodeStatus() || v.Status != OK && v.Reason != f.reason {
				t.Errorf("result is %s %s, want %s %s", v.Status, v.Reason, f.nodeStatus(), f.reason)
			}
			checkReport(t, name, report)
		})
	}
}

// checkReport compares what differs from the good node with testdata: a check that passes on both is in no file but
// that of the good node. What is left out must follow from the rest, so nothing goes unseen.
func checkReport(t *testing.T, name string, report Report) {
	t.Helper()
	good := Evaluate(nodeWith())
	less := difference(report)
	if diff := cmp.Diff(notOK(report), notOK(good.With(less))); diff != "" {
		t.Errorf("the report is not what its difference to the good node's gives (-report +difference):\n%s", diff)
	}
	checkGolden(t, name, less)
}

// difference leaves out what passes here and on the good node, what is the same there, and what is skipped because of a
// finding that is not left out.
func difference(report Report) Report {
	good := Evaluate(nodeWith())
	report.Findings = slices.DeleteFunc(slices.Clone(report.Findings), func(f Finding) bool {
		there := good.Finding(f.ID)
		return f.Status == OK && there.Status == OK || cmp.Equal(f, there) || strings.HasPrefix(f.Because, becauseOf)
	})
	return report
}

func notOK(report Report) Report {
	report.Findings = slices.DeleteFunc(slices.Clone(report.Findings), func(f Finding) bool { return f.Status == OK })
	return report
}

func checkGolden(t *testing.T, name string, report Report) {
	t.Helper()
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
		t.Errorf("report differs from %s; run go test ./agent/verify/check -update if it should (-want +got):\n%s",
			path, diff)
	}
}

package reference

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/diagnose"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

const root = "../../../.."

func rendered(t *testing.T) map[string]string {
	t.Helper()
	pages, err := Findings(root)
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// TestEveryFindingIsDocumented: what the command prints as the place to read more must be there.
func TestEveryFindingIsDocumented(t *testing.T) {
	for _, e := range diagnose.Entries() {
		if e.Meaning == "" || len(e.Reasons) > 0 && (len(e.Causes) == 0 || e.Remedy == "") {
			t.Errorf("%s has meaning %q, causes %q, remedy %q; all must be there", e.ID, e.Meaning, e.Causes, e.Remedy)
		}
		if diagnose.Group(e.ID) == "Others" {
			t.Errorf("%s belongs to no group", e.ID)
		}
	}
	for _, f := range check.Evaluate(check.Expected{}, check.Snapshot{}).Findings {
		page, ours := strings.CutPrefix(f.Doc, "https://github.com/phoenixnap/k8s-cloud-provider-bmc/blob/main/")
		if _, err := os.Stat(filepath.Join(root, page)); err != nil || !ours {
			t.Errorf("%s leads to %s: %v", f.ID, f.Doc, err)
		}
	}
}

// TestEveryReasonHasAnExample: a reason that no fixture shows is either dead or not tested.
func TestEveryReasonHasAnExample(t *testing.T) {
	pages := rendered(t)
	for _, e := range diagnose.Entries() {
		for _, reason := range e.Reasons {
			if !strings.Contains(pages[findingPages+"/"+fileOf(e.ID)], "\n`"+reason+"`:\n") {
				t.Errorf("%s: no example of the reason %s", e.ID, reason)
			}
		}
	}
}

func TestWrite(t *testing.T) {
	directory := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(directory, findingPages), 0o755))
	must(t, os.WriteFile(filepath.Join(directory, findingPages, "pn999.md"), []byte("a finding of old"), 0o644))
	wanted := rendered(t)
	before, err := Differences(directory, wanted)
	must(t, err)
	if len(before) != len(wanted)+1 || !slices.Contains(before, findingPages+"/pn999.md") {
		t.Errorf("%d pages differ before, want all %d and that of old", len(before), len(wanted))
	}
	must(t, Write(directory, wanted))
	after, err := Differences(directory, wanted)
	must(t, err)
	if diff := cmp.Diff([]string(nil), after); diff != "" {
		t.Errorf("pages differ after they were written (-want +got):\n%s", diff)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

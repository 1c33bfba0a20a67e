package development

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../../.."

// TestThePageIsFollowed makes each change of the page in a copy of the repository. The test that it names passes then.
// Of one file at a time the change is left out, and the test fails.
func TestThePageIsFollowed(t *testing.T) {
	needed := map[string]string{
		AddACheck:                             "agent/verify/check/link.go",
		"Add an annotation":                   "pkg/contract/names.go",
		"Add an announcer":                    "controller/loadbalancer/announcer/announcer.go",
		"Add an API failure to the simulator": "test/sim/pnapsim/faults.go",
	}
	walkthroughs, err := Walkthroughs(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(walkthroughs) != len(needed) {
		t.Errorf("the page has %d walk-throughs, want %d", len(walkthroughs), len(needed))
	}
	for _, w := range walkthroughs {
		t.Run(w.Title, func(t *testing.T) {
			t.Parallel()
			whole, err := workspace(t.Context(), root, w.Title)
			t.Cleanup(func() { _ = os.RemoveAll(whole) })
			if err != nil {
				t.Fatal(err)
			}
			if err := w.follow(t.Context(), whole); err != nil {
				t.Fatal(err)
			}
			touched, err := differences(root, whole)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d files touched: %s", len(touched), strings.Join(touched, " "))
			for _, file := range w.files() {
				if !slices.Contains(touched, file) {
					t.Errorf("the change of %s changes nothing", file)
				}
			}
			wantFailure(t, w, whole, needed[w.Title])
		})
	}
}

// wantFailure takes the change of one file back and runs the test again.
func wantFailure(t *testing.T, w Walkthrough, copied, leftOut string) {
	t.Helper()
	if !slices.Contains(w.files(), leftOut) {
		t.Fatalf("%s changes %q, not %s", w.Title, w.files(), leftOut)
	}
	if err := run(t.Context(), root, fmt.Sprintf("cp %s '%s'", leftOut, filepath.Join(copied, leftOut))); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), copied, w.test()); err == nil {
		t.Errorf("without the change of %s the test passes", leftOut)
	}
}

// test is the last command of the walk-through.
func (w Walkthrough) test() string {
	last := ""
	for _, s := range w.steps {
		if len(s.commands) > 0 {
			last = s.commands[len(s.commands)-1]
		}
	}
	return last
}

func (w Walkthrough) files() []string {
	var files []string
	for _, s := range w.steps {
		if s.change != nil {
			files = append(files, s.change.file)
		}
	}
	return files
}

func TestHunks(t *testing.T) {
	lines := []string{"a := 1", "\tb  := 2", "c := 3"}
	got, err := applyHunk(lines, []string{" a …", "-b := 2", "+b := 4"})
	if err != nil || !slices.Equal(got, []string{"a := 1", "b := 4", "c := 3"}) {
		t.Errorf("got %q, %v", got, err)
	}
	for _, hunk := range [][]string{{" d := 1", "+e"}, {" …", "+e"}} {
		if got, err := applyHunk(lines, hunk); err == nil {
			t.Errorf("%q is applied: %q", hunk, got)
		}
	}
}

func TestAPatchIsRead(t *testing.T) {
	for _, wrong := range []string{"+++ b/x\n--- a/x\n@@", "--- a/x\n+++ b/x\nlost", "--- a/x\n+++ b/x\n@@\n*"} {
		if _, err := parseChange(strings.Split(wrong, "\n")); err == nil {
			t.Errorf("%q is read as a patch", wrong)
		}
	}
}

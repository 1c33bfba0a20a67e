package mutants

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const root = "../../.."

func lists(t *testing.T) (kept, survivors []Mutation) {
	t.Helper()
	kept, err := Kept()
	if err != nil {
		t.Fatal(err)
	}
	survivors, err = Survivors()
	if err != nil {
		t.Fatal(err)
	}
	return kept, survivors
}

// Code that changes takes the mutations with it: each one of the list still occurs once, and a survivor at least once.
func TestListedMutationsApply(t *testing.T) {
	kept, survivors := lists(t)
	seen := map[string]bool{}
	for _, m := range kept {
		if _, err := m.Apply(root); err != nil {
			t.Error(err)
		}
		if m.Why == "" || m.Old == m.New || seen[m.key()] {
			t.Errorf("it gives no reason, changes nothing or is listed twice: %s", m)
		}
		declared := func(tests string) bool {
			pkg, names := namesOf(tests, m.Test)
			return names != "" && slices.Contains(testNames(t, pkg), m.Test)
		}
		if m.Test != "" && !slices.ContainsFunc(testsOf(m), declared) {
			t.Errorf("no package has %s, which is to detect %s", m.Test, m)
		}
		seen[m.key()] = true
	}
	for _, m := range survivors {
		raw, err := os.ReadFile(filepath.Join(root, m.File))
		if err != nil {
			t.Error(err)
		}
		if m.Why == "" || !strings.Contains(oneLine(string(raw)), oneLine(m.Old)) {
			t.Errorf("it gives no reason, or its text does not occur any more: %s", m)
		}
	}
	// a test's output takes everything
	_, _ = fmt.Fprintf(t.Output(), "figure mutants_kept %d mutations\n", len(kept))
}

// testNames returns the tests of a package.
func testNames(t *testing.T, pkg string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(raw), -1) {
			names = append(names, found[1])
		}
	}
	return names
}

// Each mutation of the list compiles, so that its tests can fail. As many as possible are built at once.
func TestKeptMutationsCompile(t *testing.T) {
	kept, _ := lists(t)
	for len(kept) > 0 {
		var now, later []Mutation
		for _, m := range kept {
			if _, err := Overlay(root, t.TempDir(), append(slices.Clone(now), m)); err == nil {
				now = append(now, m)
			} else {
				later = append(later, m)
			}
		}
		if len(now) == 0 {
			t.Fatalf("they do not apply: %v", later)
		}
		wantCompiled(t, now)
		kept = later
	}
}

// wantCompiled builds mutations at once. One may need what another took away, so those in a file with errors are built
// again one by one.
func wantCompiled(t *testing.T, mutations []Mutation) {
	t.Helper()
	failed, out := build(t, mutations)
	for _, m := range mutations {
		if !failed[m.File] {
			continue
		}
		if again, out := build(t, []Mutation{m}); len(again) > 0 {
			t.Errorf("it does not compile: %s\n%s", m, out)
		}
	}
	if len(failed) == 0 && out != "" {
		t.Error(out)
	}
}

// build returns the files that the compiler complained about, and what it said.
func build(t *testing.T, mutations []Mutation) (failed map[string]bool, out string) {
	t.Helper()
	overlay, err := Overlay(root, t.TempDir(), mutations)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"build", "-gcflags=-e"}
	for _, m := range mutations {
		if pkg := "./" + path.Dir(m.File); !slices.Contains(args, pkg) {
			args = append(args, pkg)
		}
	}
	out, passed, err := goTool(t.Context(), root, overlay, args...)
	if err != nil {
		t.Fatal(err)
	}
	failed = map[string]bool{}
	for _, m := range mutations {
		if !passed && strings.Contains(out, flat(m.File)+":") {
			failed[m.File] = true
		}
	}
	return failed, out
}

func TestGenerate(t *testing.T) {
	found, err := mutationsOf("p.go", []byte(`package p

func f(a, b int) (bool, error) {
	if a < b && !done {
		g(a)
		klog.Info("x")
	}
	return true, err
}

var name = "a" + suffix
`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range found {
		got = append(got, oneLine(m.New))
	}
	want := []string{
		"if !(a < b && !done) {", "if a < b {", "if !done {", "if a <= b && !done {", "if a < b && done {", "",
		"return false, err", "return true, nil",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("mutations (-want +got):\n%s", diff)
	}
}

// The same mutations are chosen as long as their lines are the same.
func TestGenerateIsStable(t *testing.T) {
	first, err := Generate(root, 5)
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]int{}
	agent := 0
	for _, m := range first {
		if of[path.Dir(m.File)]++; strings.HasPrefix(m.File, "agent/") {
			agent++
		}
	}
	for _, target := range targets {
		if want := 5 * max(target.share, 1); of[target.pkg] != want {
			t.Errorf("%d mutations of %s, want %d", of[target.pkg], target.pkg, want)
		}
	}
	if agent < 100 {
		t.Errorf("%d mutations of the agent, want a hundred", agent)
	}
	again, err := Generate(root, 5)
	if err != nil || !slices.EqualFunc(first, again, func(a, b Mutation) bool { return a.key() == b.key() }) {
		t.Errorf("%v, %v; want %v", again, err, first)
	}
}

// The outcomes are right, and the tree stays unchanged.
func TestTry(t *testing.T) {
	dir := t.TempDir()
	code := "package p\n\nfunc f(a int) bool { return a < 3 }\n"
	for name, text := range map[string]string{
		"go.mod": "module example.test/p\n\ngo 1.26\n", "p/p.go": code,
		"p/p_test.go": "package p\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) {\n" +
			"\tif !f(1) || f(4) {\n\t\tt.Error(\"wrong\")\n\t}\n}\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for with, want := range map[string]string{
		"a > 3": "killed by p TestF", "a <= 3": "survived by no test", "a <": "invalid by p",
	} {
		for _, test := range []string{"", "TestF", "TestG"} {
			m := Mutation{File: "p/p.go", Old: "a < 3", New: with, Test: test, at: -1}
			got, by, err := Try(t.Context(), dir, m)
			if said := fmt.Sprintf("%s by %s", got, by); err != nil || said != want {
				t.Errorf("%s, first %q: %s, %v; want %s", with, test, said, err, want)
			}
		}
	}
	if raw, err := os.ReadFile(filepath.Join(dir, "p/p.go")); err != nil || string(raw) != code {
		t.Errorf("the file is %s, %v", raw, err)
	}
}

func TestReport(t *testing.T) {
	explained := Mutation{File: "p.go", Old: "a", New: "b"}
	other := Mutation{File: "p.go", Old: "a", New: "c"}
	for name, c := range map[string]struct {
		m       Mutation
		outcome Outcome
		wrong   bool
	}{
		"killed":                        {other, Killed, false},
		"survived with a reason":        {explained, Survived, false},
		"survived without a reason":     {other, Survived, true},
		"killed although it has one":    {explained, Killed, true},
		"invalid, which proves nothing": {other, Invalid, false},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			r := report{out: &out, reasons: map[string]string{explained.key(): "no test can see it"}}
			r.add(c.m, c.outcome, "p", time.Second)
			if err := r.end(); errors.Is(err, ErrUnexplained) != c.wrong {
				t.Errorf("got %v:\n%s", err, out.String())
			}
			tried := map[bool]string{true: "figure mutants_tried 0", false: "figure mutants_tried 1"}
			if !strings.Contains(out.String(), tried[c.outcome == Invalid]) {
				t.Errorf("printed:\n%s", out.String())
			}
		})
	}
}

// The mutations of the announcer are counted apart.
func TestReportOfTheAnnouncer(t *testing.T) {
	var out strings.Builder
	r := report{out: &out, reasons: map[string]string{}}
	r.add(Mutation{File: announcerFiles + "p.go"}, Survived, "p", time.Second)
	r.add(Mutation{File: announcerFiles + "p.go"}, Killed, "p", time.Second)
	r.add(Mutation{File: "p.go"}, Survived, "p", time.Second)
	if err := r.end(); err == nil {
		t.Error("survivors without a reason are no error")
	}
	for _, want := range []string{"announcer_mutants_tried 2 ", "announcer_mutants_survived 1 ", " mutants_tried 3 "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}

// TestTargets: packages have tests, and each name that selects one of them is that of a test.
func TestTargets(t *testing.T) {
	for _, target := range targets {
		for _, tests := range target.tests {
			pkg, names := namesOf(tests, "")
			all := testNames(t, pkg)
			selected := slices.DeleteFunc(slices.Clone(all), func(name string) bool {
				return names != "." && !regexp.MustCompile(names).MatchString(name)
			})
			if wanted := strings.Count(names, "|") + 1; len(all) == 0 || names != "." && len(selected) != wanted {
				t.Errorf("%s: of %d tests in %s %s selects %q, want %d", target.pkg, len(all), pkg, names, selected,
					wanted)
			}
		}
	}
}

func TestNamesOf(t *testing.T) {
	for _, c := range [][4]string{
		{"p", "", "p", "."}, {"p", "TestA", "p", "^TestA$"}, {"p ^Test(A|B)$", "", "p", "^Test(A|B)$"},
		{"p ^Test(A|B)$", "TestB", "p", "^TestB$"}, {"p ^Test(A|B)$", "TestC", "p", ""},
	} {
		if pkg, names := namesOf(c[0], c[1]); pkg != c[2] || names != c[3] {
			t.Errorf("%q, first %q: %q of %q, want %q of %q", c[0], c[1], names, pkg, c[3], c[2])
		}
	}
}

package reference

import (
	"cmp"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

//go:embed remedies.yaml
var followedRemedies []byte

// followed are remedies that one test carries out in the case for which they are printed.
type followed struct {
	// Test is the directory of a package and the name of a function.
	Test string
	Kind string
	// Of is the package that declares the events; empty for that of the test.
	Of string
	// Tools are those for which the test follows fixes of findings.
	Tools   []check.Tool
	Reasons []string
}

// maxLeft is how many remedies no test follows yet. It only ever becomes smaller.
const maxLeft = 0

// TestRemediesAreFollowed: the list of remedies that a test follows names only remedies that are printed and tests that
// exist and name the case; those that no test follows become fewer.
func TestRemediesAreFollowed(t *testing.T) {
	const root = "../../../.."
	all, err := Remedies(root)
	if err != nil {
		t.Fatal(err)
	}
	var lists []followed
	if err := yaml.UnmarshalStrict(followedRemedies, &lists); err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	left := map[string]bool{}
	for _, r := range all {
		left[r.String()] = true
		names[r.String()] = r.Name
	}
	for _, list := range lists {
		source := sourceOfTest(t, root, list.Test)
		for _, reason := range list.Reasons {
			for _, r := range list.remedies(reason) {
				if !namesCase(source, reason, names[r.String()]) {
					t.Errorf("%s does not name %s", list.Test, reason)
				}
				if !left[r.String()] {
					t.Errorf("%s: %s is not printed, or followed by another test", list.Test, r)
				}
				delete(left, r.String())
			}
		}
	}
	rest := slices.DeleteFunc(slices.Clone(all), func(r Remedy) bool { return !left[r.String()] })
	t.Logf("figure remedies_printed %d remedies", len(all))
	t.Logf("figure remedies_followed %d remedies", len(all)-len(rest))
	if len(rest) != maxLeft {
		t.Errorf("no test follows %d remedies, and the test says %d: a new one needs a test; lower the number when "+
			"one more is followed: %q", len(rest), maxLeft, rest)
	}
}

// remedies are those of a reason that the list claims.
func (f followed) remedies(reason string) []Remedy {
	switch {
	case f.Kind == "event":
		directory, _, _ := strings.Cut(f.Test, " ")
		return []Remedy{{Kind: f.Kind, Reason: reason, Package: cmp.Or(f.Of, directory)}}
	case len(f.Tools) == 0:
		return []Remedy{{Kind: f.Kind, Reason: reason}}
	}
	var all []Remedy
	for _, tool := range f.Tools {
		all = append(all, Remedy{Kind: f.Kind, Reason: reason, Tool: tool})
	}
	return all
}

// sourceOfTest is the text of all tests of the package, in which the function has to be.
func sourceOfTest(t *testing.T, root, test string) string {
	t.Helper()
	directory, function, _ := strings.Cut(test, " ")
	paths, err := filepath.Glob(filepath.Join(root, directory, "*_test.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: no tests (%v)", directory, err)
	}
	var all strings.Builder
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	if !strings.Contains(all.String(), fmt.Sprintf("\nfunc %s(t *testing.T) {", function)) {
		t.Errorf("%s has no %s", directory, function)
	}
	return all.String()
}

// namesCase reports whether the source has the reason or the name of its constant.
func namesCase(source, reason, constant string) bool {
	words := []string{regexp.QuoteMeta(reason)}
	if constant != "" {
		words = append(words, regexp.QuoteMeta(constant))
	}
	return regexp.MustCompile(`\b(` + strings.Join(words, "|") + `)\b`).MatchString(source)
}

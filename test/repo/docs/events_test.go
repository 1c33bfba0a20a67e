package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/docs/reference"
)

// TestEveryEventOfTheControllerHasATest: a documented reason of an event that no test of its package names is a promise
// that nothing holds.
func TestEveryEventOfTheControllerHasATest(t *testing.T) {
	all := declared(t)
	tables, err := reference.Selections(all)
	if err != nil {
		t.Fatal(err)
	}
	held := 0
	for _, c := range all {
		event := strings.HasPrefix(c.Block, "Reasons of the events") && strings.HasPrefix(c.Package, "controller/")
		if !event || !reference.Lists(tables, c) {
			continue
		}
		if namedByTest(t, c) {
			held++
			continue
		}
		t.Errorf("%s.%s: no test of the package names the event %s", c.Package, c.Name, c.Value)
	}
	if held < 40 {
		t.Errorf("only %d events of the controller found", held)
	}
	t.Logf("figure controller_events_with_a_test %d", held)
}

// namedByTest reports whether a test of the constant's package names the constant or its value.
func namedByTest(t *testing.T, c reference.Constant) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(c.Package), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`\b(` + c.Name + `|` + c.Value + `)\b`)
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if names.Match(source) {
			return true
		}
	}
	return false
}

package docs

import (
	"regexp"
	"strings"
	"testing"
)

// servicesTest is the test of kinds of Services; each kind is a subtest.
const servicesTest = "test/scenario/services.TestServices"

// named are the parts of a test that a page names: package, test and, where it has kinds, the kind.
var named = regexp.MustCompile(`^([a-z0-9/]+)\.(Test[A-Za-z0-9]+)(?:/([A-Za-z_]+))?$`)

// TestEveryChangeIsBackedByATest: the page says what a change costs, a comment at the end of each line names who knows it.
func TestEveryChangeIsBackedByATest(t *testing.T) {
	const page = "docs/reference/service-changes.md"
	comment := regexp.MustCompile(`<!-- ([^>]*) --> \|$`)
	tests := inventory{T: t, declared: map[string]map[string]bool{}, kinds: kindsOfServices(t)}
	lines := 0
	for line := range strings.Lines(read(t, page)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| ") || strings.Count(line, " | ") != 2 || strings.HasPrefix(line, "| change |") {
			continue
		}
		lines++
		match := comment.FindStringSubmatch(line)
		if match == nil {
			t.Errorf("%s: no test is named at the end of %s", page, line)
			continue
		}
		for _, name := range strings.Fields(match[1]) {
			if problem := tests.lacks(name); problem != "" {
				t.Errorf("%s: %s", page, problem)
			}
		}
	}
	if lines < 25 {
		t.Errorf("only %d changes found; the pattern is out of date", lines)
	}
}

// inventory knows which tests there are.
type inventory struct {
	*testing.T
	declared map[string]map[string]bool
	kinds    map[string]bool
}

// lacks says what is wrong with the name of a test.
func (i inventory) lacks(name string) string {
	i.Helper()
	parts := named.FindStringSubmatch(name)
	if parts == nil {
		return name + " is no package and test"
	}
	pkg, test, kind := parts[1], parts[2], parts[3]
	if i.declared[pkg] == nil {
		i.declared[pkg] = testsIn(i.T, pkg)
	}
	switch {
	case !i.declared[pkg][test]:
		return pkg + " has no test " + test
	case pkg+"."+test == servicesTest && !i.kinds[kind]:
		return servicesTest + " has no kind " + kind
	}
	return ""
}

// kindsOfServices are the subtests of the test of kinds of Services: those of the page, which that package holds against its code.
func kindsOfServices(t *testing.T) map[string]bool {
	t.Helper()
	kinds := map[string]bool{}
	for _, match := range regexp.MustCompile("(?m)^\\| .* \\| `([^`|]+)` \\|$").FindAllStringSubmatch(read(t, "docs/reference/service-kinds.md"), -1) {
		kinds[strings.ReplaceAll(match[1], " ", "_")] = true
	}
	if len(kinds) < 15 {
		t.Fatalf("only %d kinds of Services found", len(kinds))
	}
	return kinds
}

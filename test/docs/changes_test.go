package docs

import (
	"regexp"
	"strings"
	"testing"
)

// TestEveryChangeIsBackedByATest: the page says what a change costs, a comment at the end of each line names who knows it.
func TestEveryChangeIsBackedByATest(t *testing.T) {
	const page = "docs/reference/service-changes.md"
	comment := regexp.MustCompile(`<!-- ([^>]*) --> \|$`)
	named := regexp.MustCompile(`^([a-z0-9/]+)\.(Test[A-Za-z0-9]+)$`)
	declared := map[string]map[string]bool{}
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
			parts := named.FindStringSubmatch(name)
			if parts == nil {
				t.Errorf("%s: %s is no package and test", page, name)
				continue
			}
			if declared[parts[1]] == nil {
				declared[parts[1]] = testsIn(t, parts[1])
			}
			if !declared[parts[1]][parts[2]] {
				t.Errorf("%s: %s has no test %s", page, parts[1], parts[2])
			}
		}
	}
	if lines < 25 {
		t.Errorf("only %d changes found; the pattern is out of date", lines)
	}
}

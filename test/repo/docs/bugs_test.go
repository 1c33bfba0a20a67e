package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const bugsPage = "docs/explanation/known-bugs.md"

// TestKnownBugsNameTests holds the tests that the page of known bugs names against the source. Every bug has
// a test that exists, or a reason why none can be.
func TestKnownBugsNameTests(t *testing.T) {
	named := regexp.MustCompile("`([a-z0-9/]+)\\.((?:Test|Fuzz)[A-Za-z0-9]+)`")
	declared := map[string]map[string]bool{}
	bugs, tests := 0, 0
	for line := range strings.Lines(read(t, bugsPage)) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| bug ") || len(cells) < 2 {
			continue
		}
		bugs++
		last := cells[len(cells)-1]
		found := named.FindAllStringSubmatch(last, -1)
		if len(cells) != 3 || (len(found) == 0 && !strings.Contains(last, "by construction")) {
			t.Errorf("%s: no test, and not said to be impossible by construction: %s", bugsPage, line)
		}
		for _, match := range found {
			tests++
			if declared[match[1]] == nil {
				declared[match[1]] = testsIn(t, match[1])
			}
			if !declared[match[1]][match[2]] {
				t.Errorf("%s: %s has no test %s", bugsPage, match[1], match[2])
			}
		}
	}
	if bugs < 80 || tests < 100 {
		t.Errorf("%d bugs and %d tests found; the pattern is out of date", bugs, tests)
	}
}

// testsIn returns the tests and fuzz functions of a package.
func testsIn(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			if function, ok := decl.(*ast.FuncDecl); ok && function.Recv == nil {
				names[function.Name.Name] = true
			}
		}
	}
	return names
}

// TestNoTestIsSkipped: a test that is skipped for want of something proves nothing, and nobody notices.
func TestNoTestIsSkipped(t *testing.T) {
	skipped := regexp.MustCompile(`\b(t|tb|b|f|w\.t|c\.t|d\.t)\.Skip(Now|f)?\(`)
	files := 0
	for _, dir := range []string{"agent", "controller", "pkg", "test"} {
		if err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			files++
			raw, err := os.ReadFile(path)
			if found := skipped.Find(raw); found != nil {
				t.Errorf("%s holds %s…)", path, found)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if files < 100 {
		t.Errorf("only %d files with tests found", files)
	}
}

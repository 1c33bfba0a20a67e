package docs

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// bugsPage speaks of other projects.
const bugsPage = "docs/reference/known-bugs.md"

// A row of these pages ends in a comment with its key, and whatever proves it says so in a directive: above a test, or
// above the entry of a table of subtests. So no page names a test.
var (
	rowKey    = regexp.MustCompile(`<!-- row: ([a-z0-9-]+) --> \|$`)
	directive = regexp.MustCompile(`^\s*//proves:(\S+)$`)
	testFunc  = regexp.MustCompile(`^func (Test|Fuzz)[A-Z]\w*\(`)
	linked    = regexp.MustCompile(`\]\(\.\./\.\./([a-z0-9/]+)\)`)
)

// provenPages lists the pages, with the least number of their rows.
func provenPages() map[string]int {
	return map[string]int{"docs/reference/service-changes.md": 25, bugsPage: 80}
}

// row is a line of a table.
type row struct{ page, key, text string }

// TestEveryRowIsProved holds the rows of the pages against the tests that prove them, and the other way round.
func TestEveryRowIsProved(t *testing.T) {
	proofs := directives(t)
	for page, least := range provenPages() {
		rows := rowsOf(t, page)
		if len(rows) < least {
			t.Errorf("%s: only %d rows found; the pattern is out of date", page, len(rows))
		}
		for _, r := range rows {
			r.check(t, proofs[r.key])
			delete(proofs, r.key)
		}
	}
	for key, packages := range proofs {
		t.Errorf("%v: //proves:%s names no row of a page", packages, key)
	}
}

// check wants a test for the row, or the reason why none can be, and a test in each package that the row leads to.
func (r row) check(t *testing.T, packages []string) {
	t.Helper()
	if len(packages) == 0 && !strings.Contains(r.text, "| by construction <!--") {
		t.Errorf("%s: no test says //proves:%s, and it is not said to hold by construction: %s", r.page, r.key, r.text)
	}
	cells := strings.Split(r.text, " | ")
	for _, link := range linked.FindAllStringSubmatch(cells[len(cells)-1], -1) {
		if !slices.Contains(packages, link[1]) {
			t.Errorf("%s: no test in %s says //proves:%s", r.page, link[1], r.key)
		}
	}
}

// rowsOf finds the rows of the tables whose last column is about what is done: of three columns, with a key each.
func rowsOf(t *testing.T, page string) []row {
	t.Helper()
	name := strings.TrimSuffix(path.Base(page), ".md")
	var rows []row
	seen := map[string]bool{}
	for line := range strings.Lines(read(t, page)) {
		line = strings.TrimSpace(line)
		heading := strings.HasPrefix(line, "| change |") || strings.HasPrefix(line, "| bug ")
		if !strings.HasPrefix(line, "| ") || strings.Count(line, " | ") < 2 || heading {
			continue
		}
		match := rowKey.FindStringSubmatch(line)
		if match == nil || seen[match[1]] {
			t.Errorf("%s: there is no key of its own at the end of %s", page, line)
			continue
		}
		seen[match[1]] = true
		rows = append(rows, row{page: page, key: name + "/" + match[1], text: line})
	}
	return rows
}

// directives are the packages whose tests prove a row, by its page and key.
func directives(t *testing.T) map[string][]string {
	t.Helper()
	proofs := map[string][]string{}
	for _, file := range testFiles(t) {
		folder := path.Dir(file)
		lines := strings.Split(read(t, file), "\n")
		for i, line := range lines {
			match := directive.FindStringSubmatch(line)
			if match == nil {
				continue
			}
			if !provesByATest(lines[i:]) {
				t.Errorf("%s:%d: no test follows the directive", file, i+1)
			}
			if !slices.Contains(proofs[match[1]], folder) {
				proofs[match[1]] = append(proofs[match[1]], folder)
			}
		}
	}
	return proofs
}

// provesByATest reports whether a directive, the first of the lines, stands above a test or in a table.
func provesByATest(lines []string) bool {
	i := slices.IndexFunc(lines, func(line string) bool { return !strings.HasPrefix(strings.TrimSpace(line), "//") })
	if i < 0 {
		return false
	}
	indent := strings.HasPrefix(lines[0], "\t")
	return indent && strings.HasPrefix(strings.TrimSpace(lines[i]), `{"`) || !indent && testFunc.MatchString(lines[i])
}

// testFiles are the files with tests, relative to the root of the repository.
func testFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, dir := range []string{"agent", "controller", "pkg", "test"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(file string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(file, "_test.go") {
				return err
			}
			relative, err := filepath.Rel(root, file)
			files = append(files, filepath.ToSlash(relative))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(files) < 100 {
		t.Fatalf("only %d files with tests found", len(files))
	}
	return files
}

// TestNoTestIsSkipped: a test that is skipped for want of something proves nothing, and no one notices.
//
//proves:known-bugs/skipped-tests
func TestNoTestIsSkipped(t *testing.T) {
	skipped := regexp.MustCompile(`\b(t|tb|b|f|w\.t|c\.t|d\.t)\.Skip(Now|f)?\(`)
	for _, file := range testFiles(t) {
		if found := skipped.FindString(read(t, file)); found != "" {
			t.Errorf("%s holds %s…)", file, found)
		}
	}
}

package docs

import (
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const testsPage = "test/README.md"

// TestTestsPageNamesEveryPackage: the page lists what each package of tests shows and needs.
func TestTestsPageNamesEveryPackage(t *testing.T) {
	var named []string
	links := regexp.MustCompile(`\[([a-z0-9/]+)\]\(([a-z0-9/]+)\)`)
	for _, match := range links.FindAllStringSubmatch(read(t, testsPage), -1) {
		if match[1] != match[2] {
			t.Errorf("%s: %s leads to %s", testsPage, match[1], match[2])
		}
		named = append(named, match[1])
	}
	folders := withTests(t, filepath.Join(root, "test"))
	if len(folders) < 40 {
		t.Fatalf("only %d packages with tests found", len(folders))
	}
	for _, folder := range folders {
		if !slices.Contains(named, folder) {
			t.Errorf("%s does not name %s", testsPage, folder)
		}
	}
}

// withTests are the folders below top that hold tests.
func withTests(t *testing.T, top string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(top, func(file string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		relative, err := filepath.Rel(top, file)
		if folder := path.Dir(filepath.ToSlash(relative)); !slices.Contains(found, folder) {
			found = append(found, folder)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

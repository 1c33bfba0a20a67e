package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestArchitectureNamesEveryPackage: a newcomer finds each folder of the product on the page, and none that is gone.
func TestArchitectureNamesEveryPackage(t *testing.T) {
	named := map[string]bool{}
	page := read(t, "docs/explanation/architecture.md")
	for _, m := range regexp.MustCompile(`(?m)^((?:controller|agent|pkg)/[a-z0-9-]+)  `).FindAllStringSubmatch(page, -1) {
		named[m[1]] = true
	}
	for _, top := range []string{"controller", "agent", "pkg"} {
		entries, err := os.ReadDir(filepath.Join(root, top))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if folder := top + "/" + e.Name(); e.IsDir() && !named[folder] {
				t.Errorf("the page does not name %s", folder)
			} else {
				delete(named, folder)
			}
		}
	}
	for gone := range named {
		t.Errorf("the page names %s, which is gone", gone)
	}
}

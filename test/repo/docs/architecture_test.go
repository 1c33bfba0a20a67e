package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

const architecture = "docs/explanation/architecture.md"

// TestArchitectureNamesEveryPackage: a newcomer finds each package of the product on the page, and none that is gone.
func TestArchitectureNamesEveryPackage(t *testing.T) {
	named := matches(t, `(?m)^((?:controller|agent|pkg)/[a-z0-9/-]+)  `)
	for _, top := range []string{"controller", "agent", "pkg"} {
		for _, folder := range packages(t, top) {
			if !slices.Contains(named, folder) {
				t.Errorf("%s does not name the package %s", architecture, folder)
			}
			named = slices.DeleteFunc(named, func(name string) bool { return name == folder })
		}
	}
	if len(named) > 0 {
		t.Errorf("%s names the packages %q, which do not exist", architecture, named)
	}
}

// TestRooms: the folders of each part stay few enough to read quickly, and the page explains each.
func TestRooms(t *testing.T) {
	explained := matches(t, "(?m)^\\| `([a-z-]+)` \\|")
	for top, limit := range map[string]int{"agent": 8, "controller": 7, "test": 7} {
		entries, err := os.ReadDir(filepath.Join(root, top))
		if err != nil {
			t.Fatal(err)
		}
		rooms := 0
		for _, e := range entries {
			if !e.IsDir() {
				continue
			}
			rooms++
			if !slices.Contains(explained, e.Name()) {
				t.Errorf("%s does not explain the folder %s/%s", architecture, top, e.Name())
			}
		}
		if rooms > limit {
			t.Errorf("%s has %d folders, want at most %d: put the package into the folder of its purpose", top, rooms,
				limit)
		}
	}
}

// matches is what the first group of a pattern matches on the page.
func matches(t *testing.T, pattern string) []string {
	t.Helper()
	var found []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, architecture), -1) {
		found = append(found, m[1])
	}
	return found
}

// packages are the folders below top with Go files, those of commands excepted.
func packages(t *testing.T, top string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if d.Name() == "cmd" || d.Name() == "testdata" {
			return filepath.SkipDir
		}
		files, err := filepath.Glob(filepath.Join(path, "*.go"))
		folder, _ := filepath.Rel(root, path) // both begin with root
		if len(files) > 0 && folder != top {
			found = append(found, filepath.ToSlash(folder))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

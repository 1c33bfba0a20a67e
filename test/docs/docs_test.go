package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// TestMetricsAreDocumented holds the names of metrics in the code against their page, and the page against the code.
func TestMetricsAreDocumented(t *testing.T) {
	page := read(t, "docs/reference/metrics.md")
	metric := regexp.MustCompile(`"((?:phoenixnap|service_controller)_[a-z_]+)"`)
	inCode := map[string]bool{}
	for _, process := range []string{"controller", "agent"} {
		if err := filepath.WalkDir(filepath.Join(root, process), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "metrics.go") {
				return err
			}
			raw, err := os.ReadFile(path)
			for _, match := range metric.FindAllStringSubmatch(string(raw), -1) {
				inCode[match[1]] = true
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for name := range inCode {
		if !strings.Contains(page, "`"+name+"`") && !strings.Contains(page, "`"+name+"{") {
			t.Errorf("docs/reference/metrics.md: %s is missing", name)
		}
	}
	for _, match := range regexp.MustCompile("(?m)^\\| `([a-z_]+)").FindAllStringSubmatch(page, -1) {
		if !inCode[match[1]] && !strings.HasPrefix(match[1], "service_controller_") {
			t.Errorf("docs/reference/metrics.md: no metric is called %s", match[1])
		}
	}
	if len(inCode) < 20 {
		t.Errorf("only %d metrics found; the pattern is out of date", len(inCode))
	}
}

// TestLinksLeadSomewhere follows every relative link of README and docs.
func TestLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	pages := []string{"README.md"}
	if err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".md") {
			relative, _ := filepath.Rel(root, path) // both begin with root
			pages = append(pages, relative)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	followed := 0
	for _, page := range pages {
		for _, match := range link.FindAllStringSubmatch(read(t, page), -1) {
			followed++
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(page), match[1])); err != nil {
				t.Errorf("%s: the link %s leads nowhere", page, match[1])
			}
		}
	}
	if followed < 20 {
		t.Errorf("only %d links found; the pattern is out of date", followed)
	}
}

// TestTargetsOfTheReadmeExist holds the commands of the README against the Makefile.
func TestTargetsOfTheReadmeExist(t *testing.T) {
	makefile := read(t, "Makefile")
	for _, match := range regexp.MustCompile("make ([a-z-]+)").FindAllStringSubmatch(read(t, "README.md"), -1) {
		if !strings.Contains(makefile, "\n"+match[1]+": ") {
			t.Errorf("README.md names make %s, which the Makefile does not have", match[1])
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

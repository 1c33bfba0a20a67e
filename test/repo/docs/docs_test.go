package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/diagnose"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/development"
)

const root = "../../.."

// elsewhere are the pages that do not lie below docs.
var elsewhere = []string{
	"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "test/README.md",
	"deploy/helm/phoenixnap-cloud-provider/README.md",
}

// pages are those elsewhere and those below docs, by their paths below the root with slashes.
func pages(t *testing.T) []string {
	t.Helper()
	found := slices.Clone(elsewhere)
	if err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".md") {
			relative, _ := filepath.Rel(root, path) // both begin with root
			found = append(found, filepath.ToSlash(relative))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if len(found) < 60 {
		t.Fatalf("only %d pages found", len(found))
	}
	return found
}

// corpus is the text of all files below the directories whose names end with one of the suffixes.
func corpus(t *testing.T, suffixes []string, exclude string, directories ...string) string {
	t.Helper()
	var b strings.Builder
	for _, directory := range directories {
		if err := filepath.WalkDir(filepath.Join(root, directory), func(path string, d fs.DirEntry, err error) error {
			wanted := func(suffix string) bool { return strings.HasSuffix(path, suffix) }
			if err != nil || d.IsDir() || !slices.ContainsFunc(suffixes, wanted) || exclude != "" &&
				strings.HasSuffix(path, exclude) {
				return err
			}
			raw, err := os.ReadFile(path)
			b.Write(raw)
			b.WriteByte('\n')
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// TestNamesInThePagesAreKnown finds names in pages that the code does not have (any more).
func TestNamesInThePagesAreKnown(t *testing.T) {
	product := corpus(t, []string{".go", ".yaml", "run-local"}, "_test.go", "agent", "controller", "pkg", "deploy")
	everything := product + corpus(t, []string{".go", "Makefile", "go.mod"}, "", "test", "Makefile", "agent",
		"controller")
	words := wordsOf(everything + shown(t))
	ids := map[string]bool{}
	for _, e := range diagnose.Entries() {
		ids[string(e.ID)] = true
	}
	for _, kind := range []struct {
		what  string
		names *regexp.Regexp
		known func(string) bool
		least int
	}{
		{"annotation, label or condition", regexp.MustCompile(`(?:phoenixnap\.com|kube-vip\.io)/([A-Za-z-]*[A-Za-z])`),
			func(s string) bool { return strings.Contains(product, s) }, 150},
		{"finding", regexp.MustCompile(`\b(PN\d{3})\b`), func(s string) bool { return ids[s] }, 100},
		{"metric", regexp.MustCompile(`\b(phoenixnap_[a-z_]*[a-z]|service_controller_[a-z_]*[a-z])\b`),
			func(s string) bool {
				for _, suffix := range []string{"_bucket", "_sum", "_count"} {
					s = strings.TrimSuffix(s, suffix)
				}
				s = strings.TrimPrefix(s, "service_controller_") // the name of a subsystem, given apart
				return regexp.MustCompile(`\b` + s + `\b`).MatchString(product)
			}, 40},
		{"environment variable", regexp.MustCompile(`\b(PNAP_[A-Z_]+[A-Z])\b`), func(s string) bool {
			// The agent makes the names of its variables from those of its flags.
			flag, agents := strings.CutPrefix(s, "PNAP_AGENT_")
			flag = strconv.Quote(strings.ToLower(strings.ReplaceAll(flag, "_", "-")))
			return strings.Contains(everything, s) || agents && strings.Contains(product, flag)
		}, 30},
		{"word in code letters", regexp.MustCompile("`((?:[A-Z][a-z0-9]+){2,}[A-Za-z]*)`"),
			func(s string) bool { return words[s] }, 300},
	} {
		found := 0
		for _, page := range pages(t) {
			if page == bugsPage || page == development.Page {
				continue // they speak of other projects, and of what could be added here
			}
			for _, match := range kind.names.FindAllStringSubmatch(outward.ReplaceAllString(read(t, page), ""), -1) {
				found++
				if !kind.known(match[1]) {
					t.Errorf("%s: %s %s is not in the code; a word of others needs a link to its documentation",
						page, kind.what, match[1])
				}
			}
		}
		if found < kind.least {
			t.Errorf("only %d times a %s found; the pattern is out of date", found, kind.what)
		}
	}
}

// outward is a link out of the project. What stands in it is a word of others, explained where the link leads.
var outward = regexp.MustCompile(`\[[^\]\n]*\]\(https://[^)\s]*\)`)

func wordsOf(text string) map[string]bool {
	words := map[string]bool{}
	for _, word := range regexp.MustCompile(`[A-Za-z][A-Za-z0-9]+`).FindAllString(text, -1) {
		words[word] = true
	}
	return words
}

// shown are the blocks of all pages: commands and manifests, which other tests try.
func shown(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, each := range blocks(t) {
		b.WriteString(each.text)
	}
	return b.String()
}

// TestMetricsAreDocumented holds the names of metrics in the code against their page, and the page against the code.
func TestMetricsAreDocumented(t *testing.T) {
	page := read(t, "docs/reference/metrics.md")
	inCode := map[string]bool{}
	for _, match := range regexp.MustCompile(`"((?:phoenixnap|service_controller)_[a-z_]+)"`).FindAllStringSubmatch(
		corpus(t, []string{".go"}, "_test.go", "agent", "controller"), -1) {
		inCode[match[1]] = true
	}
	for name := range inCode {
		if !strings.Contains(page, "| `"+name+"`") && !strings.Contains(page, "| `"+name+"{") {
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

// TestPagesSpeakOfTheProject: how the work on it is organised does not help its users.
func TestPagesSpeakOfTheProject(t *testing.T) {
	forbidden := regexp.MustCompile(
		`(?i)\bissue \d|\bissues? #|\bTODO\b|\bFIXME\b|/(w[o]rk|root|home)/|\bshared/(reference|seeds|design)`)
	for _, page := range pages(t) {
		if found := forbidden.FindString(read(t, page)); found != "" {
			t.Errorf("%s contains %q", page, found)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

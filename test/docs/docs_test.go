package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// TestConstantsAreDocumented holds names that users see in the code against the page that lists them.
func TestConstantsAreDocumented(t *testing.T) {
	for _, tc := range []struct {
		name, file, page string
		// which are the constants that have to be on the page.
		which *regexp.Regexp
		// least is how many there are at least: fewer means that the pattern is out of date.
		least int
	}{
		{"names", "pkg/contract/names.go", "docs/reference/names.md", regexp.MustCompile(`^(Service|Node|Condition|KubeVIP|Announcer)`), 20},
		{"tags", "pkg/contract/tag.go", "docs/reference/names.md", regexp.MustCompile(`^Tag`), 6},
		{"reasons of blocks", "pkg/ipblock/step.go", "docs/reference/names.md", regexp.MustCompile(`.`), 28},
		{"reasons of Services", "controller/balancer/condition.go", "docs/reference/names.md", regexp.MustCompile(`^reason`), 7},
		{"events of Services", "controller/balancer/event.go", "docs/reference/names.md", regexp.MustCompile(`^event`), 6},
		{"events of the service controller", "controller/services/event.go", "docs/reference/names.md", regexp.MustCompile(`^event`), 12},
		{"reasons of the service controller", "controller/services/patch.go", "docs/reference/names.md", regexp.MustCompile(`^reason`), 2},
		{"events of Nodes and their network", "controller/nodes/event.go", "docs/reference/names.md", regexp.MustCompile(`^Reason`), 5},
		{"events of memberships", "controller/membership/event.go", "docs/reference/names.md", regexp.MustCompile(`^Reason`), 9},
		{"events of Nodes", "controller/instances/event.go", "docs/reference/names.md", regexp.MustCompile(`^Reason`), 4},
		{"events of the control-plane endpoint", "controller/controlplane/event.go", "docs/reference/names.md", regexp.MustCompile(`^event`), 5},
		{"events of orphans", "controller/orphans/event.go", "docs/reference/names.md", regexp.MustCompile(`^event`), 4},
		{"standings of orphans", "controller/orphans/judge.go", "docs/reference/metrics.md", regexp.MustCompile(`^(retained|orphan|leftover|empty|unclear)$`), 5},
		{"reasons of announcements", "agent/announcement/catalogue.go", "docs/reference/names.md", regexp.MustCompile(`^Reason[^C]`), 14},
		{"reasons of announced addresses", "pkg/contract/address.go", "docs/reference/names.md", regexp.MustCompile(`^(Address|Announced)`), 5},
		{"events of announcements", "agent/announcement/event.go", "docs/reference/names.md", regexp.MustCompile(`^Event`), 8},
		{"reasons of the managed VLAN interface", "agent/vlan/event.go", "docs/reference/names.md", regexp.MustCompile(`^Reason`), 5},
		{"reasons of the managed return path", "agent/returnpath/keeper.go", "docs/reference/names.md", regexp.MustCompile(`^Reason`), 5},
		{"findings", "agent/check/catalogue.go", "docs/reference/findings.md", regexp.MustCompile(`.`), 18},
	} {
		t.Run(tc.name, func(t *testing.T) {
			page := read(t, tc.page)
			found := 0
			for name, value := range stringConstants(t, tc.file) {
				if !tc.which.MatchString(name) {
					continue
				}
				found++
				if !strings.Contains(page, value) {
					t.Errorf("%s: %q (%s in %s) is missing", tc.page, value, name, tc.file)
				}
			}
			if found < tc.least {
				t.Errorf("%s: only %d constants match %s, want at least %d", tc.file, found, tc.which, tc.least)
			}
		})
	}
}

// TestOptionsAreDocumented holds the controller's options against their page.
func TestOptionsAreDocumented(t *testing.T) {
	page := read(t, "docs/reference/configuration.md")
	source := read(t, "controller/config/options.go")
	names := regexp.MustCompile(`\b(?:field|env|flag): "([^"]+)"`).FindAllStringSubmatch(source, -1)
	if len(names) < 35 {
		t.Fatalf("only %d names of options found; the pattern is out of date", len(names))
	}
	for _, name := range names {
		if !strings.Contains(page, name[1]) {
			t.Errorf("docs/reference/configuration.md: option %s is missing", name[1])
		}
	}
}

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

// TestFlagsOfTheAgentAreDocumented holds the agent's flags against their page.
func TestFlagsOfTheAgentAreDocumented(t *testing.T) {
	page := read(t, "docs/reference/configuration.md")
	flag := regexp.MustCompile(`Var(?:P)?\(&[\w.]+, "([a-z-]+)"`)
	found := 0
	for _, file := range []string{"agent/command.go", "agent/run.go", "agent/managing.go", "agent/diagnose.go", "agent/diagnose_network.go"} {
		raw, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			continue
		}
		for _, match := range flag.FindAllStringSubmatch(string(raw), -1) {
			found++
			if !strings.Contains(page, "--"+match[1]) {
				t.Errorf("docs/reference/configuration.md: flag --%s of %s is missing", match[1], file)
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d flags found; the pattern is out of date", found)
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

// stringConstants returns the string constants of a file by name. Prefix + "x" counts as phoenixnap.com/x.
func stringConstants(t *testing.T, path string) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	constants := map[string]string{}
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.CONST {
			continue
		}
		for _, spec := range gen.Specs {
			value, ok := spec.(*ast.ValueSpec)
			if !ok || len(value.Values) != 1 {
				continue
			}
			if text, ok := literal(value.Values[0]); ok {
				constants[value.Names[0].Name] = text
			}
		}
	}
	return constants
}

func literal(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		text, ok := literal(e.Y)
		return "phoenixnap.com/" + text, ok
	default:
		return "", false
	}
}

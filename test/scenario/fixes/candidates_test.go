package fixes

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/docs/reference"
)

const root = "../../.."

// vlan is the VLAN interface of the server that the checks are tested with.
const vlan = "bond0.100"

// course is what several findings or recipes have in common: the files that they write and the commands that edit
// files.
type course struct {
	names []string
	fixes []check.Fix
}

func (c course) String() string { return strings.Join(c.names, " or ") }

// courses are all that write files with this tool, or run commands that begin with one of the words: those of the
// guide, and those of every finding that the checks are tested with.
func courses(t *testing.T, tool check.Tool, words ...string) []course {
	t.Helper()
	examples, err := reference.Examples(root)
	must(t, "read the findings", err)
	all, err := Guide(root, tool)
	must(t, "read the guide", err)
	for _, id := range slices.Sorted(maps.Keys(examples)) {
		for _, f := range examples[id] {
			all = append(all, Candidate{Name: fmt.Sprintf("%s %s", f.ID, f.Reason), Fixes: f.Fixes})
		}
	}
	var found []course
	for _, c := range all {
		fixes := essence(c.Fixes, tool, words)
		i := slices.IndexFunc(found, func(other course) bool { return fmt.Sprint(other.fixes) == fmt.Sprint(fixes) })
		switch {
		case len(fixes) == 0:
		case i < 0:
			found = append(found, course{names: []string{c.Name}, fixes: fixes})
		case !slices.Contains(found[i].names, c.Name):
			found[i].names = append(found[i].names, c.Name)
		default:
		}
	}
	if len(found) < 4 {
		t.Fatalf("only %d ways to fix something with %s: the test shows nothing", len(found), tool)
	}
	return found
}

// essence keeps of fixes the files of a tool and the commands that begin with one of the words.
func essence(fixes []check.Fix, tool check.Tool, words []string) []check.Fix {
	var kept []check.Fix
	for _, fix := range fixes {
		commands := slices.DeleteFunc(slices.Clone(fix.Commands), func(c string) bool {
			return !slices.ContainsFunc(words, func(word string) bool { return strings.HasPrefix(c, word) })
		})
		if fix.Tool == tool && (fix.File != "" || len(commands) > 0) {
			kept = append(kept, check.Fix{File: fix.File, Content: fix.Content, Commands: commands})
		}
	}
	return kept
}

// everyPair calls try with each course and each other, in both orders, and counts the findings and recipes that they
// stand for.
func everyPair(all []course, try func(i, j int)) (number int) {
	for i, first := range all {
		for j, second := range all {
			try(i, j)
			number += len(first.names) * len(second.names)
		}
	}
	return number
}

// pairs counts what the tests of all tools tried, and what broke.
var pairs struct{ tried, broken int }

// TestMain prints the sums over all tools.
func TestMain(m *testing.M) {
	code := m.Run()
	if pairs.tried > 0 {
		fmt.Fprintf(os.Stdout, "figure fix_pairs_tried %d pairs\n", pairs.tried)
		fmt.Fprintf(os.Stdout, "figure fix_pairs_broken %d pairs\n", pairs.broken)
	}
	os.Exit(code)
}

// count adds the pairs of a tool to those of all.
func count(t *testing.T, tool check.Tool, tried, broken int) {
	t.Helper()
	t.Logf("figure fix_pairs_tried_%s %d pairs", tool, tried)
	t.Logf("figure fix_pairs_broken_%s %d pairs", tool, broken)
	pairs.tried += tried
	pairs.broken += broken
}

func must(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func unpack(t *testing.T) Programs {
	t.Helper()
	p, err := Unpack(t.Context())
	must(t, "get the tools", err)
	return p
}

// run runs a program and returns what it printed, also when it fails.
func (p Programs) run(t *testing.T, stdin, program string, arguments ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, arguments...)
	cmd.Env = p.Environment
	cmd.Stdin = strings.NewReader(stdin)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", filepath.Base(program), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), err
}

// write writes a file below a directory that stands for "/", whole.
func write(t *testing.T, directory, path, content string) {
	t.Helper()
	target := filepath.Join(directory, path)
	must(t, "write "+path, os.MkdirAll(filepath.Dir(target), 0o755))
	must(t, "write "+path, os.WriteFile(target, []byte(content), 0o600))
}

// settings takes a configuration of sections apart: one entry for each line of a section that stands once, one for each
// section that may stand several times, such as a route.
func settings(file, text string) map[string]bool {
	set := map[string]bool{}
	for _, section := range strings.Split("\n"+text, "\n[")[1:] {
		name, body, _ := strings.Cut(section, "]\n")
		lines := strings.Fields(strings.ReplaceAll(body, " ", "_"))
		if name == "Route" || name == "RoutingPolicyRule" {
			slices.Sort(lines)
			lines = []string{strings.Join(lines, " ")}
		}
		for _, line := range lines {
			set[fmt.Sprintf("%s [%s] %s", file, name, line)] = true
		}
	}
	return set
}

// missing are the entries of want that got lacks, sorted.
func missing(want, got map[string]bool) []string {
	var lacks []string
	for entry := range want {
		if !got[entry] {
			lacks = append(lacks, entry)
		}
	}
	slices.Sort(lacks)
	return lacks
}

// added are the entries of after that before lacks.
func added(before, after map[string]bool) map[string]bool {
	set := map[string]bool{}
	for _, entry := range missing(after, before) {
		set[entry] = true
	}
	return set
}

package fixes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/diagnose/pages"
)

const root = "../.."

// vlan is the VLAN interface of the server that the checks are tested with.
const vlan = "bond0.100"

// candidate is what a person does about a finding, or by the guide, with one tool.
type candidate struct {
	name  string
	fixes []check.Fix
}

// candidates are all that write files or run a command that begins with one of the words, with this tool.
func candidates(t *testing.T, tool check.Tool, commands ...string) []candidate {
	t.Helper()
	examples, err := pages.Examples(filepath.Join(root, "agent", "check", "testdata"))
	must(t, "read the findings", err)
	found := fromGuide(t, tool)
	for _, id := range sortedIDs(examples) {
		for _, f := range examples[id] {
			fixes := slices.DeleteFunc(slices.Clone(f.Fixes), func(fix check.Fix) bool {
				return fix.Tool != tool || fix.File == "" && !slices.ContainsFunc(fix.Commands, func(c string) bool {
					return slices.ContainsFunc(commands, func(word string) bool { return strings.HasPrefix(c, word) })
				})
			})
			c := candidate{name: fmt.Sprintf("%s %s", f.ID, f.Reason), fixes: fixes}
			if len(fixes) > 0 && !slices.ContainsFunc(found, func(other candidate) bool { return same(c, other) }) {
				found = append(found, c)
			}
		}
	}
	if len(found) < 4 {
		t.Fatalf("only %d fixes for %s: the test shows nothing", len(found), tool)
	}
	return found
}

// same reports whether two candidates of one finding do the same.
func same(a, b candidate) bool { return a.name == b.name && fmt.Sprint(a.fixes) == fmt.Sprint(b.fixes) }

func sortedIDs(examples map[check.ID][]check.Finding) []check.ID {
	var ids []check.ID
	for id := range examples {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

var (
	recipe  = regexp.MustCompile("(?s)<!-- begin ([a-z-]+): written by make docs -->\n(.*?)<!-- end ")
	written = regexp.MustCompile("(?s)Write to `([^`]+)`:\n\n```\n(.*?)```\n")
	typed   = regexp.MustCompile("(?s)```sh\n(.*?)\n```\n")
)

// fromGuide are the recipes of the guide for a tool.
func fromGuide(t *testing.T, tool check.Tool) []candidate {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs", "guides", "network.md"))
	must(t, "read the guide", err)
	var found []candidate
	for _, match := range recipe.FindAllStringSubmatch(string(page), -1) {
		if !strings.HasSuffix(match[1], "-"+string(tool)) {
			continue
		}
		c := candidate{name: "guide " + match[1]}
		for _, file := range written.FindAllStringSubmatch(match[2], -1) {
			c.fixes = append(c.fixes, check.Fix{Tool: tool, File: file[1], Content: file[2]})
		}
		for _, commands := range typed.FindAllStringSubmatch(match[2], -1) {
			c.fixes = append(c.fixes, check.Fix{Tool: tool, Commands: strings.Split(commands[1], "\n")})
		}
		found = append(found, c)
	}
	if len(found) == 0 {
		t.Fatalf("the guide has no recipe for %s: the pattern is out of date", tool)
	}
	return found
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
	cmd.Env, cmd.Stdin = p.Environment, strings.NewReader(stdin)
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

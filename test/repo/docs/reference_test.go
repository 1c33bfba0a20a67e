package docs

import (
	"context"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/diagnose"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/docs/reference"
)

// constants reads the product's once for all tests.
var constants = sync.OnceValues(func() ([]reference.Constant,
	error) {
	return reference.Constants(root, "agent", "controller", "pkg")
})

func declared(t *testing.T) []reference.Constant {
	t.Helper()
	all, err := constants()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 300 {
		t.Fatalf("only %d constants found", len(all))
	}
	return all
}

// program builds a program of the project.
func program(t *testing.T, pkg string) string {
	t.Helper()
	path, err := tools.Product(t.Context(), pkg)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// help is what a program prints with --help.
func help(ctx context.Context, t *testing.T, program string, command ...string) string {
	t.Helper()
	out, err := exec.CommandContext(ctx, program, append(command, "--help")...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s --help: %v\n%s", program, strings.Join(command, " "), err, out)
	}
	return string(out)
}

// TestTablesAreCurrent holds the tables of the reference and the pages of findings against the code that they are
// written from.
//
//proves:known-bugs/broken-examples
func TestTablesAreCurrent(t *testing.T) {
	agent := program(t, "./agent")
	tables, err := reference.Tables(root, declared(t), map[string]string{
		"run": help(t.Context(), t, agent, "run"), "diagnose": help(t.Context(), t, agent, "diagnose"),
	})
	if err != nil {
		t.Fatal(err)
	}
	pages, err := reference.Pages(root, tables)
	if err != nil {
		t.Fatal(err)
	}
	findings, err := reference.Findings(root)
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, want := range pages {
		for _, name := range reference.Regions(want) {
			used[name] = true
		}
	}
	maps.Copy(pages, findings)
	stale, err := reference.Differences(filepath.Join(root, "docs"), pages)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range stale {
		t.Errorf("docs/%s does not match the code; run make docs", name)
	}
	for name := range tables {
		if !used[name] {
			t.Errorf("no page has the table %s", name)
		}
	}
}

// TestEveryReasonIsListed finds what users see as reasons and names in the code, wherever it is declared. None may be
// in no table.
//
//proves:known-bugs/unread-annotation
func TestEveryReasonIsListed(t *testing.T) {
	camel := regexp.MustCompile(`^[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*$`)
	named := regexp.MustCompile(`^(reason|Reason|event|Event)[A-Z]`)
	prefixed := regexp.MustCompile(`^(phoenixnap\.com|kube-vip\.io)/.`)
	all := declared(t)
	tables, err := reference.Selections(all)
	if err != nil {
		t.Fatal(err)
	}
	names := read(t, "docs/reference/names.md")
	found := 0
	for _, c := range all {
		reason := camel.MatchString(c.Value) && (named.MatchString(c.Name) || c.Type == "Reason" ||
			c.Type == "AddressState" || strings.HasPrefix(c.Block, "Reasons of"))
		switch {
		case reason && !reference.Lists(tables, c) && !reasonOfAFinding(c.Value):
			t.Errorf("%s.%s: %s is in no table of the reference. Declare it in a block whose comment begins with %q, "+
				"or choose it in test/repo/docs/reference",
				c.Package, c.Name, c.Value, "Reasons of the events on …")
		case prefixed.MatchString(c.Value) && !reference.Lists(tables, c) && !strings.Contains(names, c.Value):
			t.Errorf("%s.%s: docs/reference/names.md does not have %s", c.Package, c.Name, c.Value)
		case reason || prefixed.MatchString(c.Value):
			found++
		}
	}
	if found < 130 {
		t.Errorf("only %d reasons and names found; the patterns are out of date", found)
	}
}

func reasonOfAFinding(value string) bool {
	for _, e := range diagnose.Entries() {
		if slices.Contains(e.Reasons, value) {
			return true
		}
	}
	return false
}

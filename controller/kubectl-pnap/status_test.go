package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/kubectl-pnap/overview"
)

func addr(text string) netip.Addr     { return netip.MustParseAddr(text) }
func prefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }

// The tables of a running cluster.
func TestTables(t *testing.T) {
	newFixture(t)
	out, _, err := run(t, plane.Config(), "status")
	if !errors.Is(err, errProblems) {
		t.Fatal(err)
	}
	golden(t, "status.txt", out)
	for line := range strings.Lines(out) {
		width := utf8.RuneCountInString(strings.TrimSuffix(line, "\n"))
		if width > 80 && len(strings.Fields(line)) > 1 {
			t.Errorf("a line of %d columns: %s", width, line)
		}
	}
}

// The guide shows what the command writes.
func TestTheGuideShowsTheTables(t *testing.T) {
	guide, err := os.ReadFile(filepath.Join("..", "..", "docs", "guides", "kubectl-pnap.md"))
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile(filepath.Join("testdata", "status.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(guide), "```\n"+string(status)+"```\n") {
		t.Error("docs/guides/kubectl-pnap.md differs from testdata/status.txt")
	}
}

func TestProgramsGetJSON(t *testing.T) {
	newFixture(t)
	out, _, err := run(t, plane.Config(), "status", "--output=json")
	if !errors.Is(err, errProblems) {
		t.Fatal(err)
	}
	var o overview.Overview
	if err := json.Unmarshal([]byte(out), &o); err != nil {
		t.Fatal(err)
	}
	states := map[string]string{}
	for _, s := range o.Services {
		states[s.Name] = s.State + " " + s.BlockID + " " + strings.Join(s.On, ",")
	}
	for name, want := range map[string]string{"web": "Answered " + webBlock + " srv-a",
		"api": "Silent " + poolBlock + " ", "greedy": "TooManyBlocks  ", "young": "Pending  "} {
		if states[name] != want {
			t.Errorf("Service %s: %q, want %q", name, states[name], want)
		}
	}
	if len(o.Services) != 4 || len(o.Nodes) != 3 || o.Controller.Silent || o.Controller.Looked == nil ||
		o.Network.MaxBlocks != 3 {
		t.Errorf("%+v", o)
	}
}

// The output names the missing permissions of a user, and shows what the user may read.
func TestMissingRightsAreNamed(t *testing.T) {
	s := newFixture(t)
	stranger, err := plane.User("stranger")
	s.ok(err)
	out, _, err := run(t, stranger, "status")
	if !errors.Is(err, errUnreadable) || exitCode(io.Discard, err) != exitUndetermined {
		t.Errorf("the error is %v", err)
	}
	golden(t, "stranger.txt", out)
	s.allow("stranger", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"},
		Verbs: []string{"list"}})
	for _, want := range []string{"srv-b", "VLANInterfaceDown", `you lack the verb "list" on the resource "services"`} {
		if out, _, err := run(t, stranger, "status"); !strings.Contains(strings.Join(strings.Fields(out), " "), want) ||
			exitCode(io.Discard, err) != exitProblems {
			t.Errorf("a user who may list Nodes does not see %q: %v\n%s", want, err, out)
		}
	}
}

// Without an API server that answers, that is the first and only problem of each command: nothing else is known.
func TestUnreachableAPIServer(t *testing.T) {
	config := plane.Config()
	config.Host = "https://127.0.0.1:1"
	unknown := plane.Config()
	unknown.CertData = nil
	unknown.KeyData = nil
	unknown.BearerToken = "expired"
	for _, as := range []*rest.Config{config, unknown} {
		out, _, err := run(t, as, "status")
		if exitCode(io.Discard, err) != exitUndetermined ||
			!strings.HasPrefix(out, "PROBLEMS\n- The API server ") ||
			!strings.Contains(strings.Join(strings.Fields(out), " "), "list Nodes") ||
			strings.Contains(out, "BLOCK") || strings.Contains(out, "none") {
			t.Errorf("%v\n%s", err, out)
		}
		out, _, err = run(t, as, "status", "--output=json")
		var o overview.Overview
		if failed := json.Unmarshal([]byte(out), &o); failed != nil ||
			exitCode(io.Discard, err) != exitUndetermined ||
			len(o.Problems) != 1 || len(o.Unknown) != len(overview.Parts()) {
			t.Errorf("%v, %v\n%s", err, failed, out)
		}
		_, _, err = run(t, as, "diagnose", "vip", "203.0.113.18")
		if exitCode(io.Discard, err) != exitUndetermined || !strings.Contains(err.Error(), "The API server") {
			t.Errorf("diagnose: %v", err)
		}
	}
}

// A kubeconfig that does not exist leaves everything unknown.
func TestMissingKubeconfig(t *testing.T) {
	var text strings.Builder
	command := newCommand(func(string) (string, bool) { return "", false }, now)
	command.SetArgs([]string{"status", "--kubeconfig=" + filepath.Join(t.TempDir(), "none")})
	if code := exitCode(&text, command.ExecuteContext(t.Context())); code != exitUndetermined ||
		!strings.Contains(text.String(), "--kubeconfig") {
		t.Errorf("code %d: %s", code, &text)
	}
}

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

func TestArgumentsOf(t *testing.T) {
	for _, tc := range []struct{ process, want []string }{
		{nil, nil},
		{[]string{"kubectl-pnap", "status"}, []string{"status"}},
		{[]string{"/usr/local/bin/kubectl_complete-pnap", "st"}, []string{"__complete", "st"}},
		{[]string{"kubectl_complete-pnap.exe", "diagnose", ""}, []string{"__complete", "diagnose", ""}},
	} {
		if got := argumentsOf(tc.process); !slices.Equal(got, tc.want) {
			t.Errorf("the arguments of %q are %q, want %q", tc.process, got, tc.want)
		}
	}
}

// installed installs the plugin as the guide says and returns a function that runs kubectl with it.
func installed(t *testing.T) func(args ...string) string {
	t.Helper()
	kubectl, err := tools.Binary(t.Context(), "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	plugin, err := tools.Product(t.Context(), "./controller/kubectl-pnap")
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir()
	for _, name := range []string{"kubectl-pnap", completer} {
		if err := os.Symlink(plugin, filepath.Join(path, name)); err != nil {
			t.Fatal(err)
		}
	}
	config := kubeconfig(t, plane.Config())
	return func(args ...string) string {
		t.Helper()
		command := exec.CommandContext(t.Context(), kubectl, args...)
		command.Env = append(os.Environ(), "PATH="+path, "KUBECONFIG="+config)
		var errOut strings.Builder
		command.Stderr = &errOut
		out, err := command.Output()
		if err != nil {
			t.Errorf("kubectl %q: %v: %s", args, err, &errOut)
		}
		return string(out)
	}
}

// kubectl completes the commands of the plugin, their flags, and the names of what is in the cluster.
func TestKubectlCompletesThePlugin(t *testing.T) {
	newFixture(t)
	kubectl := installed(t)
	for _, tc := range []struct{ words, want []string }{
		{[]string{""}, []string{"diagnose", "help", "status", "version"}},
		{[]string{"st"}, []string{"status"}},
		{[]string{"status", "--output", ""}, []string{"text", "json", "yaml"}},
		{[]string{"status", ""}, nil},
		{[]string{"diagnose", ""}, []string{"node", "vip"}},
		{[]string{"diagnose", "node", ""}, []string{"srv-a", "srv-b", "srv-c"}},
		{[]string{"diagnose", "node", "srv-a", ""}, nil},
		{[]string{"diagnose", "node", "srv-a", "--fix", "net"}, []string{"netplan", "networkmanager", "networkd"}},
		{[]string{"diagnose", "vip", ""}, []string{"shop/api", "203.0.113.27", "shop/web", "203.0.113.18"}},
		{[]string{"diagnose", "vip", "shop/w"}, []string{"shop/web"}},
		{[]string{"diagnose", "vip", "shop/web", "--node", "srv"}, []string{"srv-a", "srv-b", "srv-c"}},
	} {
		var got []string
		for line := range strings.Lines(kubectl(append([]string{"__complete", "pnap"}, tc.words...)...)) {
			name, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			if !strings.HasPrefix(name, ":") {
				got = append(got, name)
			}
		}
		slices.Sort(got)
		slices.Sort(tc.want)
		if !slices.Equal(got, tc.want) {
			t.Errorf("kubectl pnap %s<TAB>: %q, want %q", strings.Join(tc.words, " "), got, tc.want)
		}
	}
}

// The version needs no cluster, and programs get it as JSON and YAML.
func TestVersion(t *testing.T) {
	kubectl := installed(t)
	if out := kubectl("pnap", "version", "--context=none"); !strings.HasPrefix(out, "kubectl pnap v") {
		t.Errorf("version: %q", out)
	}
	var asJSON, asYAML programVersion
	if err := json.Unmarshal([]byte(kubectl("pnap", "version", "-o", "json")), &asJSON); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict([]byte(kubectl("pnap", "version", "-o", "yaml")), &asYAML); err != nil {
		t.Fatal(err)
	}
	if asJSON != asYAML || !strings.HasPrefix(asJSON.Version, "v") || asJSON.GoVersion == "" || asJSON.Platform == "" ||
		strings.Contains(asJSON.GitCommit, "$") {
		t.Errorf("JSON %+v, YAML %+v", asJSON, asYAML)
	}
}

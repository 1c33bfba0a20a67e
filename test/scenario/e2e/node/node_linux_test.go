//go:build linux

package node

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func spec() Spec {
	return Spec{
		Name: "srv-a", Address: netip.MustParseAddr("10.0.0.11"), Pods: netip.MustParsePrefix("10.244.1.128/25"),
		Labels: map[string]string{"b": "2", "a": "1"},
	}
}

func TestFiles(t *testing.T) {
	files, err := spec().files()
	if err != nil {
		t.Fatal(err)
	}
	var network struct {
		Plugins []struct {
			IPAM struct{ Ranges [][]struct{ Subnet string } }
		}
	}
	if err := json.Unmarshal(files[networkConfig], &network); err != nil {
		t.Fatal(err)
	}
	if got := network.Plugins[0].IPAM.Ranges[0][0].Subnet; got != "10.244.1.128/25" {
		t.Errorf("pods get addresses of %s", got)
	}
	var kubelet map[string]any
	if err := yaml.UnmarshalStrict(files[kubeletConfig], &kubelet); err != nil {
		t.Fatal(err)
	}
	// Two nodes share a hierarchy of control groups, and each must see only its own pods.
	if kubelet["cgroupRoot"] != "/srv-a" {
		t.Errorf("kubelet: %s", files[kubeletConfig])
	}
	if !strings.Contains(string(files[containerdConfig]), `sandbox_image = "`+PauseImage+`"`) {
		t.Errorf("containerd: %s", files[containerdConfig])
	}
	other := spec()
	other.Address = other.Address.Next()
	if more, err := other.files(); err != nil || string(more["/etc/machine-id"]) == string(files["/etc/machine-id"]) {
		t.Errorf("two nodes are one machine: %s, %v", files["/etc/machine-id"], err)
	}
}

func TestKubeletCommand(t *testing.T) {
	command := spec().kubeletCommand()
	for _, want := range []string{"--cloud-provider=external", "--hostname-override=srv-a", "--node-ip=10.0.0.11",
		"--node-labels=a=1,b=2"} {
		if !slices.Contains(command, want) {
			t.Errorf("%v lacks %s", command, want)
		}
	}
}

func TestResolve(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "libx.so.2.5")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("libx.so.2.5", filepath.Join(dir, "libx.so.2")); err != nil {
		t.Fatal(err)
	}
	if got, err := resolve(filepath.Join(dir, "libx.so.2")); err != nil || filepath.Base(got) != "libx.so.2.5" {
		t.Errorf("resolve() = %s, %v", got, err)
	}
	for _, bad := range []string{dir, filepath.Join(dir, "none")} {
		if got, err := resolve(bad); err == nil {
			t.Errorf("resolve(%s) = %s, want an error", bad, got)
		}
	}
	if got := target("lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"); got != "lib64/ld-linux-x86-64.so.2" {
		t.Errorf("the dynamic loader is put at %s", got)
	}
}

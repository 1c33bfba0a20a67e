//go:build linux

package node

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func spec() Spec {
	return Spec{
		Name: "srv-a", Address: netip.MustParseAddr("10.0.0.11"), Pods: netip.MustParsePrefix("10.244.1.128/25"),
		Kubeadm: "kind: InitConfiguration\n",
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
	if err := yaml.UnmarshalStrict(files[kubeletMore+"/10-lab.conf"], &kubelet); err != nil {
		t.Fatal(err)
	}
	// Two nodes share a hierarchy of control groups, and each must see only its own pods.
	if kubelet["cgroupRoot"] != "/srv-a" {
		t.Errorf("kubelet: %v", kubelet)
	}
	if got := files[kubeadmConfig]; string(got) != string(spec().Kubeadm) {
		t.Errorf("the configuration for kubeadm became %s", got)
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
	command := kubeletCommand([]string{"--cloud-provider=external"})
	if !slices.Contains(command, "--cloud-provider=external") {
		t.Errorf("%v lacks the installer's flag", command)
	}
	// What an installer does not set, the lab must not set either.
	for _, flag := range command {
		for _, foreign := range []string{"--node-ip", "--node-labels", "--register-with-taints", "--provider-id"} {
			if strings.HasPrefix(flag, foreign) {
				t.Errorf("the lab sets %s", flag)
			}
		}
	}
}

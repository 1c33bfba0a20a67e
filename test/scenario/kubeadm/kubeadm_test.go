//go:build linux

package kubeadm

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/installer"
)

const (
	// server is the name of the machine.
	server = "node-1"
	root   = "../../.."
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// guide is kubeadm with the configuration of the guide for the Node.
func guide(t *testing.T) installer.Kubeadm {
	t.Helper()
	config, err := installer.Guide(filepath.Join(root, "docs/guides/install.md"))
	must(t, err)
	config, err = config.For(installer.Machine{Name: server, APIServer: netip.MustParseAddrPort("10.0.0.11:6443")})
	must(t, err)
	kubeadm, err := installer.NewKubeadm(t.TempDir(), config)
	must(t, err)
	return kubeadm
}

// TestWhatTheKubeletIsStartedWith: kubeadm gives the kubelet the flag that everything hangs on, no address, and no
// taint; and no component of the control plane a cloud provider.
func TestWhatTheKubeletIsStartedWith(t *testing.T) {
	kubeadm := guide(t)
	for _, phase := range [][]string{{"kubelet-start"}, {"control-plane", "all"}} {
		_, err := kubeadm.Init(t.Context(), phase...)
		must(t, err)
	}
	raw, err := os.ReadFile(kubeadm.Path(installer.KubeletFlags))
	must(t, err)
	flags, err := installer.ParseFlags(raw)
	must(t, err)
	if want := []string{"--hostname-override=" + server, "--cloud-provider=external"}; !slices.Equal(flags, want) {
		t.Errorf("the kubelet is started with %q, want %q", flags, want)
	}
	var kubelet map[string]any
	raw, err = os.ReadFile(kubeadm.Path(installer.KubeletConfig))
	must(t, err)
	must(t, yaml.Unmarshal(raw, &kubelet))
	for _, absent := range []string{"registerWithTaints", "providerID", "address"} {
		if value, ok := kubelet[absent]; ok {
			t.Errorf("the kubelet's configuration has %s: %v", absent, value)
		}
	}
	manifests, err := filepath.Glob(kubeadm.Path("/etc/kubernetes/manifests/kube-*.yaml"))
	must(t, err)
	for _, path := range manifests {
		raw, err := os.ReadFile(path)
		must(t, err)
		if strings.Contains(string(raw), "--cloud-provider") {
			t.Errorf("%s has a cloud provider", filepath.Base(path))
		}
	}
	if len(manifests) != 3 {
		t.Errorf("kubeadm wrote the manifests %q", manifests)
	}
}

package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// TestTheKubeadmConfigurationIsTaken gives what the guide shows to kubeadm: it is valid, and gives the kubelet the flag
// that everything hangs on.
func TestTheKubeadmConfigurationIsTaken(t *testing.T) {
	kubeadm, err := tools.Binary(t.Context(), "kubeadm")
	must(t, err)
	path := filepath.Join(t.TempDir(), "kubeadm.yaml")
	for _, b := range blocks(t) {
		if b.page == "docs/guides/install.md" && strings.Contains(b.text, "kind: InitConfiguration") {
			must(t, os.WriteFile(path, []byte(b.text), 0o600))
		}
	}
	if out, err := exec.CommandContext(t.Context(), kubeadm, "config", "validate", "--config",
		path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), kubeadm, "init", "phase", "kubelet-start", "--dry-run", "--config", path)
	cmd.Env = append(os.Environ(), "KUBEADM_INIT_DRYRUN_DIR="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	flags, err := os.ReadFile(filepath.Join(dir, "kubeadm-flags.env"))
	must(t, err)
	if !strings.Contains(string(flags), "--cloud-provider=external") {
		t.Errorf("the kubelet is started with %s", flags)
	}
}

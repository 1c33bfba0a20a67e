package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Chart is the directory of the Helm chart, below the root of the source tree.
const Chart = "deploy/helm/phoenixnap-cloud-provider"

// copied are the manifests that the chart shares with the kustomizations: name in the chart → path below the root.
func copied() map[string]string {
	const announcer = "deploy/components/announcer/"
	return map[string]string{
		"agent.yaml":                    "deploy/base/agent.yaml",
		"agent-policy.yaml":             "deploy/base/agent-policy.yaml",
		"controller.yaml":               "deploy/base/controller.yaml",
		"controller-policy.yaml":        "deploy/base/controller-policy.yaml",
		"service-addresses-policy.yaml": "deploy/components/service-addresses/policy.yaml",
		"kube-vip-policy.yaml":          "deploy/components/kube-vip/policy.yaml",
		"announcer-rights.yaml":         announcer + "rights.yaml",
		"announcer-policy.yaml":         announcer + "policy.yaml",
		"announcer-secret-policy.yaml":  announcer + "secret-policy.yaml",
	}
}

// CopyToChart copies what the chart shares with the kustomizations.
func CopyToChart(root string) error {
	dir := filepath.Join(root, filepath.FromSlash(Chart), "manifests")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, source := range copied() {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(source)))
		if err != nil {
			return fmt.Errorf("copy to the chart: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil { //nolint:gosec // it is published
			return err
		}
	}
	return nil
}

// versionLine is where a chart says its version, and that of the images (https://helm.sh/docs/topics/charts/).
var versionLine = regexp.MustCompile(`(?m)^(version|appVersion): (v?)\S+$`)

// stampChart writes a version into Chart.yaml. Versions of charts have no v.
func stampChart(root, version string) error {
	path := filepath.Join(root, filepath.FromSlash(Chart), "Chart.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("stamp the chart: %w", err)
	}
	number := strings.TrimPrefix(version, "v")
	return os.WriteFile(path, versionLine.ReplaceAll(text, []byte("${1}: ${2}"+number)), 0o644) //nolint:gosec // it is published
}

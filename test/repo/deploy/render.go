// Package deploy renders what users install, from the kustomizations below deploy.
package deploy

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// File is the name that users apply, below the directory of its overlay.
const File = "deployment.yaml"

// Overlays are the names of the overlays below root/deploy/overlays, in their order.
func Overlays(root string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(root, "deploy", "overlays"))
	if err != nil {
		return nil, fmt.Errorf("find the overlays: %w", err)
	}
	var names []string
	for _, entry := range entries {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

// Render is the text of an overlay's File.
func Render(ctx context.Context, root, overlay string) ([]byte, error) {
	return render(ctx, root, "deploy/overlays/"+overlay)
}

// render builds a kustomization below the root.
func render(ctx context.Context, root, path string) ([]byte, error) {
	manifests, err := controlplane.Read(ctx, filepath.Join(root, filepath.FromSlash(path)))
	if err != nil {
		return nil, err
	}
	text := fmt.Appendf(nil, "# Made by `make manifests` from %s, which explains it. Do not edit.\n", path)
	for _, m := range manifests {
		text = append(text, m.Data...)
	}
	return text, nil
}

// Rendered is where an overlay's File is kept.
func Rendered(root, overlay string) string {
	return filepath.Join(root, "deploy", "rendered", overlay, File)
}

// Write renders every overlay to its File, and brings the chart up to date.
func Write(ctx context.Context, root string) error {
	overlays, err := Overlays(root)
	if err != nil {
		return err
	}
	for _, overlay := range overlays {
		text, err := Render(ctx, root, overlay)
		if err != nil {
			return err
		}
		path := Rendered(root, overlay)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	definitions, err := render(ctx, root, "deploy/crds")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, filepath.FromSlash(Definitions)), definitions, 0o644); err != nil {
		return err
	}
	return CopyToChart(root)
}

// tagLine is where the base says the version of an image.
var tagLine = regexp.MustCompile(`(?m)^(    newTag: )(\S+)$`)

// tagPattern is a version as tags of this project have it (https://semver.org).
var tagPattern = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// Stamp writes the version of the images into the base and into the chart.
func Stamp(root, version string) error {
	if !tagPattern.MatchString(version) {
		return fmt.Errorf("version %q: want one such as v2.0.0", version)
	}
	path := filepath.Join(root, "deploy", "base", "kustomization.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("stamp the version: %w", err)
	}
	if !tagLine.Match(text) {
		return fmt.Errorf("stamp the version: %s has no line newTag", path)
	}
	if err := os.WriteFile(path, tagLine.ReplaceAll(text, []byte("${1}"+version)), 0o644); err != nil {
		return err
	}
	return stampChart(root, version)
}

// Chart is the directory of the Helm chart, below the root of the source tree.
const Chart = "deploy/helm/phoenixnap-cloud-provider"

// Definitions are those of the kinds, and what guards them, rendered into one file, below the root of the source tree.
// No overlay has them: they are applied before all of them, and deleted last, because objects go with their definition.
const Definitions = "deploy/rendered/crds.yaml"

// copied are the manifests that the chart shares with the kustomizations: name in the chart → path below the root.
func copied() map[string]string {
	const announcer = "deploy/components/announcer/"
	const monitoring = "deploy/monitoring/"
	return map[string]string{
		"crds.yaml":                     "deploy/crds/networking.phoenixnap.com_ipblocks.yaml",
		"crds-networks.yaml":            "deploy/crds/networking.phoenixnap.com_publicnetworks.yaml",
		"crds-policy.yaml":              "deploy/crds/policy.yaml",
		"agent.yaml":                    "deploy/base/agent.yaml",
		"agent-policy.yaml":             "deploy/base/agent-policy.yaml",
		"controller.yaml":               "deploy/base/controller.yaml",
		"controller-policy.yaml":        "deploy/base/controller-policy.yaml",
		"service-addresses-policy.yaml": "deploy/components/service-addresses/policy.yaml",
		"service-retention-policy.yaml": "deploy/components/service-addresses/retention.yaml",
		"kube-vip-policy.yaml":          "deploy/components/kube-vip/policy.yaml",
		"external-ips-policy.yaml":      "deploy/components/deny-external-ips/policy.yaml",
		"announcer-rights.yaml":         announcer + "rights.yaml",
		"announcer-policy.yaml":         announcer + "policy.yaml",
		"announcer-secret-policy.yaml":  announcer + "secret-policy.yaml",
		"kube-vip.yaml":                 "deploy/kube-vip/kube-vip.yaml",
		"podmonitor.yaml":               monitoring + "podmonitor.yaml",
		"prometheusrule.yaml":           monitoring + "prometheusrule.yaml",
		"metrics-reader.yaml":           monitoring + "reader.yaml",
		"dashboard.json":                monitoring + "dashboard.json",
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
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
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
	return os.WriteFile(path, versionLine.ReplaceAll(text, []byte("${1}: ${2}"+number)), 0o644)
}

// ChartValues are the flags of helm by which the chart gives what an overlay has.
func ChartValues(overlay string) ([]string, error) {
	distribution, variant, _ := strings.Cut(overlay, "-")
	set := []string{"--set", "distribution=" + distribution}
	switch variant {
	case "":
		return set, nil
	case "single":
		return append(set, "--set", "controller.replicas=1"), nil
	case "manage-vlan":
		return append(set, "--set", "manageVLAN=true"), nil
	case "agent":
		return append(set, "--set", "announcer=agent"), nil
	case "agent-manage-vlan":
		return append(set, "--set", "announcer=agent,manageVLAN=true"), nil
	case "nodes":
		return append(set, "--set", "announcer=none,agent.enabled=false"), nil
	default:
		return nil, fmt.Errorf("the overlay %s has no values for the chart", overlay)
	}
}

// RenderChart is what helm would install. The text is returned with an error, too: it contains helm's complaint.
func RenderChart(ctx context.Context, root string, flags ...string) (string, error) {
	chart := filepath.Join(root, filepath.FromSlash(Chart))
	return runHelm(ctx, append([]string{"template", "pnap", chart, "--namespace", "kube-system", "--kube-version",
		NewestKubernetes()}, flags...)...)
}

// NewestKubernetes is the version of the cluster for which charts are rendered: helm's own may be older than the chart
// allows.
func NewestKubernetes() string { return tools.Minors()[0] + ".0" }

// runHelm runs helm with a home of its own, and returns all that it prints.
func runHelm(ctx context.Context, args ...string) (string, error) {
	program, err := tools.Binary(ctx, "helm")
	if err != nil {
		return "", err
	}
	home, err := os.MkdirTemp("", "phoenixnap-helm-*")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(home) }()
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_DATA_HOME=" + home}
	cmd.Stdout = &out
	cmd.Stderr = &complaint
	err = cmd.Run()
	return out.String() + complaint.String(), err
}

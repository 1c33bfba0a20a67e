package deploy

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestHelmChartOfTheGuide: what the guide has the Helm controller of RKE2 and k3s install
// (https://docs.rke2.io/helm) is what the overlay installs that the guide names for them.
func TestHelmChartOfTheGuide(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(sourceTree(t), "docs", "guides", "install.md"))
	must(t, err)
	_, after, ok := bytes.Cut(page, []byte("apiVersion: helm.cattle.io/v1\n"))
	block, _, closed := bytes.Cut(after, []byte("\n```"))
	if !ok || !closed {
		t.Fatal("the guide shows no HelmChart")
	}
	var chart struct {
		Kind     string
		Metadata struct{ Name, Namespace string }
		Spec     struct {
			Chart, Version, TargetNamespace, ValuesContent string
			Bootstrap                                      bool
		}
	}
	must(t, yaml.UnmarshalStrict(block, &chart))
	// The controller looks for charts in kube-system only, and hostNetwork starts them before there is a network.
	if chart.Metadata.Namespace != "kube-system" || chart.Spec.TargetNamespace != "kube-system" ||
		!chart.Spec.Bootstrap {
		t.Errorf("%+v is not installed into kube-system at the start", chart)
	}
	byHelm := "helm upgrade --install phoenixnap " + chart.Spec.Chart + " --version " + chart.Spec.Version
	if !bytes.Contains(page, []byte(byHelm)) {
		t.Errorf("the guide installs %s %s by the Helm controller only", chart.Spec.Chart, chart.Spec.Version)
	}
	values := filepath.Join(t.TempDir(), "values.yaml")
	must(t, os.WriteFile(values, []byte(chart.Spec.ValuesContent), 0o600))
	got, err := RenderChart(t.Context(), sourceTree(t), "--values", values)
	if err != nil {
		t.Fatalf("%v\n%s", err, got)
	}
	flags, err := ChartValues("k3s-agent")
	must(t, err)
	want, err := RenderChart(t.Context(), sourceTree(t), flags...)
	must(t, err)
	if got != want || !strings.Contains(got, "kind: Deployment") {
		t.Errorf("the chart of the Helm controller differs from the overlay k3s-agent")
	}
}

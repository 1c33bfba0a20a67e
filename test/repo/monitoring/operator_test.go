package monitoring

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/deploy/reapply"
)

// The Prometheus operator, whose definitions of PodMonitor and PrometheusRule ship inside its Go module, and the sum of
// that module as go.sum would have it. Nothing here depends on it otherwise, so no go.mod names it.
const (
	operatorModule = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
	operatorSum    = "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s="
)

// operator is the directory of the operator's module.
func operator(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", operatorModule)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go mod download %s: %v: %s", operatorModule, err, out)
	}
	var module struct{ Dir, Sum string }
	if err := json.Unmarshal(out, &module); err != nil || module.Sum != operatorSum {
		t.Fatalf("%s has the sum %s, want %s: %v", operatorModule, module.Sum, operatorSum, err)
	}
	return module.Dir
}

// The whole kustomization is taken by an API server that knows the operator's kinds, and a misspelt field is not.
func TestTheOperatorTakesWhatIsShipped(t *testing.T) {
	crds := filepath.Join(operator(t), "example", "prometheus-operator-crd", "monitoring.coreos.com_")
	plane := controlplane.ForTest(t)
	if err := plane.ApplyFiles(t.Context(), crds+"podmonitors.yaml", crds+"prometheusrules.yaml"); err != nil {
		t.Fatal(err)
	}
	manifests, err := controlplane.Read(t.Context(), filepath.Join(root, "deploy", "monitoring"))
	if err != nil {
		t.Fatal(err)
	}
	// A new kind is served a moment after its definition was taken.
	for late := time.Now().Add(30 * time.Second); ; {
		err := plane.Apply(t.Context(), manifests...)
		if err == nil {
			break
		}
		if time.Now().After(late) {
			t.Fatal(err)
		}
	}
	cluster := reapply.NewCluster(t, plane.Config())
	cluster.Must(t, "delete", "-k", filepath.Join(root, "deploy", "monitoring"))
	cluster.Check(t, manifests[0].Data)
	for _, mistake := range []struct{ field, misspelt string }{
		{"podMetricsEndpoints:", "podMetricEndpoints:"}, {"insecureSkipVerify: true", "insecureSkipVerify: maybe"},
		{"scheme: https", "scheme: tls"},
		{"for: 5m", "for: five"}, {"expr: ", "expression: "},
	} {
		found := false
		for _, m := range manifests {
			wrong := strings.Replace(string(m.Data), mistake.field, mistake.misspelt, 1)
			if wrong == string(m.Data) {
				continue
			}
			found = true
			if err := plane.Apply(t.Context(), controlplane.Manifest{Name: mistake.misspelt,
				Data: []byte(wrong)}); err == nil {
				t.Errorf("the API server accepts %s", mistake.misspelt)
			}
		}
		if !found {
			t.Errorf("no manifest has %s", mistake.field)
		}
	}
}

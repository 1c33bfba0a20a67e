package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// documentedMetrics are the names in the table of the controller's metrics.
func documentedMetrics(t *testing.T) []string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "docs", "reference", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(raw), "## Controller")
	section, _, _ = strings.Cut(section, "\n## ")
	var names []string
	for _, found := range regexp.MustCompile("(?m)^\\| `([a-z_]+)").FindAllStringSubmatch(section, -1) {
		names = append(names, found[1])
	}
	if len(names) < 15 {
		t.Fatalf("only %d metrics are documented: %q", len(names), names)
	}
	return names
}

// ask asks the controller for a path of its secure port; config says as whom.
func (p *process) ask(config *rest.Config, path string) (int, string) {
	p.t.Helper()
	config = rest.CopyConfig(config)
	config.Insecure = true
	config.CAData = nil // the controller's own certificate, on loopback
	transport, err := rest.TransportFor(config)
	if err != nil {
		p.t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet,
		strings.TrimSuffix(p.health, "/healthz")+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// ofTheFramework is a metric of the framework by which an alert knows whether a replica leads.
const ofTheFramework = "leader_election_master_status"

// passing reports whether a metric exists only at times, maybe for a moment between two reads.
func passing(name string) bool { return name == "phoenixnap_service_deletion_timestamp_seconds" }

// checkMetrics: an administrator sees every metric that is documented, and a user without that right nothing.
func (s *scene) checkMetrics(p *process) {
	s.Helper()
	s.until(patience, func() error { // some are set by the first look at everything, after a minute
		status, exposed := p.ask(plane.Config(), "/metrics")
		if status != http.StatusOK {
			return fmt.Errorf("metrics: %d %s", status, exposed)
		}
		for _, name := range append(slices.DeleteFunc(documentedMetrics(s.T), passing), ofTheFramework) {
			if !strings.Contains(exposed, "\n# TYPE "+name+" ") {
				return fmt.Errorf("metric %s is documented and not exposed", name)
			}
		}
		return nil
	})
	stranger, err := plane.ServiceAccount(s.Context(), "kube-system", "phoenixnap-cloud-controller-manager")
	s.ok(err)
	if status, text := p.ask(stranger, "/metrics"); status != http.StatusForbidden {
		s.Errorf("who may not read metrics gets %d %s", status, text)
	}
}

package monitoring

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const (
	root      = "../../.."
	rulesFile = "deploy/monitoring/rules.yaml"
)

// ruleFile is a file of rules as Prometheus reads it.
type ruleFile struct {
	Groups []group `json:"groups"`
}

type group struct {
	Name  string `json:"name"`
	Rules []rule `json:"rules"`
}

type rule struct {
	Alert       string            `json:"alert,omitempty"`
	Record      string            `json:"record,omitempty"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// alerts reads the rules; a word that it does not know is a fault.
func alerts(t *testing.T) []rule {
	t.Helper()
	var file ruleFile
	if err := yaml.UnmarshalStrict([]byte(read(t, rulesFile)), &file); err != nil {
		t.Fatal(err)
	}
	var all []rule
	for _, each := range file.Groups {
		all = append(all, each.Rules...)
	}
	if len(all) < 15 {
		t.Fatalf("only %d rules", len(all))
	}
	return all
}

func TestRulesPassPromtool(t *testing.T) {
	promtool(t, "check", "rules", "--lint=all", "--lint-fatal", filepath.Join(root, rulesFile))
}

// Both files have the same rules: the one is for a Prometheus without an operator.
func TestPrometheusRuleHasTheSameRules(t *testing.T) {
	var object struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   map[string]any `json:"metadata"`
		Spec       ruleFile       `json:"spec"`
	}
	if err := yaml.UnmarshalStrict([]byte(read(t, "deploy/monitoring/prometheusrule.yaml")), &object); err != nil {
		t.Fatal(err)
	}
	var file ruleFile
	if err := yaml.UnmarshalStrict([]byte(read(t, rulesFile)), &file); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(file, object.Spec); diff != "" || object.Kind != "PrometheusRule" {
		t.Errorf("%s %s differs from %s:\n%s", object.APIVersion, object.Kind, rulesFile, diff)
	}
}

// Every metric, label, condition and reason that an alert names exists.
func TestAlertsNameWhatExists(t *testing.T) {
	known := exposed(t)
	said := literals(t)
	for _, each := range alerts(t) {
		for _, fault := range known.faults(each.Expr) {
			t.Errorf("%s: %s", each.Alert, fault)
		}
		checkWords(t, said, each.Expr)
		checkEndpoints(t, each.Expr)
	}
}

// Every alert leads to a heading of its own on the page of alerts, and every heading to an alert.
func TestAlertsHaveRunbooks(t *testing.T) {
	const base = "https://github.com/phoenixnap/k8s-cloud-provider-bmc/blob/main/"
	headings := map[string]bool{}
	for _, found := range regexp.MustCompile(`(?m)^## (PhoenixNAP\w+)$`).FindAllStringSubmatch(read(t,
		"docs/reference/alerts.md"), -1) {
		headings[found[1]] = true
	}
	for _, each := range alerts(t) {
		page, anchor, _ := strings.Cut(strings.TrimPrefix(each.Annotations["runbook_url"], base), "#")
		if page != "docs/reference/alerts.md" || anchor != strings.ToLower(each.Alert) || !headings[each.Alert] {
			t.Errorf("%s leads to %q, where there is no heading of that name", each.Alert,
				each.Annotations["runbook_url"])
		}
		if severity := each.Labels["severity"]; severity != "warning" && severity != "critical" {
			t.Errorf("%s has the severity %q", each.Alert, severity)
		}
		if each.Annotations["summary"] == "" || each.Annotations["description"] == "" {
			t.Errorf("%s has no text", each.Alert)
		}
		delete(headings, each.Alert)
	}
	for name := range headings {
		t.Errorf("docs/reference/alerts.md describes %s, which is no alert", name)
	}
}

// The commands in the texts of alerts exist.
func TestTextsOfAlertsNameCommands(t *testing.T) {
	guide := read(t, "docs/guides/kubectl-pnap.md")
	for _, each := range alerts(t) {
		for _, command := range regexp.MustCompile(`kubectl pnap (?:diagnose )?[a-z]+`).FindAllString(
			each.Annotations["description"], -1) {
			if !strings.Contains(guide, command) {
				t.Errorf("%s: docs/guides/kubectl-pnap.md does not mention %q", each.Alert, command)
			}
		}
	}
}

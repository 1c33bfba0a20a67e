package monitoring

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/metricsserver"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/controllers"
)

// catalogue is the labels of each metric, by name.
type catalogue map[string][]string

// exposed is what both programs register, and what is used of the framework's; that the framework exposes it is seen by
// the test of the whole controller.
func exposed(t *testing.T) catalogue {
	t.Helper()
	all := catalogue{"leader_election_master_status": {"name"},
		"phoenixnap_agent_info": {"version", "node", "server_id", "network_id", "interface"}}
	all.add(t, registered(t))
	network := metricsserver.NewNetwork("v0.0.0", "node-1")
	all.add(t, describe(network.Collector("n1", metricsserver.Sources{})))
	families, err := metricsserver.NewMetrics().Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			labels := []string{}
			for _, pair := range metric.GetLabel() {
				labels = append(labels, pair.GetName())
			}
			all[family.GetName()] = labels
		}
	}
	return all
}

// registered are the descriptions of the controller's metrics.
func registered(t *testing.T) []string {
	t.Helper()
	registry := metrics.NewKubeRegistry()
	var descriptions []string
	controller := controllers.NewMetrics()
	for _, each := range controller.All() {
		registry.MustRegister(each)
		descriptions = append(descriptions, describe(each)...)
	}
	if err := registry.CustomRegister(controller.Conditions); err != nil {
		t.Fatal(err)
	}
	return append(descriptions, describe(controller.Conditions)...)
}

// describe returns the descriptions of a collector as client_golang writes them: there is no other way to read one.
func describe(c prometheus.Collector) []string {
	out := make(chan *prometheus.Desc)
	go func() {
		c.Describe(out)
		close(out)
	}()
	var descriptions []string
	for each := range out {
		descriptions = append(descriptions, each.String())
	}
	return descriptions
}

var description = regexp.MustCompile(`^Desc\{fqName: "([a-z0-9_]+)", help: .*` +
	`constLabels: \{([a-z_]*)(?:="[^"]*")?\}, variableLabels: \{([a-z_,]*)\}\}$`)

func (c catalogue) add(t *testing.T, descriptions []string) {
	t.Helper()
	for _, each := range descriptions {
		found := description.FindStringSubmatch(each)
		if found == nil {
			t.Fatalf("%q is no description of a metric", each)
		}
		c[found[1]] = strings.FieldsFunc(found[2]+","+found[3], func(r rune) bool { return r == ',' })
	}
}

// carries reports whether any metric has the label.
func (c catalogue) carries(label string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(c)),
		func(labels []string) bool { return slices.Contains(labels, label) })
}

func TestCatalogueIsComplete(t *testing.T) {
	all := exposed(t)
	for name, labels := range map[string][]string{
		"phoenixnap_ip_blocks":                           {"state"},
		"phoenixnap_service_condition":                   {"namespace", "service", "condition", "status", "reason"},
		"phoenixnap_agent_check":                         {"network_id", "id", "severity", "status"},
		"phoenixnap_agent_node_writes_total":             {"result"},
		"phoenixnap_orphan_ip_blocks_collected_total":    {},
		"phoenixnap_agent_last_sample_timestamp_seconds": {"network_id"},
	} {
		if got, known := all[name]; !known || !slices.Equal(got, labels) {
			t.Errorf("%s has the labels %q, want %q", name, got, labels)
		}
	}
	if len(all) < 35 {
		t.Errorf("only %d metrics are known", len(all))
	}
}

package metricsserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/standby"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/vip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/arp"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
)

func get(t *testing.T, s *Server, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func TestHealth(t *testing.T) {
	start := time.Now().Add(-2 * time.Minute)
	h := NewHealth(time.Minute, start)
	s := NewServer(standby.New(""), NewMetrics(), Sources{}, h)
	if code, body := get(t, s, "/healthz"); code != http.StatusServiceUnavailable {
		t.Errorf("/healthz is %d %q two minutes after the start without a sample", code, body)
	}
	h.Sampled(time.Now())
	if code, body := get(t, s, "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz is %d %q after a sample", code, body)
	}
	if code, body := get(t, s, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "Node") {
		t.Errorf("/readyz is %d %q before the Node was seen", code, body)
	}
	h.SetReady()
	if code, _ := get(t, s, "/readyz"); code != http.StatusOK {
		t.Errorf("/readyz is %d after sample and Node", code)
	}
}

// first is the first network of a Node.
type first struct {
	prometheus.Collector
	network *Network
}

func (first) Describe(chan<- *prometheus.Desc) {}

func (f first) Collect(out chan<- prometheus.Metric) {
	f.Collector.Collect(out)
	f.network.Info(out, "n1")
}

// written are the metrics of a network.
func written(t *testing.T, process *Metrics, m *Network, sources Sources) string {
	t.Helper()
	_, body := get(t, NewServer(standby.New(""), process, first{m.Collector("n1", sources), m},
		NewHealth(time.Minute, time.Now())), "/metrics")
	return body
}

// expect compares the metrics of the agent's own with lines, comments left out. All lines but those of the process have
// the ID of the network, too.
func expect(t *testing.T, process *Metrics, m *Network, sources Sources, lines ...string) {
	t.Helper()
	body := written(t, process, m, sources)
	var got []string
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "phoenixnap_") {
			of := strings.Replace(line, `network_id="n1",`, "", 1)
			of = strings.Replace(of, `,network_id="n1"`, "", 1)
			of = strings.Replace(of, `{network_id="n1"}`, "", 1)
			if ofProcess := strings.Contains(line, `{result="`); ofProcess != (of == line) {
				t.Errorf("whether it has the ID of the network is wrong: %s", line)
			}
			got = append(got, strings.TrimSpace(of))
		}
	}
	slices.Sort(lines)
	slices.Sort(got)
	if diff := cmp.Diff(lines, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

func TestMetrics(t *testing.T) {
	process := NewMetrics()
	m := NewNetwork("v1", "srv-a")
	counts := []string{
		`phoenixnap_agent_node_writes_total{result="ok"} 0`, `phoenixnap_agent_node_writes_total{result="error"} 0`,
		`phoenixnap_agent_lease_renewals_total{result="ok"} 0`,
		`phoenixnap_agent_lease_renewals_total{result="error"} 0`,
	}
	expect(t, process, m, Sources{},
		append([]string{`phoenixnap_agent_info{interface="",node="srv-a",server_id="",version="v1"} 1`},
			counts...)...)

	gateway := netip.MustParseAddr("192.0.2.1")
	expected := check.Expected{Network: contract.NodeNetwork{ID: "n1",
		Blocks: []contract.NetworkBlock{{Gateway: gateway}}}}
	answered := check.Snapshot{
		Machine: check.Machine{ServerID: "s1"},
		ARP: []check.ARPAnswer{{Target: gateway, Replied: true, RTT: 2 * time.Millisecond},
			{Target: gateway, Replied: true, RTT: 2 * time.Millisecond},
			{Target: netip.MustParseAddr("192.0.2.9"), Replied: true}},
	}
	report := check.Report{Interface: "bond0.100",
		Findings: []check.Finding{{ID: "PN103", Status: check.Fail, Severity: check.Error},
			{ID: "PN105", Status: check.Warn, Severity: check.Warning},
			{ID: "PN201", Status: check.Skip, Severity: check.Error}}}
	m.Sample(report, answered, expected, time.Unix(1700000000, 0))
	m.Addresses([]check.Finding{{ID: "PN601", Reason: "NoAnswer"}, {ID: "PN601", Reason: "Answered"},
		{ID: "PN601", Reason: "Answered"}})
	process.Wrote(nil)
	process.Wrote(errors.New("no"))
	process.Renewed(nil)
	counts = []string{
		`phoenixnap_agent_node_writes_total{result="ok"} 1`, `phoenixnap_agent_node_writes_total{result="error"} 1`,
		`phoenixnap_agent_lease_renewals_total{result="ok"} 1`,
		`phoenixnap_agent_lease_renewals_total{result="error"} 0`,
		`phoenixnap_agent_info{interface="bond0.100",node="srv-a",server_id="s1",version="v1"} 1`,
	}
	counts = append(counts, checkSeries("PN103", "error", "fail")...)
	counts = append(counts, checkSeries("PN105", "warning", "warn")...)
	counts = append(counts, checkSeries("PN201", "error", "skip")...)
	expect(t, process, m, Sources{}, append([]string{
		`phoenixnap_agent_gateway_arp_seconds{gateway="192.0.2.1"} 0.002`,
		`phoenixnap_agent_last_sample_timestamp_seconds 1.7e+09`,
		`phoenixnap_agent_addresses{id="PN601",reason="Answered"} 2`,
		`phoenixnap_agent_addresses{id="PN601",reason="NoAnswer"} 1`,
	}, counts...)...)

	// What is gone has no series any more, and what the controller says of the server outweighs what the machine knows.
	expected.Network.ServerID = "s1"
	m.Sample(report, check.Snapshot{}, expected, time.Unix(1700000010, 0))
	m.Addresses(nil)
	expect(t, process, m, Sources{}, append([]string{`phoenixnap_agent_last_sample_timestamp_seconds 1.70000001e+09`},
		counts...)...)
}

// checkSeries is the state set of a check.
func checkSeries(id, severity, current string) []string {
	var series []string
	for _, status := range []string{"ok", "skip", "warn", "unknown", "fail"} {
		value := 0
		if status == current {
			value = 1
		}
		series = append(series, fmt.Sprintf("phoenixnap_agent_check{id=%q,severity=%q,status=%q} %d", id, severity,
			status, value))
	}
	return series
}

func TestMetricsOfSources(t *testing.T) {
	process := NewMetrics()
	m := NewNetwork("v1", "srv-a")
	address := netip.MustParseAddr("203.0.113.5")
	figures := vip.Figures{Asked: 7, Addresses: []vip.AddressFigures{
		{Address: address, Service: "a/b", Machines: 1}, {Address: address, Service: "a/c", Machines: 2},
		{Address: address, Service: "a/d", Machines: 1, Mismatch: 90 * time.Second},
	}}
	sources := Sources{
		ARP:       func() arp.Counters { return arp.Counters{Heard: 5, Sent: 6, Dropped: 1} },
		Addresses: func() vip.Figures { return figures },
		VLAN:      func() Managed { return Managed{Kind: "vlan", Interface: "bond0.100", Healthy: true, Repairs: 3} },
	}
	usual := []string{
		`phoenixnap_agent_node_writes_total{result="ok"} 0`, `phoenixnap_agent_node_writes_total{result="error"} 0`,
		`phoenixnap_agent_lease_renewals_total{result="ok"} 0`,
		`phoenixnap_agent_lease_renewals_total{result="error"} 0`,
		`phoenixnap_agent_info{interface="",node="srv-a",server_id="",version="v1"} 1`,
		`phoenixnap_agent_arp_packets_total{direction="heard"} 5`,
		`phoenixnap_agent_arp_packets_total{direction="sent"} 6`,
		`phoenixnap_agent_arp_packets_total{direction="dropped"} 1`, `phoenixnap_agent_arp_probes_total 7`,
		`phoenixnap_agent_managed{interface="bond0.100",kind="vlan"} 1`,
		`phoenixnap_agent_managed_repairs_total{kind="vlan"} 3`,
	}
	expect(t, process, m, sources, append([]string{
		`phoenixnap_agent_address_machines{address="203.0.113.5",service="a/c"} 2`,
		`phoenixnap_agent_address_mismatch_seconds_total{address="203.0.113.5",service="a/d"} 90`,
	}, usual...)...)

	figures.Addresses = nil
	for range 10 * addressLimit {
		address = address.Next()
		figures.Addresses = append(figures.Addresses, vip.AddressFigures{Address: address, Machines: 2},
			vip.AddressFigures{Address: address, Machines: 2})
	}
	body := written(t, process, m, sources)
	if n := strings.Count(body, "phoenixnap_agent_address_machines{"); n != addressLimit {
		t.Errorf("%d addresses have series, want %d at most", n, addressLimit)
	}
}

func TestServerEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(testlog.Context(t), 100*time.Millisecond)
	defer cancel()
	for _, address := range []string{"127.0.0.1:0", ""} {
		if err := NewServer(standby.New(address), NewMetrics(), Sources{},
			NewHealth(time.Minute, time.Now())).Run(ctx); err != nil {
			t.Errorf("serving %q ended with %v, want nil", address, err)
		}
	}
	if err := NewServer(standby.New("192.0.2.1:1"), NewMetrics(), Sources{},
		NewHealth(time.Minute, time.Now())).Run(testlog.Context(t)); err == nil ||
		!strings.Contains(err.Error(), "--metrics-bind-address") {
		t.Errorf("an address that is not ours gave %v, want an error that names the flag", err)
	}
}

package endpoint

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
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
	s := NewServer("", NewMetrics("v1", "srv-a"), h)
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

func TestMetrics(t *testing.T) {
	m := NewMetrics("v1", "srv-a")
	gateway := netip.MustParseAddr("192.0.2.1")
	expected := check.Expected{Network: contract.NodeNetwork{Blocks: []contract.NetworkBlock{{Gateway: netip.MustParseAddr("192.0.2.1")}}}}
	answered := check.Snapshot{ARP: []check.ARPAnswer{{Target: gateway, Replied: true, RTT: 2 * time.Millisecond}}}
	report := check.Report{Findings: []check.Finding{{ID: "PN103", Status: check.Fail}, {ID: "PN105", Status: check.Warn}, {ID: "PN201", Status: check.Skip}}}
	m.Sample(report, answered, expected, time.Unix(1700000000, 0))
	m.Addresses([]check.Finding{{Reason: "NoAnswer"}, {Reason: "Answered"}, {Reason: "Answered"}})
	m.Wrote(nil)
	m.Wrote(errors.New("no"))
	s := NewServer("", m, NewHealth(time.Minute, time.Now()))
	_, body := get(t, s, "/metrics")
	for _, line := range []string{
		`phoenixnap_agent_check{id="PN103"} 3`, `phoenixnap_agent_check{id="PN105"} 1`, `phoenixnap_agent_check{id="PN201"} 0`,
		`phoenixnap_agent_gateway_arp_seconds{gateway="192.0.2.1"} 0.002`, `phoenixnap_agent_addresses{reason="Answered"} 2`,
		`phoenixnap_agent_node_writes_total{result="error"} 1`, `phoenixnap_agent_info{node="srv-a",version="v1"} 1`,
		`phoenixnap_agent_last_sample_timestamp_seconds 1.7e+09`,
	} {
		if !strings.Contains(body, line+"\n") {
			t.Errorf("no line %q in\n%s", line, body)
		}
	}
	m.Sample(report, check.Snapshot{}, expected, time.Unix(1700000010, 0))
	if _, body := get(t, s, "/metrics"); strings.Contains(body, "gateway_arp_seconds{") {
		t.Error("a gateway that fell silent still has a time")
	}
}

func TestServerEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	for _, address := range []string{"127.0.0.1:0", ""} {
		if err := NewServer(address, NewMetrics("v1", "srv-a"), NewHealth(time.Minute, time.Now())).Run(ctx); err != nil {
			t.Errorf("serving %q ended with %v, want nil", address, err)
		}
	}
	if err := NewServer("192.0.2.1:1", NewMetrics("v1", "srv-a"), NewHealth(time.Minute, time.Now())).Run(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "--metrics-bind-address") {
		t.Errorf("an address that is not ours gave %v, want an error that names the flag", err)
	}
}

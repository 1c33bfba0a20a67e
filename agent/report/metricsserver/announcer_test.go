package metricsserver

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/election"
)

// TestMetricsOfTheAnnouncer: who answers for which address and since when, and what else is reported while the agents
// announce; nothing while they do not.
func TestMetricsOfTheAnnouncer(t *testing.T) {
	known := netip.MustParseAddr("203.0.113.5")
	fresh := netip.MustParseAddr("203.0.113.6")
	figures := Announcer{
		View: &election.View{Number: 7, Members: []string{"srv-a", "srv-b", "srv-c"},
			Owners: map[netip.Addr]election.Owner{known: {Since: time.UnixMilli(1700000000500)}}},
		Addresses: []netip.Addr{known, fresh},
		Took:      4, Gave: 2, Repeated: 1, APIFailures: 1, Sent: 90, Late: 3, Heard: map[string]uint64{"taken": 180},
		Requests: map[string]uint64{"answered": 8}, Announced: 5,
	}
	m := NewNetwork("v1", "srv-a")
	sources := Sources{Announcer: func() Announcer { return figures }}
	page := func() string {
		return strings.NewReplacer(`network_id="n1",`, "", `,network_id="n1"`, "", `{network_id="n1"}`, "").Replace(
			written(t, NewMetrics(), m, sources))
	}
	if body := page(); strings.Contains(body, "announcer") || strings.Contains(body, "announced") {
		t.Errorf("while the agents do not announce there is\n%s", body)
	}
	figures.Running = true
	body := page()
	for _, want := range []string{
		"phoenixnap_agent_announcer_view_number 7", "phoenixnap_agent_announcer_members 3",
		`phoenixnap_agent_announced_address{address="203.0.113.5"} 1`,
		`phoenixnap_agent_announced_address{address="203.0.113.6"} 1`,
		`phoenixnap_agent_announced_since_timestamp_seconds{address="203.0.113.5"} 1.7000000005e+09`,
		`phoenixnap_agent_announcer_moves_total{direction="taken"} 4`,
		`phoenixnap_agent_announcer_moves_total{direction="given"} 2`,
		"phoenixnap_agent_announcer_api_failures_total 1", "phoenixnap_agent_heartbeats_sent_total 90",
		`phoenixnap_agent_heartbeats_received_total{outcome="taken"} 180`,
		`phoenixnap_agent_arp_requests_total{outcome="answered"} 8`,
		"phoenixnap_agent_announcements_total 5", "phoenixnap_agent_announcer_repeated_moves_total 1",
		"phoenixnap_agent_heartbeats_late_total 3",
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("the metrics lack %s", want)
		}
	}
	if strings.Contains(body, `since_timestamp_seconds{address="203.0.113.6"}`) {
		t.Error("an address whose time is not known has one")
	}
	figures.Addresses = nil
	for range 2 * addressLimit {
		fresh = fresh.Next()
		figures.Addresses = append(figures.Addresses, fresh)
	}
	if n := strings.Count(page(), "phoenixnap_agent_announced_address{"); n != addressLimit {
		t.Errorf("%d addresses have series, want %d at most", n, addressLimit)
	}
}

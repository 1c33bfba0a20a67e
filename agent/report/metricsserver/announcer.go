package metricsserver

import (
	"cmp"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/election"
)

// Announcer is how the agent announces addresses itself.
type Announcer struct {
	// Running reports that it does; else there are no metrics of it.
	Running bool
	// View is the newest view that is known, or nil.
	View *election.View
	// Addresses are those that this node answers for.
	Addresses []netip.Addr
	// Took and Gave count addresses that it started and stopped to answer for, APIFailures requests for the view that
	// failed.
	Took, Gave, APIFailures uint64
	// Repeated counts addresses that it started to answer for after they had moved often.
	Repeated uint64
	// Sent and Heard count frames of heartbeats, the latter by what became of them; Late those that were sent late.
	Sent, Late uint64
	Heard      map[string]uint64
	// Requests count ARP requests by what became of them, Announced announcements.
	Requests  map[string]uint64
	Announced uint64
}

// Descriptions of the metrics of the announcer.
var (
	viewDesc = prometheus.NewDesc("phoenixnap_agent_announcer_view_number",
		"Number of the newest view of the announcers that this node knows; the same on all nodes, except for moments.",
		nil, nil)
	membersDesc = prometheus.NewDesc("phoenixnap_agent_announcer_members",
		"Nodes that take part in announcing addresses, by that view.", nil, nil)
	announcedDesc = prometheus.NewDesc("phoenixnap_agent_announced_address",
		"The addresses that this node answers for; always 1.", []string{"address"}, nil)
	sinceDesc = prometheus.NewDesc("phoenixnap_agent_announced_since_timestamp_seconds",
		"Since when this node owns each address that it answers for, in seconds since 1970.", []string{"address"}, nil)
	movesDesc = prometheus.NewDesc("phoenixnap_agent_announcer_moves_total",
		"Addresses that this node started (taken) and stopped (given) to answer for.", []string{"direction"}, nil)
	repeatedDesc = prometheus.NewDesc("phoenixnap_agent_announcer_repeated_moves_total",
		"Addresses that this node started to answer for after they had moved often although no node failed.", nil, nil)
	viewFailuresDesc = prometheus.NewDesc("phoenixnap_agent_announcer_api_failures_total",
		"Requests to the API server for the view that failed or were too late.", nil, nil)
	beatsSentDesc = prometheus.NewDesc("phoenixnap_agent_heartbeats_sent_total",
		"Heartbeat frames that were sent.", nil, nil)
	beatsLateDesc = prometheus.NewDesc("phoenixnap_agent_heartbeats_late_total",
		"Heartbeats that were sent an interval or more after they were due, because the process did not run.", nil, nil)
	beatsHeardDesc = prometheus.NewDesc("phoenixnap_agent_heartbeats_received_total",
		"Heartbeat frames that were received, by outcome: taken, or the reason why not.", []string{"outcome"}, nil)
	requestsDesc = prometheus.NewDesc("phoenixnap_agent_arp_requests_total",
		"ARP requests that were received, by outcome: answered, or the reason why not.", []string{"outcome"}, nil)
	announcementsDesc = prometheus.NewDesc("phoenixnap_agent_announcements_total",
		"Announcements of addresses; each is an ARP request and a reply.", nil, nil)
)

func (s Sources) collectAnnouncer(out chan<- prometheus.Metric) {
	if s.Announcer == nil {
		return
	}
	a := s.Announcer()
	if !a.Running {
		return
	}
	view := cmp.Or(a.View, &election.View{})
	gauge(out, viewDesc, float64(view.Number))
	gauge(out, membersDesc, float64(len(view.Members)))
	for i, address := range a.Addresses {
		if i >= addressLimit {
			break
		}
		gauge(out, announcedDesc, 1, address.String())
		if since := view.Owners[address].Since; !since.IsZero() {
			gauge(out, sinceDesc, float64(since.UnixMilli())/1000, address.String())
		}
	}
	counter(out, movesDesc, float64(a.Took), "taken")
	counter(out, movesDesc, float64(a.Gave), "given")
	counter(out, repeatedDesc, float64(a.Repeated))
	counter(out, viewFailuresDesc, float64(a.APIFailures))
	counter(out, beatsSentDesc, float64(a.Sent))
	counter(out, beatsLateDesc, float64(a.Late))
	for outcome, n := range a.Heard {
		counter(out, beatsHeardDesc, float64(n), outcome)
	}
	for outcome, n := range a.Requests {
		counter(out, requestsDesc, float64(n), outcome)
	}
	counter(out, announcementsDesc, float64(a.Announced))
}

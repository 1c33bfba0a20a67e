package monitoring

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Made-up series, one sample a minute ("value+stepxcount", promtool's notation).
const (
	leads    = `leader_election_master_status{name="phoenixnap-cloud-controller-manager",instance="a"} 1x60`
	waits    = `leader_election_master_status{name="phoenixnap-cloud-controller-manager",instance="a"} 0x60`
	fetched  = `phoenixnap_account_reads_total{object="ip-blocks",result="fetched"} 0+1x60`
	stalled  = `phoenixnap_account_reads_total{object="ip-blocks",result="fetched"} 0+1x20 20x40`
	failed   = `phoenixnap_account_reads_total{object="ip-blocks",result="failed"} 0x20 1+1x40`
	web      = `namespace="shop",service="web"`
	infoA    = `phoenixnap_agent_info{instance="10.0.0.1:10298",node="a",server_id="s",version="v1"} 1x120`
	instance = `instance="10.0.0.1:10298"`
)

// alertCase is an alert with series on which it fires, and series that look alike on which it does not.
type alertCase struct {
	alert string
	fires []string
	// at is when it fires, silentAt when it does not yet; both count from the first sample.
	at, silentAt string
	// labels that it has beside its severity, and what its value reads.
	labels map[string]string
	value  string
	// quiet are series on which it stays silent.
	quiet []string
}

func serviceSeries(condition, status, reason string) string {
	return `phoenixnap_service_condition{` + web + `,condition="` + condition + `",status="` + status + `",reason="` +
		reason + `"} 1x60`
}

func nodeSeries(condition, status, reason string) string {
	return `phoenixnap_node_condition{node="a",condition="` + condition + `",status="` + status + `",reason="` +
		reason + `"} 1x60`
}

func members(instance string, n int) string {
	return fmt.Sprintf(`phoenixnap_agent_announcer_members{instance=%q} %dx60`, instance, n)
}

func heard(outcome string) string {
	return `phoenixnap_agent_heartbeats_received_total{` + instance + `,outcome="` + outcome + `"} 0+600x60`
}

func ofService(condition, status, reason string) map[string]string {
	return map[string]string{"namespace": "shop", "service": "web", "condition": condition, "status": status,
		"reason": reason}
}

func ofNode(condition, status, reason string) map[string]string {
	return map[string]string{"node": "a", "condition": condition, "status": status, "reason": reason}
}

// controllerAlertCases are those of what the controller says.
func controllerAlertCases() []alertCase {
	const (
		blockAssigned = "BlockAssigned"
		published     = "AddressPublished"
		announced     = "Announced"
		vlan          = "VLANReady"
		healthy       = "AnnouncementHealthy"
	)
	return []alertCase{
		{alert: "PhoenixNAPNoLeader", fires: []string{waits}, at: "6m", silentAt: "4m",
			quiet: []string{waits, strings.Replace(leads, `"a"`, `"b"`, 1)}},
		{alert: "PhoenixNAPAPIFailing", fires: []string{stalled, failed}, at: "40m", silentAt: "25m",
			quiet: []string{fetched, failed}},
		{
			alert: "PhoenixNAPCredentialsRefused",
			fires: []string{`phoenixnap_api_requests_total{endpoint="list servers",code="403"} 0+1x60`}, at: "8m",
			silentAt: "4m",
			quiet: []string{`phoenixnap_api_requests_total{endpoint="get IP block",code="403"} 0+1x60`,
				`phoenixnap_api_requests_total{endpoint="list servers",code="200"} 0+1x60`},
		},
		{
			alert: "PhoenixNAPOrphanIPBlocks", fires: []string{`phoenixnap_orphan_ip_blocks{standing="orphan"} 2x120`},
			at: "61m", silentAt: "50m",
			labels: map[string]string{"standing": "orphan"}, value: "2",
			quiet: []string{`phoenixnap_orphan_ip_blocks{standing="retained"} 2x120`,
				`phoenixnap_orphan_ip_blocks{standing="orphan"} 0x120`},
		},
		{
			alert: "PhoenixNAPRetainedIPBlocks", fires: []string{
				`phoenixnap_orphan_ip_blocks{standing="retained",instance="a"} 2x1500`},
			at: "25h", silentAt: "23h", value: "2",
			quiet: []string{`phoenixnap_orphan_ip_blocks{standing="orphan"} 2x1500`,
				`phoenixnap_orphan_ip_blocks{standing="retained"} 0x1500`},
		},
		{
			alert: "PhoenixNAPPurchaseRefused", fires: []string{serviceSeries(blockAssigned, "False", "TooManyBlocks")},
			at: "6m", silentAt: "4m",
			labels: ofService(blockAssigned, "False", "TooManyBlocks"),
			quiet:  []string{serviceSeries(blockAssigned, "False", "BlockAssigning")},
		},
		{
			alert: "PhoenixNAPBlockDamaged", fires: []string{serviceSeries(blockAssigned, "False", "BlockLost")},
			at: "11m", silentAt: "9m",
			labels: ofService(blockAssigned, "False", "BlockLost"),
			quiet:  []string{serviceSeries(blockAssigned, "True", "BlockAssigned")},
		},
		{
			alert: "PhoenixNAPAddressNotPublished", fires: []string{serviceSeries(published, "False", "NoNodeReady")},
			at: "21m", silentAt: "19m",
			labels: ofService(published, "False", "NoNodeReady"), quiet: []string{serviceSeries(published, "False",
				"BlockNotAssigned"), `phoenixnap_service_deletion_timestamp_seconds{` + web + `} 0x60`},
		},
		{
			alert: "PhoenixNAPReleaseStuck", fires: []string{`phoenixnap_service_deletion_timestamp_seconds{` + web +
				`} 60x60`}, at: "37m", silentAt: "30m",
			labels: map[string]string{"namespace": "shop", "service": "web"},
			quiet:  []string{`phoenixnap_service_deletion_timestamp_seconds{` + web + `} 60x20 _x40`},
		},
		{
			alert: "PhoenixNAPAddressSilent", fires: []string{serviceSeries(announced, "False", "HolderSilent")},
			at: "3m", silentAt: "1m",
			labels: ofService(announced, "False", "HolderSilent"),
			quiet:  []string{serviceSeries(announced, "Unknown", "NotReported")},
		},
		{
			alert: "PhoenixNAPAddressDisputed", fires: []string{serviceSeries(announced, "False", "ForeignOwner")},
			at: "2m", silentAt: "0m",
			labels: ofService(announced, "False", "ForeignOwner"),
			quiet:  []string{serviceSeries(announced, "True", "Answered")},
		},
		{
			alert: "PhoenixNAPNodeVLANNotReady", fires: []string{nodeSeries(vlan, "False", "VLANInterfaceDown")},
			at: "6m", silentAt: "4m",
			labels: ofNode(vlan, "False", "VLANInterfaceDown"), quiet: []string{nodeSeries(vlan, "True", "Ready")},
		},
		{
			alert: "PhoenixNAPNoNodeReady", fires: []string{nodeSeries(vlan, "False", "VLANInterfaceDown")}, at: "3m",
			silentAt: "1m",
			quiet: []string{nodeSeries(vlan, "False", "VLANInterfaceDown"),
				strings.Replace(nodeSeries(vlan, "True", "Ready"), `"a"`, `"b"`, 1)},
		},
		{
			alert: "PhoenixNAPAnnouncementUnhealthy", fires: []string{nodeSeries(healthy, "False", "NoAnswer")},
			at: "6m", silentAt: "4m",
			labels: ofNode(healthy, "False", "NoAnswer"), quiet: []string{nodeSeries(healthy, "True", "Answered")},
		},
		{
			alert: "PhoenixNAPAgentSilent", fires: []string{nodeSeries(vlan, "Unknown", "AgentSilent")}, at: "6m",
			silentAt: "4m",
			labels:   ofNode(vlan, "Unknown", "AgentSilent"),
			quiet:    []string{nodeSeries(vlan, "Unknown", "NodeUnreachable")},
		},
		{
			alert: "PhoenixNAPServersMissing", fires: []string{`phoenixnap_missing_servers{state="held"} 7x60`},
			at: "6m", silentAt: "4m",
			labels: map[string]string{"state": "held"}, value: "7",
			quiet: []string{`phoenixnap_missing_servers{state="gone"} 7x60`},
		},
	}
}

// agentAlertCases are those of what agents say themselves.
func agentAlertCases() []alertCase {
	return []alertCase{
		{
			alert: "PhoenixNAPAgentHanging", fires: []string{infoA,
				`phoenixnap_agent_last_sample_timestamp_seconds{` + instance + `} 60x60`}, at: "10m", silentAt: "5m",
			labels: map[string]string{"instance": "10.0.0.1:10298", "node": "a"},
			quiet:  []string{infoA, `phoenixnap_agent_last_sample_timestamp_seconds{` + instance + `} 0+60x60`},
		},
		{
			alert: "PhoenixNAPAgentCannotReport", fires: []string{infoA, `phoenixnap_agent_node_writes_total{` +
				instance + `,result="error"} 0+1x60`}, at: "20m", silentAt: "5m",
			labels: map[string]string{"instance": "10.0.0.1:10298", "node": "a", "result": "error"},
			quiet:  []string{infoA, `phoenixnap_agent_node_writes_total{` + instance + `,result="ok"} 0+1x60`},
		},
		{
			alert: "PhoenixNAPNodeContested", fires: []string{infoA, `phoenixnap_agent_managed_repairs_total{` +
				instance + `,kind="vlan"} 0+1x120`}, at: "90m", silentAt: "3m",
			labels: map[string]string{"instance": "10.0.0.1:10298", "node": "a", "kind": "vlan"}, value: "60",
			quiet: []string{infoA, `phoenixnap_agent_managed_repairs_total{` + instance + `,kind="vlan"} 0 2x119`},
		},
		{
			alert: "PhoenixNAPAnnouncersNoMajority", fires: []string{members("a", 4), members("b", 4)}, at: "3m",
			silentAt: "1m", value: "4",
			quiet: []string{members("a", 3), members("b", 3)},
		},
		{
			alert: "PhoenixNAPAnnouncerBehind", fires: []string{infoA, `phoenixnap_agent_announcer_view_number{` +
				instance + `} 7x60`, `phoenixnap_agent_announcer_view_number{instance="b"} 9x60`},
			at: "6m", silentAt: "4m", labels: map[string]string{"instance": "10.0.0.1:10298", "node": "a"}, value: "2",
			quiet: []string{infoA, `phoenixnap_agent_announcer_view_number{` + instance + `} 7x20 9x40`,
				`phoenixnap_agent_announcer_view_number{instance="b"} 7x17 9x43`},
		},
		{
			alert: "PhoenixNAPHeartbeatsRefused", fires: []string{infoA, heard("other_version")}, at: "20m",
			silentAt: "5m",
			labels:   map[string]string{"instance": "10.0.0.1:10298", "node": "a", "outcome": "other_version"},
			quiet:    []string{infoA, heard("taken"), heard("other_key")},
		},
	}
}

// TestEveryAlertFires tries each alert by promtool on series on which it has to fire, at its time and not before, and
// on series that look alike on which it must not.
func TestEveryAlertFires(t *testing.T) {
	byName := map[string]rule{}
	for _, each := range alerts(t) {
		byName[each.Alert] = each
	}
	path, err := filepath.Abs(filepath.Join(root, rulesFile))
	if err != nil {
		t.Fatal(err)
	}
	var groups []map[string]any
	for _, c := range slices.Concat(controllerAlertCases(), agentAlertCases()) {
		r, known := byName[c.alert]
		if !known {
			t.Errorf("no alert is called %s", c.alert)
			continue
		}
		delete(byName, c.alert)
		groups = append(groups,
			testGroup(c.alert+" fires", c.fires, expectation(c.alert, c.at, c.expected(r)),
				expectation(c.alert, c.silentAt)),
			testGroup(c.alert+" is silent", c.quiet, expectation(c.alert, c.at)))
	}
	for name := range byName {
		t.Errorf("%s is never tried", name)
	}
	promtool(t, "test", "rules", write(t, "tests.yaml", map[string]any{
		"rule_files": []string{path}, "evaluation_interval": "1m", "fuzzy_compare": true, "tests": groups,
	}))
}

func testGroup(name string, series []string, expectations ...map[string]any) map[string]any {
	var input []map[string]string
	for _, each := range series {
		at := strings.LastIndex(each, "} ") + 1
		input = append(input, map[string]string{"series": each[:at], "values": strings.TrimSpace(each[at:])})
	}
	return map[string]any{"name": name, "interval": "1m", "input_series": input, "alert_rule_test": expectations}
}

func expectation(alert, at string, expected ...map[string]any) map[string]any {
	return map[string]any{"alertname": alert, "eval_time": at, "exp_alerts": expected}
}

// expected is the alert with its texts as users read them.
func (c alertCase) expected(r rule) map[string]any {
	labels := map[string]string{}
	maps.Copy(labels, r.Labels)
	maps.Copy(labels, c.labels)
	replace := []string{"{{ $value }}", c.value, "{{ $value | humanize }}", c.value}
	for name, value := range c.labels {
		replace = append(replace, "{{ $labels."+name+" }}", value)
	}
	texts := map[string]string{}
	for name, text := range r.Annotations {
		texts[name] = strings.NewReplacer(replace...).Replace(text)
	}
	return map[string]any{"exp_labels": labels, "exp_annotations": texts}
}

package diagnose

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/check"
)

var update = flag.Bool("update", false, "write the golden files anew")

// brokenVLAN is what check.Evaluate says of a node whose VLAN interface has the wrong ID, abridged.
func brokenVLAN() Document {
	return Document{
		SchemaVersion: SchemaVersion, Node: "worker-1", Network: "public network 6104105e6b7c9a0012345678 (VLAN 100), blocks 192.0.2.0/28",
		Renderer: check.Netplan,
		Findings: []check.Finding{
			{ID: "PN000", Title: "the controller has published the public network", Status: check.OK, Observed: "public network x (VLAN 100)"},
			{ID: "PN101", Title: "the uplink is there and up", Status: check.OK, Observed: "bond0 admin up, operational up"},
			{ID: "PN102", Title: "the VLAN interface exists on the uplink", Status: check.Fail, Severity: check.Error, Reason: "WrongVLANID",
				Expected: "a VLAN interface with ID 100 (802.1Q) on bond0", Observed: "bond0.100 has VLAN ID 101",
				Cause: "bond0.100 has VLAN ID 101, the network has 100", Doc: "docs/reference/findings.md#pn102",
				Fixes: []check.Fix{
					{Tool: check.Netplan, File: "/etc/netplan/90-phoenixnap-bond0.100.yaml", Content: "network:\n  version: 2\n", Commands: []string{"ip link delete bond0.100", "netplan apply"}},
					{Tool: check.Networkd, Commands: []string{"networkctl reload"}},
					{Tool: check.IPRoute2, Commands: []string{"ip link delete bond0.100"}, Note: "lasts until the next reboot"},
				}},
			{ID: "PN103", Title: "the VLAN interface is up", Status: check.Skip, Because: "because of PN102"},
			{ID: "PN105", Title: "the MTU suits the Internet", Status: check.Warn, Cause: "bond0.100 has MTU 9000", Observed: "MTU 9000"},
			{ID: "PN601", Title: "a node answers for 203.0.113.3 (Service default/web)", Status: check.Unknown, Cause: "could not be asked"},
		},
	}
}

func TestText(t *testing.T) {
	unreached := brokenVLAN()
	unreached.Renderer, unreached.APIServer = "", "get Node worker-1: connection refused"
	for name, tc := range map[string]struct {
		document Document
		tool     check.Tool
	}{
		"recognised-renderer": {brokenVLAN(), ""},
		"chosen-tool":         {brokenVLAN(), check.Networkd},
		"api-not-reached":     {unreached, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := tc.document.Text(&got, tc.tool); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("text differs from %s; run go test ./agent/diagnose -update if it should (-want +got):\n%s", path, diff)
			}
		})
	}
}

func TestJSONHoldsTheSameFindings(t *testing.T) {
	want := brokenVLAN()
	var raw bytes.Buffer
	if err := want.JSON(&raw); err != nil {
		t.Fatal(err)
	}
	var got Document
	if err := json.Unmarshal(raw.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("document after JSON (-want +got):\n%s", diff)
	}
}

func TestExitCode(t *testing.T) {
	for name, tc := range map[string]struct {
		statuses []check.Status
		want     int
	}{
		"all well":              {[]check.Status{check.OK, check.Skip, check.Warn}, ExitOK},
		"failed":                {[]check.Status{check.OK, check.Fail}, ExitFailed},
		"unknown":               {[]check.Status{check.Unknown, check.OK}, ExitUndetermined},
		"failed beside unknown": {[]check.Status{check.Unknown, check.Fail}, ExitFailed},
		"nothing":               {nil, ExitOK},
	} {
		t.Run(name, func(t *testing.T) {
			var d Document
			for _, status := range tc.statuses {
				d.Findings = append(d.Findings, check.Finding{Status: status})
			}
			if got := d.ExitCode(); got != tc.want {
				t.Errorf("exit code %d, want %d", got, tc.want)
			}
		})
	}
}

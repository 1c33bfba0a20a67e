package diagnose

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

var update = flag.Bool("update", false, "write the golden files again")

// healthy is a node that has nothing to complain of.
func healthy() Document {
	return Document{
		SchemaVersion: SchemaVersion, Time: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), Node: "worker-1",
		ServerID:  "0123456789abcdef01234567",
		Network:   "public network 6104105e6b7c9a0012345678 (VLAN 100), blocks 192.0.2.0/28, 203.0.113.0/29",
		Interface: "bond0.100", Uplink: "bond0", Renderer: check.Netplan,
		Findings: []check.Finding{
			{ID: "PN000", Title: "the controller has published the public network", Status: check.OK,
				Severity: check.Error, Observed: "public network 6104105e6b7c9a0012345678 (VLAN 100)"},
			{ID: "PN101", Title: "the uplink exists and is " +
				"up", Status: check.OK, Severity: check.Error, Observed: "bond0 admin up, operational up"},
			{ID: "PN404", Title: "kube-proxy's IPVS does not answer for service addresses", Status: check.Skip,
				Severity: check.Error, Because: "kube-proxy does not use IPVS"},
			{ID: "PN601", Title: "a node answers for 203.0.113.3 (Service default/web)", Status: check.OK,
				Severity: check.Error, Observed: "answered by 02:00:00:00:00:07"},
		},
	}
}

// brokenVLAN is a node whose VLAN interface has the wrong ID, and which has other troubles besides.
func brokenVLAN() Document {
	d := healthy()
	d.Findings = []check.Finding{
		d.Findings[0], d.Findings[1],
		{ID: "PN102", Title: "the VLAN interface exists on the uplink", Status: check.Fail, Severity: check.Error,
			Reason:   "WrongVLANID",
			Expected: "a VLAN interface with ID 100 (802.1Q) on bond0", Observed: "bond0.100 has VLAN ID 101",
			Cause: "bond0.100 has VLAN ID 101, the network has 100", Doc: "docs/reference/findings/pn102.md",
			Fixes: []check.Fix{
				{Tool: check.Netplan, File: "/etc/netplan/90-phoenixnap-bond0.100.yaml",
					Content: "network:\n  version: 2\n  vlans:\n    bond0.100: {id: 100, link: bond0}\n",
					Commands: []string{"chmod 600 /etc/netplan/90-phoenixnap-bond0.100.yaml",
						"ip link delete bond0.100", "netplan apply"}},
				{Tool: check.Networkd, Commands: []string{"networkctl reload"},
					Note: "the .network file of bond0 needs the line VLAN=bond0.100 in its section [Network]"},
				{Tool: check.NetworkManager,
					Commands: []string{"nmcli connection add type vlan con-name bond0.100 ifname bond0.100 dev bond0 " +
						"id 100 ipv4.method manual ipv4.addresses 192.0.2.2/28"}},
				{Tool: check.IPRoute2, Commands: []string{"ip link delete bond0.100",
					"ip link add link bond0 name bond0.100 type vlan id 100"}, Note: "lasts until the next reboot"},
			}},
		{ID: "PN103", Title: "the VLAN interface is up", Status: check.Skip, Severity: check.Error,
			Because: "because of PN102"},
		{ID: "PN105", Title: "the MTU fits the " +
			"Internet", Status: check.Skip, Severity: check.Warning, Because: "because of PN102"},
		{ID: "PN104", Title: "the bond has all its members", Status: check.Warn, Severity: check.Warning,
			Cause: "bond0 has lost members", Observed: "bond0: mode 802.3ad, 1 of 2 members up",
			Fixes: []check.Fix{{Tool: check.AnyTool, Commands: []string{"cat /proc/net/bonding/bond0"},
				Note: "a member without carrier is a matter for phoenixNAP's support"}}},
		{ID: "PN405", Title: "the node forwards packets to pods", Status: check.Fail, Severity: check.Error,
			Cause: "the kernel does not forward packets, so services do not reach pods",
			Fixes: []check.Fix{{Tool: check.AnyTool, File: "/etc/sysctl.d/90-phoenixnap-ip_forward.conf",
				Content: "net.ipv4.ip_forward = 1\n"}}},
		{ID: "PN601", Title: "a node answers for 203.0.113.3 (Service default/web)", Status: check.Skip,
			Because: "because of PN102"},
		{ID: "PN601", Title: "a node answers for 203.0.113.4 (Service default/dns)", Status: check.Skip,
			Because: "because of PN102"},
	}
	return d
}

func undetermined() Document {
	d := healthy()
	d.Renderer = ""
	d.ServerID = ""
	d.Interface = ""
	d.Uplink = ""
	d.Network = "not known"
	d.APIServer = "get Node worker-1: Get \"https://10.0.0.1:6443/api/v1/nodes/worker-1\": dial tcp 10.0.0.1:6443: " +
		"connect: connection refused"
	d.Findings = []check.Finding{{ID: "PN000", Title: "the controller has published the public network",
		Status: check.Unknown, Severity: check.Error,
		Cause: "the API server could not be read, so the public network is not known",
		Fixes: []check.Fix{{Tool: check.AnyTool, Note: "name a kubeconfig with --kubeconfig"}}}}
	return d
}

func warned() Document {
	d := healthy()
	d.Managed = []string{"vlan", "return-path"}
	d.Findings = append(d.Findings, check.Finding{ID: "PN501", Title: "replies leave by the VLAN interface",
		Status: check.Warn, Severity: check.Warning,
		Cause: "replies from 192.0.2.2 to clients outside leave by bond0.11 instead of leaving by bond0.100"})
	return d
}

// duplicate is the finding for an address that two machines claim.
func duplicate() Document {
	d := healthy()
	d.Address = &Address{
		Address: netip.MustParseAddr("203.0.113.3"), Services: []string{"default/web"}, Held: []string{"bond0.100"},
		ReturnBy:  "bond0.11",
		Claimants: []Claimant{{MAC: "02:00:00:00:00:07", Nodes: []string{"worker-2"}}, {MAC: "de:ad:be:ef:00:01"}},
		Sightings: []Sighting{
			{Node: "worker-2", State: contract.AddressDuplicate, MAC: "02:00:00:00:00:01", Held: true,
				Since: time.Date(2026, 3, 4, 5, 0, 0, 0, time.UTC)},
			{Node: "worker-3", State: contract.AddressSilent, Since: time.Date(2026, 3, 4, 5, 1, 2, 0, time.UTC)}},
		Holders: []Holder{{Node: "worker-2", Source: "annotation kube-vip.io/vipHost of Service default/web"}},
	}
	d.Findings = []check.Finding{{ID: "PN604", Title: "only one node answers for 203.0.113.3 (Service default/web)",
		Status: check.Fail, Severity: check.Error,
		Cause: "203.0.113.3 is answered by this node and 02:00:00:00:00:07"}}
	return d
}

func unasked() Document {
	d := brokenVLAN()
	d.Findings = d.Findings[2:3]
	d.Address = &Address{Address: netip.MustParseAddr("203.0.113.3"),
		Unasked: "this node's path to the public network " +
			"is broken"}
	return d
}

func silent() Document {
	d := healthy()
	d.Address = &Address{Address: netip.MustParseAddr("203.0.113.3"), Services: []string{"default/web"}}
	d.Findings = d.Findings[3:]
	return d
}

func TestText(t *testing.T) {
	plain := Style{Unicode: true}
	colored := Style{Unicode: true, Color: true}
	wide := Style{Unicode: true, Width: 132}
	managed := brokenVLAN()
	managed.Managed = []string{"vlan"}
	unrecognised := brokenVLAN()
	unrecognised.Renderer = ""
	for name, tc := range map[string]struct {
		document Document
		style    Style
		tool     check.Tool
	}{
		"healthy":               {healthy(), plain, ""},
		"healthy-in-colour":     {healthy(), colored, ""},
		"warning":               {warned(), plain, ""},
		"failure":               {brokenVLAN(), plain, ""},
		"failure-in-ascii":      {brokenVLAN(), Style{}, ""},
		"failure-in-colour":     {brokenVLAN(), colored, ""},
		"failure-wide":          {brokenVLAN(), wide, ""},
		"managed":               {managed, plain, ""},
		"chosen-tool":           {brokenVLAN(), plain, check.Networkd},
		"unrecognised-renderer": {unrecognised, plain, ""},
		"undetermined":          {undetermined(), plain, ""},
		"address-duplicate":     {duplicate(), plain, ""},
		"address-unasked":       {unasked(), plain, ""},
		"address-well":          {silent(), plain, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := tc.document.Text(&got, tc.style, tc.tool); err != nil {
				t.Fatal(err)
			}
			compare(t, filepath.Join("testdata", name+".txt"), got.String())
		})
	}
}

func compare(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("text differs from %s; run go test ./agent/diagnose -update if it should (-want +got):\n%s", path,
			diff)
	}
}

// TestEveryFaultIsPrinted renders every fault that the checks know: cause and ID must be there, and no line may be
// wider than 80 columns except what is to copy.
func TestEveryFaultIsPrinted(t *testing.T) {
	const goodNode = "../verify/check/testdata/good-node.json"
	paths, err := filepath.Glob("../verify/check/testdata/*.json")
	if err != nil || len(paths) < 30 {
		t.Fatalf("%d fixtures (%v), want those of the checks", len(paths), err)
	}
	good := readReport(t, goodNode)
	for _, path := range paths {
		if path == goodNode {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(path), ".json"), func(t *testing.T) {
			d := healthy()
			d.Findings = slices.DeleteFunc(good.With(readReport(t, path)).Findings,
				func(f check.Finding) bool { return f.Status == check.OK })
			for _, tool := range append(permanentTools(), "", check.IPRoute2) {
				var out bytes.Buffer
				if err := d.Text(&out, Style{Unicode: true}, tool); err != nil {
					t.Fatal(err)
				}
				reportsAll(t, out.String(), d)
				noLineIsTooWide(t, out.String(), d)
			}
		})
	}
}

func readReport(t *testing.T, path string) (report check.Report) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &report); err != nil {
		t.Fatal(err)
	}
	return report
}

func reportsAll(t *testing.T, printed string, d Document) {
	t.Helper()
	flat := strings.Join(strings.Fields(printed), " ")
	for _, f := range d.Findings {
		if !strings.Contains(flat, string(f.ID)) {
			t.Errorf("%s is not printed", f.ID)
		}
		if f.Status != check.Skip && !strings.Contains(flat, strings.Join(strings.Fields(f.Cause), " ")) {
			t.Errorf("%s: the cause %q is not printed", f.ID, f.Cause)
		}
	}
	if first := d.Sum().Result.FirstCause; !strings.Contains(flat, string(first)+": ") {
		t.Errorf("the first cause %s is not named at the end", first)
	}
}

func noLineIsTooWide(t *testing.T, printed string, d Document) {
	t.Helper()
	copied := map[string]bool{}
	for _, f := range d.Findings {
		for _, fix := range f.Fixes {
			for line := range strings.Lines(fix.Content + "\n" + strings.Join(fix.Commands, "\n")) {
				copied[strings.TrimSpace(line)] = true
			}
		}
	}
	for line := range strings.Lines(printed) {
		line = strings.TrimRight(line, "\n")
		if utf8.RuneCountInString(line) > text.MinWidth && !copied[strings.TrimSpace(line)] {
			t.Errorf("%d columns: %s", utf8.RuneCountInString(line), line)
		}
	}
}

// TestTextIsHarmlessToATerminal: names that others chose may hold control characters.
func TestTextIsHarmlessToATerminal(t *testing.T) {
	d := brokenVLAN()
	d.Node = "worker\x1b[2J"
	d.Findings[2].Cause = "eth\x07\u202eevil\u009b31m\xff is wrong"
	d.Findings[2].Fixes[3].Commands = []string{"ip link delete \x1b]0;title\x07"}
	for name, write := range map[string]func(io.Writer) error{
		"text": func(w io.Writer) error { return d.Text(w, Style{Unicode: true}, "") }, "JSON": d.JSON, "YAML": d.YAML,
	} {
		var got bytes.Buffer
		if err := write(&got); err != nil {
			t.Fatal(err)
		}
		for _, harmful := range []string{"\x1b", "\x07", "\u202e", "\u009b", "\xff"} {
			if strings.Contains(got.String(), harmful) {
				t.Errorf("the %s holds the character %q", name, harmful)
			}
		}
	}
}

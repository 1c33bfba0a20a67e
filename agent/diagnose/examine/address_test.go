//go:build linux

package examine

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/diagnose"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer/kubevip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/vip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

var address = netip.MustParseAddr("203.0.113.3")

// seen is an observation of an address whose Service is there.
func seen(edit func(*vip.Observation)) vip.Observation {
	o := vip.Observation{Target: vip.Target{Address: address}, Interface: "bond0.100", Node: "srv-a",
		By: kubevip.Announcer{}}
	edit(&o)
	return o
}

func TestEvaluate(t *testing.T) {
	answered := func(o *vip.Observation) {
		o.MACs = []string{"02:00:00:00:00:0b"}
		o.Replied = true
	}
	for name, tc := range map[string]struct {
		observation vip.Observation
		role        string
		id          check.ID
		status      check.Status
	}{
		"published and silent":   {seen(func(*vip.Observation) {}), "", vip.AddressAnswers, check.Fail},
		"published and answered": {seen(answered), "", vip.AddressAnswers, check.OK},
		"of no Service and silent": {seen(func(o *vip.Observation) { o.Gone = true }), "",
			vip.NothingStale, check.OK},
		"of no Service and answered": {seen(func(o *vip.Observation) { answered(o); o.Gone = true }), "",
			vip.NothingStale, check.Warn},
		"the gateway answers": {seen(func(o *vip.Observation) { answered(o); o.Gone = true }),
			"the gateway of block 203.0.113.0/29",
			vip.NothingStale, check.OK},
		"of no Service and here": {seen(func(o *vip.Observation) {
			o.Gone = true
			o.Held = []string{"bond0.100"}
		}), "",
			vip.NothingStale, check.Fail},
		"could not be asked": {seen(func(o *vip.Observation) {
			o.Gone = true
			o.Error = "operation not permitted"
		}), "",
			vip.AddressAnswers, check.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			f := evaluate(tc.observation, tc.role)
			if f.ID != tc.id || f.Status != tc.status {
				t.Errorf("%s %s: %s, want %s %s", f.ID, f.Status, f.Cause, tc.id, tc.status)
			}
			if bad := f.Status != check.OK; bad != (f.Cause != "") || bad && f.Status != check.Unknown &&
				len(f.Fixes) == 0 {
				t.Errorf("status %s with cause %q and %d fixes", f.Status, f.Cause, len(f.Fixes))
			}
		})
	}
}

func TestNameOwners(t *testing.T) {
	o := seen(func(o *vip.Observation) { o.MACs = []string{"02:00:00:00:00:0b", "02:00:00:00:00:66"} })
	nameOwners(&o, nil)
	if o.Names != nil || o.Foreign != nil {
		t.Errorf("without an API server the owners are %v and %v, want nothing known", o.Names, o.Foreign)
	}
	names := owners{}
	names.learn(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "srv-b", Annotations: map[string]string{
		contract.NodeReportedIdentity: `{"hostname":"srv-b","macs":["02:00:00:00:00:0B"]}`}}})
	names.learn(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "srv-c",
		Annotations: map[string]string{contract.NodeReportedIdentity: "{"}}})
	nameOwners(&o, names)
	if diff := cmp.Diff(map[string]string{"02:00:00:00:00:0b": "srv-b"}, o.Names); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"02:00:00:00:00:66"}, o.Foreign); diff != "" {
		t.Errorf("foreign (-want +got):\n%s", diff)
	}
	want := []diagnose.Claimant{{MAC: "02:00:00:00:00:0b", Nodes: []string{"srv-b"}}, {MAC: "02:00:00:00:00:66"}}
	if diff := cmp.Diff(want, claimants(o, names)); diff != "" {
		t.Errorf("claimants (-want +got):\n%s", diff)
	}
}

func TestHolders(t *testing.T) {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web",
		Annotations: map[string]string{kubevip.VIPHost: "srv-a"}}}
	for standing, says := range map[announcer.State]string{
		announcer.Held: "renewed during the check", announcer.Released: "released", announcer.Expired: "expired",
		"": "not renewed within 5s",
	} {
		got := holders([]*corev1.Service{service}, kubevip.Announcer{},
			kubevip.Lease{Name: "shop/kubevip-web", Holder: "srv-b", State: standing}.Election())
		want := []diagnose.Holder{
			{Node: "srv-b", Source: "Lease shop/kubevip-web (" + says + ")"},
			{Node: "srv-a", Source: "annotation kube-vip.io/vipHost of Service shop/web"},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", standing, diff)
		}
	}
}

func TestSightingOf(t *testing.T) {
	since := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	raw, err := contract.ReportedAddresses{address: {State: contract.AddressSilent, Since: since}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	node := func(raw string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "srv-b",
			Annotations: map[string]string{contract.NodeReportedAddresses: raw}}}
	}
	got, reported := sightingOf(node(raw), address)
	if diff := cmp.Diff(diagnose.Sighting{Node: "srv-b", State: contract.AddressSilent, Since: since},
		got); diff != "" || !reported {
		t.Errorf("reported %t (-want +got):\n%s", reported, diff)
	}
	for _, other := range []string{"", "{", `{"203.0.113.4":{"state":"Silent"}}`} {
		if _, reported := sightingOf(node(other), address); reported {
			t.Errorf("%q is taken for a report of the address", other)
		}
	}
}

func TestRoleOf(t *testing.T) {
	expected := check.Expected{Network: contract.NodeNetwork{
		IPs: []netip.Addr{netip.MustParseAddr("203.0.113.2")},
		Blocks: []contract.NetworkBlock{{CIDR: netip.MustParsePrefix("203.0.113.0/29"),
			Gateway: netip.MustParseAddr("203.0.113.1")}},
	}}
	for address, want := range map[string]string{
		"203.0.113.1": "the gateway of block 203.0.113.0/29", "203.0.113.2": "this node's own address",
		"203.0.113.3": "",
	} {
		if got := roleOf(expected, netip.MustParseAddr(address)); got != want {
			t.Errorf("%s is %q, want %q", address, got, want)
		}
	}
}

func TestManagedOf(t *testing.T) {
	for name, tc := range map[string]struct {
		snapshot check.Snapshot
		things   []string
		mask     uint32
	}{
		"nothing": {check.Snapshot{Links: []check.Link{{Name: "bond0.100", Alias: "to rack 7"}},
			Rules: []check.Rule{{Priority: 1055, Mark: 0x2000, Mask: 0x2000}}}, nil, 0},
		"vlan": {check.Snapshot{Links: []check.Link{{Name: "bond0.100", Alias: "phoenixnap-agent made"}}},
			[]string{"vlan"}, 0},
		"both": {check.Snapshot{Links: []check.Link{{Alias: "to rack 7 | phoenixnap-agent adopted down"}},
			Rules: []check.Rule{{Priority: 1055, Mark: 0x10, Mask: 0xf0, Protocol: check.ManagedProtocol},
				{Priority: 1055, Mark: 0x20, Mask: 0xf0, Protocol: check.ManagedProtocol}}},
			[]string{"vlan", "return-path"}, 0xf0},
	} {
		t.Run(name, func(t *testing.T) {
			m := managedOf(tc.snapshot)
			if diff := cmp.Diff(tc.things, m.things); diff != "" || m.mask != tc.mask {
				t.Errorf("mask %#x (-want +got):\n%s", m.mask, diff)
			}
		})
	}
}

//go:build linux

package network

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/conditions"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// written takes what is written to a Node.
type written struct {
	conditions  map[corev1.NodeConditionType]conditions.Condition
	annotations map[string]string
}

func (w *written) Set(c conditions.Condition) { w.conditions[c.Type] = c }
func (w *written) Annotate(key, value string) { w.annotations[key] = value }

func newWritten() *written {
	return &written{map[corev1.NodeConditionType]conditions.Condition{}, map[string]string{}}
}

const ready = contract.ConditionVLANReady

var (
	fine    = check.Outcome{Status: check.OK, Reason: "Ready", Message: "all checks pass"}
	broken  = check.Outcome{Status: check.Fail, Reason: "GatewaySilent", Message: "the gateway is silent"}
	unclear = check.Outcome{Status: check.Unknown, Reason: "Unreadable", Message: "no one knows"}
)

// TestOneNetwork: what it reports is written as it is.
func TestOneNetwork(t *testing.T) {
	w := newWritten()
	s := newSummary(w)
	s.setNetworks([]string{"a"})
	reporter{s, "a"}.Outcome(ready, broken)
	if got := w.conditions[ready]; got.Status != corev1.ConditionFalse || got.Reason != broken.Reason ||
		got.Message != broken.Message {
		t.Errorf("%+v, want %+v", got, broken)
	}
	reporter{s, "b"}.Outcome(ready, fine)
	if got := w.conditions[ready]; got.Status != corev1.ConditionFalse {
		t.Errorf("a network that is not the Node's reported, and the condition is %+v", got)
	}
}

// TestTheWorstNetworkCounts: the condition is True only if all networks are ready, and names those that are not.
func TestTheWorstNetworkCounts(t *testing.T) {
	ids := []string{"a", "b"}
	for name, tc := range map[string]struct {
		outcomes map[string]check.Outcome
		known    bool
		status   check.Status
		names    []string
	}{
		"both fine":               {map[string]check.Outcome{"a": fine, "b": fine}, true, check.OK, ids},
		"one broken":              {map[string]check.Outcome{"a": fine, "b": broken}, true, check.Fail, []string{"b"}},
		"both broken":             {map[string]check.Outcome{"a": broken, "b": broken}, true, check.Fail, ids},
		"one unclear":             {map[string]check.Outcome{"a": unclear, "b": fine}, true, check.Unknown, []string{"a"}},
		"broken outweighs":        {map[string]check.Outcome{"a": unclear, "b": broken}, true, check.Fail, []string{"b"}},
		"one has not reported":    {map[string]check.Outcome{"a": fine}, false, check.OK, nil},
		"the other one is broken": {map[string]check.Outcome{"b": broken}, true, check.Fail, []string{"b"}},
		"none has reported":       {nil, false, "", nil},
	} {
		o, known := combined(ids, tc.outcomes)
		if known != tc.known || known && o.Status != tc.status {
			t.Errorf("%s: %+v, %t", name, o, known)
		}
		for _, id := range ids {
			if known && strings.Contains(o.Message, "network "+id+": ") != slices.Contains(tc.names, id) {
				t.Errorf("%s: the message is %q, want the networks %q in it", name, o.Message, tc.names)
			}
		}
	}
}

// TestIdentityOfAll: the hardware addresses of all VLAN interfaces, once all networks are known.
func TestIdentityOfAll(t *testing.T) {
	w := newWritten()
	s := newSummary(w)
	s.setNetworks([]string{"b", "a"})
	of := func(id, vif, mac, address string) contract.Identity {
		return contract.Identity{Hostname: "srv-a", VLANInterfaces: map[string]contract.VLANInterface{id: {Name: vif}},
			MACs: []string{"02:00:00:00:00:01", mac}, Addresses: []netip.Addr{netip.MustParseAddr(address)}}
	}
	reporter{s, "a"}.Identity(of("a", "bond0.3", "02:00:00:00:00:03", "192.0.2.2"))
	if got := w.annotations[contract.NodeReportedIdentity]; got != "" {
		t.Errorf("one network of two is known, and %s is reported", got)
	}
	reporter{s, "b"}.Identity(of("b", "bond0.2", "02:00:00:00:00:02", "192.0.2.2"))
	var got contract.Identity
	if err := json.Unmarshal([]byte(w.annotations[contract.NodeReportedIdentity]), &got); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(got.VLANInterfaces, map[string]contract.VLANInterface{
		"a": {Name: "bond0.3"}, "b": {Name: "bond0.2"}}) || len(got.MACs) != 3 ||
		len(got.Addresses) != 1 {
		t.Errorf("%+v, want the interfaces of both networks, and three hardware addresses", got)
	}
	reporter{s, "a"}.Outcome(contract.ConditionVLANReady, check.Outcome{Status: check.Fail})
	reporter{s, "b"}.Outcome(contract.ConditionVLANReady, check.Outcome{Status: check.OK})
	got = contract.Identity{}
	if err := json.Unmarshal([]byte(w.annotations[contract.NodeReportedIdentity]), &got); err != nil ||
		got.VLANInterfaces["a"].Ready || !got.VLANInterfaces["b"].Ready {
		t.Errorf("%+v (%v), want network b to be ready, and a not", got, err)
	}
	s.setNetworks([]string{"a"})
	got = contract.Identity{}
	if err := json.Unmarshal([]byte(w.annotations[contract.NodeReportedIdentity]), &got); err != nil ||
		!maps.Equal(got.VLANInterfaces, map[string]contract.VLANInterface{"a": {Name: "bond0.3"}}) {
		t.Errorf("%+v (%v), want the interface of the network that stays", got, err)
	}
}

// TestAddressesOfAll: what one network reports leaves the reports of the others.
func TestAddressesOfAll(t *testing.T) {
	w := newWritten()
	s := newSummary(w)
	s.setNetworks([]string{"a", "b"})
	of := func(address string) contract.ReportedAddresses {
		return contract.ReportedAddresses{netip.MustParseAddr(address): {State: contract.AddressAnswered}}
	}
	reporter{s, "a"}.Addresses(of("192.0.2.3"))
	if got, written := w.annotations[contract.NodeReportedAddresses]; written {
		t.Errorf("%s takes away what an earlier agent reported of the other network", got)
	}
	reporter{s, "b"}.Addresses(of("203.0.113.3"))
	reporter{s, "a"}.Addresses(of("192.0.2.4"))
	all, err := contract.ParseReportedAddresses(w.annotations[contract.NodeReportedAddresses])
	if err != nil || len(all) != 2 {
		t.Errorf("reported %v (%v), want an address of each network", all, err)
	}
}

package vip

import (
	"encoding/json"
	"slices"
	"testing"

	"k8s.io/client-go/kubernetes/fake"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// FuzzMACTable: whatever a Node reports of itself, the table names that Node for its hardware addresses, no other, and
// remembers only so many.
func FuzzMACTable(f *testing.F) {
	f.Add(`{"macs":["02:00:00:00:00:0a"]}`, macA)
	f.Add(`{"macs":["02:00:00:00:00:0b",""]}`, macA)
	f.Add(`{"macs":null,"addresses":["x"]}`, macA)
	f.Add(`{"macs":{}}`, "")
	f.Add(`{`, macB)
	many, err := json.Marshal(map[string]any{"macs": make([]string, 1000)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(many), "")
	f.Fuzz(func(t *testing.T, report, mac string) {
		node := identified("srv-a")
		node.Annotations[contract.NodeReportedIdentity] = report
		table := NewMACTable(fake.NewClientset(node).CoreV1().Nodes(), func() {})
		table.Of(mac, true, "srv-a", "absent")
		if err := table.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
		var id contract.Identity
		readable := json.Unmarshal([]byte(report), &id) == nil
		reported := readable && slices.Contains(id.MACs, mac)
		name, known := table.Of(mac, true)
		if !known || (name == "srv-a") != reported || name != "srv-a" && name != "" {
			t.Errorf("%q belongs to %q, known %t; it is reported: %t", mac, name, known, reported)
		}
		if len(table.names) > maxNames {
			t.Errorf("%d hardware addresses are remembered, want at most %d", len(table.names), maxNames)
		}
	})
}

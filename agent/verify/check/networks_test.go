package check

import (
	"slices"
	"strings"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/nodenet"
)

// TestExpectedOfANetwork: that of the name, else the first one; a name that the Node does not have is said.
func TestExpectedOfANetwork(t *testing.T) {
	on := nodenet.On(contract.NodeNetwork{ID: "a", VLAN: 100},
		contract.NodeNetwork{Name: "second", ID: "b", VLAN: 200})
	for name, want := range map[string]string{"": "a", "default": "a", "second": "b"} {
		if e := ExpectedOf(on, nil, name); e.Network.ID != want || len(e.Others) != 1 ||
			e.Others[0] == e.Network.VLAN {
			t.Errorf("%q: %+v, want the network %s beside another", name, e, want)
		}
	}
	if e := ExpectedOf(on, nil, "third"); !strings.Contains(e.Unreadable, "default, second") {
		t.Errorf("a network that the Node does not have: %+v", e)
	}
}

// TestOtherNetworks: what the agent keeps for another network of the Node, and faults of it, change nothing in the
// report about this one.
func TestOtherNetworks(t *testing.T) {
	e := expectedNode()
	e.Mask = 0xf0
	before := Evaluate(e, goodNode())
	e.Others = []int{200}
	s := goodNode()
	// The tables of the other network are empty: its interface is down.
	for _, table := range []int{1200, 1200 + TableStep} {
		s.Rules = append(s.Rules, Rule{Priority: 1055, Mark: 0x30, Mask: 0xf0, Table: table, Protocol: ManagedProtocol})
	}
	for i, f := range Evaluate(e, s).Findings {
		if old := before.Findings[i]; f.Status != old.Status || f.Reason != old.Reason || f.Observed != old.Observed {
			t.Errorf("%s became %s %s (%s), was %s %s (%s)", f.ID, f.Status, f.Reason, f.Observed, old.Status,
				old.Reason, old.Observed)
		}
	}
	e.Others = nil
	if Evaluate(e, s).Finding(RoutingTables).Status != Warn {
		t.Error("empty tables are no finding where they are of no other network")
	}
}

// TestSeveralNetworksNeedManagement: the default route leads by one network at most, so only the agent can lead replies
// of all.
func TestSeveralNetworksNeedManagement(t *testing.T) {
	byHand := []Fix{{Note: "by hand"}}
	fixes := func(others []int, mask uint32) []Fix {
		return view{Expected: Expected{Others: others, Mask: mask}}.orManaged(func() []Fix { return byHand })
	}
	managed := slices.ContainsFunc(fixes([]int{200}, 0),
		func(f Fix) bool { return strings.Contains(f.Note, "--manage=return-path") })
	if !managed {
		t.Errorf("of several networks, none managed: %+v", fixes([]int{200}, 0))
	}
	if fixes(nil, 0)[0].Note != "by hand" || fixes([]int{200}, 0xf0)[0].Note != "by hand" {
		t.Error("one network, or a managed one, is fixed otherwise than before")
	}
}

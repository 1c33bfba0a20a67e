package kubevip

import (
	"maps"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/nodenet"
)

// node is a Node; ready is the status of its condition, empty for a node without an agent, and vlan the
// interface that its agent reports, "-" for a report without one.
func node(networkID string, ready corev1.ConditionStatus, vlan string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
	if networkID != "" {
		n.Annotations = nodenet.Member(networkID)
	}
	if ready != "" {
		n.Status.Conditions = []corev1.NodeCondition{{Type: contract.ConditionVLANReady, Status: ready}}
	}
	switch vlan {
	case "":
	case "-":
		n.Annotations[contract.NodeReportedIdentity] = `{"hostname":"n"}`
	case "garbage":
		n.Annotations[contract.NodeReportedIdentity] = `{`
	default:
		n.Annotations[contract.NodeReportedIdentity] = `{"vlanInterfaces":{"` + networkID + `":{"name":"` + vlan +
			`"}}}`
	}
	return n
}

func TestInterface(t *testing.T) {
	for _, test := range []struct {
		name  string
		nodes []*corev1.Node
		vlan  string
	}{
		{"no node", nil, ""},
		{"no agent", []*corev1.Node{node("net1", "", ""), node("net1", "", "")}, ""},
		{"one of two ready", []*corev1.Node{node("net1", "False", "bond0.20"), node("net1", "True", "bond0.20")},
			"bond0.20"},
		{"none ready", []*corev1.Node{node("net1", "False", "bond0.20"), node("net1", "Unknown", "bond0.20")},
			"bond0.20"},
		{"ready node is no member", []*corev1.Node{node("", "True", "bond0.20")}, ""},
		{"ready node is in another network", []*corev1.Node{node("net2", "True", "bond0.21"),
			node("net1", "False", "bond0.20")}, "bond0.20"},
		{"agent on one node only, not ready", []*corev1.Node{node("net1", "False", "bond0.20"), node("net1", "", "")},
			"bond0.20"},
		{"names differ", []*corev1.Node{node("net1", "True", "bond0.20"), node("net1", "True", "vlan20")}, ""},
		{"one reports none", []*corev1.Node{node("net1", "True", "bond0.20"), node("net1", "False", "-")}, ""},
		{"one reports garbage", []*corev1.Node{node("net1", "True", "bond0.20"), node("net1", "True", "garbage")},
			""},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := interfaceOf(test.nodes, network.Named{ID: "net1"}); got != test.vlan {
				t.Errorf("interface is %q, want %q", got, test.vlan)
			}
		})
	}
}

// TestFurtherNetwork: kube-vip is configured for the default network, so in another one it gets an address only with
// the interface, and that is none of the default network.
func TestFurtherNetwork(t *testing.T) {
	address := netip.MustParseAddr("203.0.113.10")
	west := network.Named{Name: "west", ID: "net2"}
	home := node("net1", "True", "bond0.20")
	for name, test := range map[string]struct {
		nodes       []*corev1.Node
		annotations map[string]string
		want        map[string]any
	}{
		"not reported yet":     {nodes: []*corev1.Node{home, node("net2", "True", "")}},
		"no node":              {nodes: []*corev1.Node{home}},
		"one reports garbage":  {nodes: []*corev1.Node{home, node("net2", "True", "garbage")}},
		"one reports no other": {nodes: []*corev1.Node{home, node("net2", "True", "-")}},
		"reported": {nodes: []*corev1.Node{home, node("net2", "True", "bond0.57")},
			want: map[string]any{contract.KubeVIPAddresses: "203.0.113.10", contract.KubeVIPInterface: "bond0.57"}},
		"most": {nodes: []*corev1.Node{node("net2", "True", "bond1.57"), node("net2", "True", "bond2.57"),
			node("net2", "True", "bond2.57"), node("net2", "True", "-"), node("net2", "True", "-"),
			node("net2", "True", "-")},
			want: map[string]any{contract.KubeVIPAddresses: "203.0.113.10", contract.KubeVIPInterface: "bond2.57"}},
		"chosen by the user": {nodes: []*corev1.Node{home},
			annotations: map[string]string{contract.KubeVIPInterface: "eth7"},
			want:        map[string]any{contract.KubeVIPAddresses: "203.0.113.10"}},
	} {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: test.annotations}}
		if got := New(nil, west).Publish(service, address, "", test.nodes); !maps.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

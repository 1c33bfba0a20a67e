package kubevip

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/nodenet"
)

// node is a Node; ready is the status of its condition, empty for a node without an agent, and vlan the
// interface that its agent reports, "-" for a report without one.
func node(network string, ready corev1.ConditionStatus, vlan string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
	if network != "" {
		n.Annotations = nodenet.Member(network)
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
		n.Annotations[contract.NodeReportedIdentity] = `{"vlanInterface":"` + vlan + `"}`
	}
	return n
}

func TestCommonInterface(t *testing.T) {
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
			if got := commonInterface(test.nodes, "net1"); got != test.vlan {
				t.Errorf("interface is %q, want %q", got, test.vlan)
			}
		})
	}
}

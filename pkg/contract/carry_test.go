package contract

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

const carrierNetwork = "60473c2509268bc77fd06d29"

// listOf is the annotation with networks of which the first is the default one.
func listOf(networks ...NodeNetwork) string {
	for i := range networks {
		networks[i].Name = "default"
		if i > 0 {
			networks[i].Name = fmt.Sprint("other-", i)
		}
		networks[i].VLAN = 20
	}
	raw, err := EncodePublicNetworks(networks)
	if err != nil {
		panic(err)
	}
	return raw
}

// carrier is a Node that may carry traffic.
func carrier(name string, changes ...func(*corev1.Node)) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: map[string]string{
			NodePublicNetworks: listOf(NodeNetwork{ID: carrierNetwork, Member: true})}},
		Spec: corev1.NodeSpec{ProviderID: ProviderID("60473c2509268bc77fd06d31")},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
			{Type: ConditionVLANReady, Status: corev1.ConditionTrue, Reason: "Ready"},
		}},
	}
	for _, change := range changes {
		change(node)
	}
	return node
}

func excluded(n *corev1.Node) { n.Labels[corev1.LabelNodeExcludeBalancers] = "" }

func labelled(n *corev1.Node) { n.Labels[NodeVLANReady] = TagTrue }

func TestWhoCarries(t *testing.T) {
	vlan := func(status corev1.ConditionStatus) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Status.Conditions[1].Status = status }
	}
	kubelet := func(status corev1.ConditionStatus) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Status.Conditions[0].Status = status }
	}
	reportsOf := func(network, name string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Annotations[NodeReportedIdentity] = `{"vlanInterfaces":{"` + network + `":{"name":"` + name +
				`","ready":true}}}`
		}
	}
	reports := func(name string) func(*corev1.Node) { return reportsOf(carrierNetwork, name) }
	annotated := func(name, value string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Annotations[name] = value }
	}
	in := func(networks ...NodeNetwork) func(*corev1.Node) {
		return annotated(NodePublicNetworks, listOf(networks...))
	}
	for name, tc := range map[string]struct {
		changes []func(*corev1.Node)
		// kubeVIP and agent are part of why not with either announcer; empty where the Node may carry.
		kubeVIP, agent string
	}{
		"healthy":   {},
		"not ready": {changes: []func(*corev1.Node){kubelet(corev1.ConditionFalse)}},
		"cordoned":  {changes: []func(*corev1.Node){func(n *corev1.Node) { n.Spec.Unschedulable = true }}},
		"not excluded": {changes: []func(*corev1.Node){func(n *corev1.Node) {
			n.Labels[corev1.LabelNodeExcludeBalancers] = "false"
		}}},
		"excluded": {[]func(*corev1.Node){excluded}, corev1.LabelNodeExcludeBalancers,
			corev1.LabelNodeExcludeBalancers},
		"kube-vip's last": {[]func(*corev1.Node){excluded, labelled}, "", corev1.LabelNodeExcludeBalancers},
		"handed over":     {[]func(*corev1.Node){annotated(NodeHandOver, TagTrue)}, "", NodeHandOver},
		"not selected": {[]func(*corev1.Node){in(NodeNetwork{ID: carrierNetwork, Member: true,
			Announcer: AnnouncerNone})}, "--service-node-selector", "--service-node-selector"},
		"load balancers are off": {[]func(*corev1.Node){in()}, "--service-node-selector", "--service-node-selector"},
		"unreachable":            {[]func(*corev1.Node){kubelet(corev1.ConditionUnknown), labelled}, "kubelet", "kubelet"},
		"broken": {[]func(*corev1.Node){vlan(corev1.ConditionFalse), labelled}, "=False, reason Ready",
			"=False"},
		"doubtful": {[]func(*corev1.Node){vlan(corev1.ConditionUnknown)}, "=Unknown", "=Unknown"},
		"no member": {[]func(*corev1.Node){in(NodeNetwork{ID: carrierNetwork})}, "not a member",
			"not a member"},
		"another network": {[]func(*corev1.Node){in(NodeNetwork{ID: "x", Member: true})},
			"not a member of public network " + carrierNetwork, "not a member of public network " + carrierNetwork},
		"two networks": {changes: []func(*corev1.Node){in(NodeNetwork{ID: "x", Announcer: AnnouncerNone},
			NodeNetwork{ID: carrierNetwork, Member: true}), reports("bond0.20")}},
		"interface not reported": {[]func(*corev1.Node){in(NodeNetwork{ID: "x"},
			NodeNetwork{ID: carrierNetwork, Member: true}), reports("")},
			"no agent that reports the VLAN interface of public network other-1", ""},
		"interface not named after its VLAN": {[]func(*corev1.Node){in(NodeNetwork{ID: "x"},
			NodeNetwork{ID: carrierNetwork, Member: true}), reports("bond0.120")},
			"name does not end in the VLAN ID 20, as kube-vip needs it there (name it bond0.20", ""},
		"a fault of another network": {[]func(*corev1.Node){vlan(corev1.ConditionFalse), reports("bond0.20")},
			"VLANReady=False", ""},
		"a fault of another network, beside kube-vip": {changes: []func(*corev1.Node){vlan(corev1.ConditionFalse),
			reports("bond0.20"), labelled}},
		"a fault of this one of two": {[]func(*corev1.Node){vlan(corev1.ConditionFalse), reportsOf("x", "bond0.21"),
			labelled}, "VLANReady=False", "VLANReady=False"},
		"an agent that is silent": {[]func(*corev1.Node){vlan(corev1.ConditionUnknown), reports("bond0.20"), labelled},
			"VLANReady=Unknown", "VLANReady=Unknown"},
		"not selected for another network": {changes: []func(*corev1.Node){in(
			NodeNetwork{ID: carrierNetwork, Member: true},
			NodeNetwork{ID: "x", Member: true, Announcer: AnnouncerNone})}},
		"member of another network only": {[]func(*corev1.Node){in(NodeNetwork{ID: carrierNetwork},
			NodeNetwork{ID: "x", Member: true})}, "not a member", "not a member"},
		"unreadable": {[]func(*corev1.Node){annotated(NodePublicNetworks, `[{"name":"default","vlan":"ten"}]`)},
			`unreadable annotation phoenixnap.com/public-networks: public network "default": `,
			"kubectl annotate node a phoenixnap.com/public-networks-"},
		"replaced": {[]func(*corev1.Node){annotated(NodeServerMissing, "2026-03-01T12:00:00Z")}, "no longer exists",
			"no longer exists"},
		"nothing known": {[]func(*corev1.Node){func(n *corev1.Node) { delete(n.Annotations, NodePublicNetworks) }},
			"publish", "publish"},
		"another provider": {[]func(*corev1.Node){func(n *corev1.Node) { n.Spec.ProviderID = "k3s://a" }},
			"no phoenixNAP", "no phoenixNAP"},
		"not initialised": {[]func(*corev1.Node){func(n *corev1.Node) { n.Spec.ProviderID = "" }}, "no phoenixNAP",
			"no phoenixNAP"},
		"going": {[]func(*corev1.Node){labelled, func(n *corev1.Node) {
			n.DeletionTimestamp = &metav1.Time{}
		}}, "deleted", "deleted"},
		"scaled down": {[]func(*corev1.Node){labelled, func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: toBeDeleted}}
		}}, "autoscaler", "autoscaler"},
	} {
		node := carrier("a", tc.changes...)
		for announcer, want := range map[string]string{AnnouncerKubeVIP: tc.kubeVIP, AnnouncerAgent: tc.agent} {
			may, why := Carriers{Network: carrierNetwork, Announcer: announcer}.Any([]*corev1.Node{node})
			if may != (want == "") || !strings.Contains(why, want) || !may && !strings.HasPrefix(why, "Node a ") {
				t.Errorf("%s, %s: may carry %v, %q, want %q", name, announcer, may, why, want)
			}
		}
	}
}

// Who has no agent is suspicious only where others have one, and where no pod of kube-vip was allowed by hand.
func TestNodesWithoutAgent(t *testing.T) {
	bare := func(n *corev1.Node) { n.Status.Conditions = n.Status.Conditions[:1] }
	broken := func(n *corev1.Node) { n.Status.Conditions[1].Status = corev1.ConditionFalse }
	rule := Carriers{Announcer: AnnouncerKubeVIP}
	for name, tc := range map[string]struct {
		nodes []*corev1.Node
		may   bool
	}{
		"no Nodes":       {nil, false},
		"no agents":      {[]*corev1.Node{carrier("a", bare)}, true},
		"excluded":       {[]*corev1.Node{carrier("a", bare, excluded)}, false},
		"one agent":      {[]*corev1.Node{carrier("a", bare), carrier("b", broken)}, false},
		"label by hand":  {[]*corev1.Node{carrier("a", bare, labelled), carrier("b", broken)}, true},
		"one that works": {[]*corev1.Node{carrier("a", bare), carrier("b")}, true},
	} {
		if may, why := rule.Any(tc.nodes); may != tc.may || may != (why == "") {
			t.Errorf("%s: may carry %v, %q", name, may, why)
		}
	}
}

// The message names the Nodes, the reason of each, and a command that ends it, and does not grow with the cluster.
func TestWhyNoneCarries(t *testing.T) {
	rule := Carriers{Selector: labels.SelectorFromSet(labels.Set{"edge": "yes"})}
	edge := func(n *corev1.Node) { n.Labels["edge"] = "yes" }
	nodes := []*corev1.Node{carrier("cp-2", edge, excluded), carrier("cp-1", edge, excluded), carrier("w-1")}
	const label = "node.kubernetes.io/exclude-from-external-load-balancers"
	want := "Node cp-1, cp-2 has the label " + label + " (kubectl label node cp-1 cp-2 " + label + "-); " +
		`Node w-1 does not match --service-node-selector (add the labels "edge=yes")`
	if _, why := rule.Any(nodes); why != want {
		t.Errorf("%q\nwant %q", why, want)
	}
	for i := range 1000 {
		nodes = append(nodes, carrier(fmt.Sprintf("x-%03d", i), edge, excluded))
	}
	if _, why := rule.Any(nodes); len(why) > 600 || !strings.Contains(why, "and 997 more") {
		t.Errorf("%q", why)
	}
}

// FuzzCarriers: whatever a Node looks like, the answer is the same twice, and why is empty only if it may carry.
func FuzzCarriers(f *testing.F) {
	f.Add("a", "phoenixnap://60473c2509268bc77fd06d31", "True", "Ready", "true", "agent", false)
	f.Fuzz(func(t *testing.T, name, provider, status, reason, member, announcer string, bar bool) {
		node := carrier(name, func(n *corev1.Node) {
			n.Spec.ProviderID = provider
			n.Status.Conditions[1].Status = corev1.ConditionStatus(status)
			n.Status.Conditions[1].Reason = reason
			n.Annotations[NodePublicNetworks] = fmt.Sprintf(`[{"name":"default","id":"n","vlan":20,"member":%s,`+
				`"announcer":%q}]`, member, announcer)
			if bar {
				excluded(n)
			}
		})
		may, why := Carriers{}.Any([]*corev1.Node{node})
		again, same := Carriers{}.Any(slices.Repeat([]*corev1.Node{node}, 2))
		wrong := may && (bar || status != "True" || !strings.Contains(member, "true"))
		if wrong || may != again || may != (why == "") || may != (same == "") {
			t.Errorf("may carry %v (%q), twice %v (%q)", may, why, again, same)
		}
	})
}

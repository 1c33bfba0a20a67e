package service

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/nodenet"
)

func nodeWith(change func(*corev1.Node)) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{"edge": "yes"},
			Annotations: nodenet.Member("n")},
		Spec: corev1.NodeSpec{ProviderID: "phoenixnap://60473c2509268bc77fd06d31"},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
			{Type: contract.ConditionVLANReady, Status: corev1.ConditionTrue},
		}},
	}
	change(node)
	return node
}

// leaves publishes that the server of a Node is no member of its network.
func leaves(n *corev1.Node, networkID string) {
	maps.Copy(n.Annotations, nodenet.On(contract.NodeNetwork{ID: networkID}))
}

// ofEdge is the rule by which Nodes carry traffic that have the label edge.
var ofEdge = contract.Carriers{Network: "n",
	Selector: labels.SelectorFromSet(labels.Set{"edge": "yes"})}.Everywhere()

//proves:known-bugs/flapping-nodes
//proves:known-bugs/missed-nodes
func TestNodesThatMatter(t *testing.T) {
	c := &Controller{config: Config{Carriers: ofEdge}}
	for name, tc := range map[string]struct {
		change  func(*corev1.Node)
		carries bool
		matters bool
	}{
		"nothing": {func(*corev1.Node) {}, true, false},
		"heartbeat": {func(n *corev1.Node) { n.Status.Conditions[1].LastHeartbeatTime = metav1.Now() },
			true, false},
		"not ready": {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }, true,
			false},
		"an unrelated label": {func(n *corev1.Node) { n.Labels["a"] = "b" }, true, false},
		"unselected":         {func(n *corev1.Node) { delete(n.Labels, "edge") }, false, true},
		"excluded": {func(n *corev1.Node) { n.Labels[corev1.LabelNodeExcludeBalancers] = "true" }, false,
			true},
		"excluded, empty value": {func(n *corev1.Node) { n.Labels[corev1.LabelNodeExcludeBalancers] = "" }, false,
			true},
		"not excluded": {func(n *corev1.Node) { n.Labels[corev1.LabelNodeExcludeBalancers] = "false" }, true,
			false},
		"about to be deleted": {func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler"}}
		}, false, true},
		"being deleted": {func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{} }, false, true},
		"unreachable": {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, false,
			true},
		"VLAN not ready": {func(n *corev1.Node) { n.Status.Conditions[1].Status = corev1.ConditionUnknown },
			false, true},
		"no word of the VLAN": {func(n *corev1.Node) { n.Status.Conditions = n.Status.Conditions[:1] }, true, true},
		"no member any more": {func(n *corev1.Node) { leaves(n, "n") },
			false, true},
		"another network": {func(n *corev1.Node) { maps.Copy(n.Annotations, nodenet.Member("x")) }, false, true},
		"two networks": {func(n *corev1.Node) {
			maps.Copy(n.Annotations, nodenet.On(contract.NodeNetwork{ID: "x"},
				contract.NodeNetwork{Name: "a", ID: "n", Member: true}))
		}, true, true},
		"another VLAN ID": {func(n *corev1.Node) {
			maps.Copy(n.Annotations, nodenet.On(contract.NodeNetwork{ID: "n", VLAN: 7, Member: true}))
		}, true, false},
		"unreadable": {func(n *corev1.Node) { n.Annotations[contract.NodePublicNetworks] = "x" }, false, true},
		"another server": {func(n *corev1.Node) { n.Spec.ProviderID = "phoenixnap://60473c2509268bc77fd06d32" },
			true, true},
		"another VLAN interface": {func(n *corev1.Node) { n.Annotations[contract.NodeReportedIdentity] = "{}" }, true,
			true},
	} {
		node := nodeWith(tc.change)
		if got, _ := ofEdge("").Any([]*corev1.Node{node}); got != tc.carries {
			t.Errorf("%s: carries traffic %v, want %v", name, got, tc.carries)
		}
		if got := c.factsOf(node) != c.factsOf(nodeWith(func(*corev1.Node) {})); got != tc.matters {
			t.Errorf("%s: matters %v, want %v", name, got, tc.matters)
		}
	}
}

func TestReportChanges(t *testing.T) {
	report := func(raw string) *corev1.Node {
		return nodeWith(func(n *corev1.Node) { n.Annotations[contract.NodeReportedAddresses] = raw })
	}
	const answered = `{"203.0.113.10":{"state":"Answered","mac":"02:00:00:00:00:01","since":"2026-03-01T12:00:00Z"}}`
	const later = `{"203.0.113.10":{"state":"Answered","mac":"02:00:00:00:00:01","since":"2026-03-01T13:00:00Z"}}`
	const silent = `{"203.0.113.10":{"state":"Silent","since":"2026-03-01T12:00:00Z"},"203.0.113.11":{"state":"Silent","since":"2026-03-01T12:00:00Z"}}`
	first := netip.MustParseAddr("203.0.113.10")
	second := netip.MustParseAddr("203.0.113.11")
	for name, tc := range map[string]struct {
		before, after string
		want          []netip.Addr
	}{
		"the same": {answered, answered, nil},
		"later":    {answered, later, nil},
		"new":      {"", answered, []netip.Addr{first}},
		"no more":  {answered, "", []netip.Addr{first}},
		"changed":  {answered, silent, []netip.Addr{first, second}},
		"unclear":  {answered, "{", []netip.Addr{first}},
		"moved":    {answered, strings.ReplaceAll(answered, "00:01", "00:02"), []netip.Addr{first}},
		"held":     {answered, strings.ReplaceAll(answered, `"since"`, `"held":true,"since"`), []netip.Addr{first}},
	} {
		got := reportChanges(report(tc.before), report(tc.after))
		slices.SortFunc(got, netip.Addr.Compare)
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

func TestAlarmKnowsWhomItConcerns(t *testing.T) {
	address := netip.MustParseAddr("203.0.113.10")
	published := withIngress(corev1.LoadBalancerIngress{IP: address.String()})
	waiting := func(s *corev1.Service) {
		s.Status.Conditions = []metav1.Condition{{Type: contract.ServiceConditionBlockAssigned,
			Reason: string(ipblock.AddressQuarantined)}}
	}
	for name, tc := range map[string]struct {
		add     func(*nodeChanges)
		service *corev1.Service
		want    bool
	}{
		"all":                    {func(n *nodeChanges) { n.add(true) }, serviceWith(), true},
		"all, but it is foreign": {func(n *nodeChanges) { n.add(true) }, serviceWith(ofClass("x/y")), false},
		"all, but it leaves": {func(n *nodeChanges) { n.add(true) }, serviceWith(deleted, heldBy(frameworks)),
			false},
		"its address": {func(n *nodeChanges) { n.add(false, address) }, serviceWith(published), true},
		"its address, not in status": {func(n *nodeChanges) { n.add(false, address) },
			serviceWith(annotated(contract.ServiceIPAddress, address.String())), true},
		"its address, and it leaves": {func(n *nodeChanges) { n.add(false, address) },
			serviceWith(published, deleted, heldBy(frameworks)), true},
		"another address":  {func(n *nodeChanges) { n.add(false, address.Next()) }, serviceWith(published), false},
		"no address":       {func(n *nodeChanges) { n.add(false, address) }, serviceWith(), false},
		"it waits for any": {func(n *nodeChanges) { n.add(false, address) }, serviceWith(waiting), true},
	} {
		n := newNodeChanges()
		tc.add(n)
		since, concerned := n.drain()
		if got := concerned(tc.service); got != tc.want {
			t.Errorf("%s: concerned %v, want %v", name, got, tc.want)
		}
		if since.IsZero() || time.Since(since) > time.Minute {
			t.Errorf("%s: changed at %s", name, since)
		}
		if _, concerned := n.drain(); concerned(tc.service) {
			t.Errorf("%s: the change is still there", name)
		}
	}
}

package overview

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/nodenet"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestWhetherAControllerWorks(t *testing.T) {
	lease := func(holder string, age time.Duration) *coordinationv1.Lease {
		renewed := metav1.NewMicroTime(now.Add(-age))
		seconds := int32(15)
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &renewed,
			LeaseDurationSeconds: &seconds}}
	}
	for name, tc := range map[string]struct {
		lease  *coordinationv1.Lease
		silent bool
	}{
		"no Lease":                   {nil, true},
		"renewed a moment ago":       {lease("a", 2*time.Second), false},
		"by a clock that is ahead":   {lease("a", -5*time.Second), false},
		"by a clock that is behind":  {lease("a", 40*time.Second), false},
		"not for a minute":           {lease("a", time.Minute), true},
		"released":                   {lease("", time.Second), true},
		"a Lease that has no holder": {&coordinationv1.Lease{}, true},
	} {
		if got := Make(Facts{Now: now, Leader: tc.lease}).Controller.Silent; got != tc.silent {
			t.Errorf("%s: silent %v", name, got)
		}
	}
}

// Text from other sources is harmless in the overview, even names and values that an API server rejects today, and the
// parts that belong together are still found.
func TestForeignTextIsHarmless(t *testing.T) {
	const raw, mac = "a\u202eb", "02:00:00:00:00:0a"
	text := raw
	reported := func(held bool) string {
		encoded, err := contract.ReportedAddresses{netip.MustParseAddr("203.0.113.2"): {State: contract.AddressAnswered,
			MAC: mac, Held: held, Since: now}}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return encoded
	}
	conditions := []corev1.NodeCondition{{Type: contract.ConditionVLANReady, Status: raw, Reason: raw, Message: raw},
		{Type: contract.ConditionAnnouncementHealthy, Status: raw, Reason: raw, Message: raw}}
	node := func(name string, annotations map[string]string) corev1.Node {
		annotations[contract.NodeServerID] = raw
		maps.Copy(annotations, nodenet.On(contract.NodeNetwork{Name: raw, ID: raw, Announcer: raw,
			IPs: []netip.Addr{netip.MustParseAddr("fe80::1%" + raw)}}))
		return corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations,
				Labels: map[string]string{contract.NodeLocation: raw}},
			Status: corev1.NodeStatus{Conditions: conditions},
		}
	}
	service := corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: raw, Name: raw,
			Annotations: map[string]string{contract.ServiceIPAddress: "203.0.113.2", contract.ServiceIPBlockCIDR: raw}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
		Status: corev1.ServiceStatus{Conditions: []metav1.Condition{
			{Type: contract.ServiceConditionBlockAssigned, Status: raw, Reason: raw, Message: raw},
			{Type: contract.ServiceConditionAnnounced, Status: raw, Reason: raw, Message: raw},
		}},
	}
	foreign := service.DeepCopy()
	foreign.Annotations[contract.ServiceIPAddress] = raw
	conditionsOf := []metav1.Condition{{Type: v1beta1.ConditionReady, Status: raw, Reason: raw, Message: raw}}
	block := v1beta1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: raw}, Spec: v1beta1.IPBlockSpec{BlockID: raw,
		Purpose: v1beta1.PurposeService, ServiceRef: &v1beta1.ServiceReference{Namespace: raw, Name: raw}},
		Status: v1beta1.IPBlockStatus{CIDR: raw, Location: raw, Used: raw, Conditions: conditionsOf,
			Allocations: &[]v1beta1.Allocation{{Address: raw}}}}
	network := v1beta1.PublicNetwork{ObjectMeta: metav1.ObjectMeta{Name: v1beta1.DefaultNetwork},
		Spec: v1beta1.PublicNetworkSpec{ID: raw}, Status: v1beta1.PublicNetworkStatus{Blocks: raw}}
	o := Make(Facts{
		Now: now, Nodes: []corev1.Node{
			node(raw, map[string]string{contract.NodeReportedAddresses: reported(true)}),
			node("other"+raw, map[string]string{contract.NodeReportedAddresses: reported(false)}),
			node("third"+raw, map[string]string{contract.NodeReportedIdentity: `{"macs":["` + mac + `"]}`}),
		},
		Services: []corev1.Service{service, *foreign}, Blocks: []v1beta1.IPBlock{block},
		Networks: []v1beta1.PublicNetwork{network},
		Leader: &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &text,
			RenewTime: &metav1.MicroTime{Time: now}}},
	})
	written, err := json.Marshal(o)
	if err != nil || strings.Contains(string(written), "\u202e") {
		t.Errorf("%s, %v", written, err)
	}
	if want := []string{"a?b"}; !slices.Equal(o.Services[0].On, want) {
		t.Errorf("the address is on %q, want %q", o.Services[0].On, want)
	}
	if len(o.Blocks) != 1 || o.Blocks[0].Used != "a?b" || o.Services[0].BlockID != "a?b" || len(o.Nodes) != 3 ||
		o.Nodes[0].Addresses[0] != netip.MustParseAddr("fe80::1") {
		t.Errorf("%+v", o)
	}
	if o = Make(Facts{Networks: []v1beta1.PublicNetwork{network}}); o.Network.ID != "a?b" {
		t.Errorf("%+v", o.Network)
	}
}

// The state of a Service is the reason of the first condition that does not hold.
func TestStateOfAService(t *testing.T) {
	condition := func(name string, status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: name, Status: status, Reason: reason}
	}
	assigned := condition(contract.ServiceConditionBlockAssigned, metav1.ConditionTrue, "BlockAssigned")
	published := condition(contract.ServiceConditionAddressPublished, metav1.ConditionTrue, "Published")
	deleted := metav1.NewTime(now)
	for _, tc := range []struct {
		conditions []metav1.Condition
		deleted    *metav1.Time
		state      string
		healthy    bool
	}{
		{nil, nil, "Pending", false},
		{[]metav1.Condition{condition(contract.ServiceConditionBlockAssigned, metav1.ConditionFalse, "BlockCreating"),
			condition(contract.ServiceConditionAddressPublished, metav1.ConditionFalse, "BlockNotAssigned")}, nil,
			"BlockCreating", false},
		{[]metav1.Condition{assigned, condition(contract.ServiceConditionAddressPublished, metav1.ConditionFalse,
			"NoNodeReady")}, nil, "NoNodeReady", false},
		{[]metav1.Condition{assigned, published, condition(contract.ServiceConditionAnnounced, metav1.ConditionUnknown,
			"NotReported")}, nil, "NotReported", false},
		{[]metav1.Condition{assigned, published, condition(contract.ServiceConditionAnnounced, metav1.ConditionTrue,
			"Answered")}, nil, "Answered", true},
		{[]metav1.Condition{assigned, published, condition(contract.ServiceConditionAnnounced, metav1.ConditionTrue,
			"Answered")}, &deleted, "Answered", false},
	} {
		service := corev1.Service{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: tc.deleted},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
		service.Status.Conditions = tc.conditions
		got := Make(Facts{Now: now, Services: []corev1.Service{service}}).Services[0]
		if got.State != tc.state || got.Healthy != tc.healthy || (got.Going != nil) != (tc.deleted != nil) {
			t.Errorf("%v: %+v, want %s, healthy %v", tc.conditions, got, tc.state, tc.healthy)
		}
	}
}

// An address that was written for another Service, such as the original of a copy, is not shown for this Service.
func TestACopyHasNoAddress(t *testing.T) {
	service := corev1.Service{ObjectMeta: metav1.ObjectMeta{UID: "new", Annotations: map[string]string{
		contract.ServiceIPAddress: "203.0.113.2", contract.ServiceIPBlockCIDR: "203.0.113.0/29",
		contract.ServiceIPOwner: "old",
	}}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	if got := Make(Facts{Services: []corev1.Service{service}}).Services[0]; got.Address != "" || got.Block != "" {
		t.Errorf("%+v", got)
	}
}

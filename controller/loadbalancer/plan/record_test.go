package plan_test

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

const ours = "0d9aa9a1-3b1c-4c7e-9f35-0d6f6f6b3a11"

// TestLastRecord: the purchase without an answer comes first, and then the latest.
func TestLastRecord(t *testing.T) {
	answered := func(name string, ago time.Duration) ipblock.Record {
		return ipblock.Record{Name: name, Purchase: ipblock.Purchase{Time: noon.Add(-ago), BlockID: name}}
	}
	own := answered("own", 0)
	own.Service = ipblock.Holder{Namespace: "shop", Name: "web", UID: "u1"}
	nodes := answered("nodes", 0)
	nodes.Nodes = true
	older := answered("found-1", 0)
	older.Time = time.Time{}
	older.Created = noon.Add(-2 * time.Hour)
	newer := older
	newer.Name = "found-2"
	newer.Created = noon
	for name, test := range map[string]struct {
		records ipblock.Records
		nodes   bool
		want    string
	}{
		"none":                          {ipblock.Records{own}, false, ""},
		"the latest":                    {ipblock.Records{answered("b", time.Hour), answered("a", time.Minute)}, false, "a"},
		"one without an answer":         {ipblock.Records{answered("a", 0), {Name: "open", Purchase: ipblock.Purchase{Time: noon.Add(-time.Hour)}}}, false, "open"},
		"of the nodes":                  {ipblock.Records{answered("a", 0), nodes, own}, true, "nodes"},
		"not of the nodes":              {ipblock.Records{answered("a", time.Hour), nodes, own}, false, "a"},
		"of those found, the last made": {ipblock.Records{newer, older}, false, "found-2"},
	} {
		last, found := test.records.Last(test.nodes)
		if last.Name != test.want || found != (test.want != "") {
			t.Errorf("%s: %q, want %q", name, last.Name, test.want)
		}
	}
	if p := (ipblock.Records{own, nodes}).Of(own.Service); p == nil || p.BlockID != "own" {
		t.Errorf("the Service's own is %+v", p)
	}
	if p := (ipblock.Records{nodes}).Of(ipblock.Holder{}); p != nil {
		t.Errorf("a Service without a UID has %+v", p)
	}
}

// TestStaleRecords: what says nothing any more goes, and nothing else.
func TestStaleRecords(t *testing.T) {
	live := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "live"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	record := func(uid, block string, ago time.Duration) ipblock.Record {
		r := ipblock.Record{Name: "r", Purchase: ipblock.Purchase{Time: noon.Add(-ago), BlockID: block}}
		if uid != "" {
			r.Service = ipblock.Holder{Namespace: "shop", Name: "web", UID: uid}
		}
		return r
	}
	tagged := func(cluster string) network.Block {
		return network.Block{ID: "a", Tags: map[string]string{contract.TagCluster: cluster}}
	}
	restored := record("gone", "a", 0)
	restored.Time = time.Time{}
	restored.Created = noon
	nodes := record("", "", 2*time.Hour)
	nodes.Nodes = true
	successor := record("live", "a", time.Hour)
	successor.Name = "successor"
	for name, test := range map[string]struct {
		record ipblock.Record
		others ipblock.Records
		blocks []network.Block
		want   bool
	}{
		"its Service is served":              {record: record("live", "a", time.Hour)},
		"its Service and its block are gone": {record: record("gone", "a", time.Hour), want: true},
		"the same, a moment ago":             {record: record("gone", "a", time.Second)},
		"the same, restored a moment ago":    {record: restored},
		"its block is there":                 {record: record("gone", "a", time.Hour), blocks: []network.Block{tagged(ours)}},
		"its block is there without tags":    {record: record("gone", "a", time.Hour), blocks: []network.Block{{ID: "a"}}},
		"its block is another cluster's":     {record: record("gone", "a", time.Hour), blocks: []network.Block{tagged("other")}, want: true},
		"another Service has taken up its block": {record: record("gone", "a", time.Hour), others: ipblock.Records{successor},
			blocks: []network.Block{tagged(ours)}, want: true},
		"nothing was bought for a Service that is gone": {record: record("gone", "", time.Hour), want: true},
		"a purchase for the pool, without an answer":    {record: record("", "", 59*time.Minute)},
		"the same, for an hour":                         {record: record("", "", time.Hour), want: true},
		"a block of the pool":                           {record: record("", "a", 2*time.Hour)},
		"a purchase for the nodes":                      {record: nodes},
	} {
		obs := plan.Observed{Owner: network.Owner{Cluster: ours}, Account: ipblock.Account{Now: noon},
			Records: append(ipblock.Records{test.record}, test.others...), Blocks: test.blocks,
			Services: []*corev1.Service{live}}
		if got := slices.ContainsFunc(obs.StaleRecords(), func(r ipblock.Record) bool {
			return reflect.DeepEqual(r, test.record)
		}); got != test.want {
			t.Errorf("%s: stale %t, want %t", name, got, test.want)
		}
	}
}

// TestAddressOfAServiceThatLeaves: it is not given to another while its ledger is lost.
func TestAddressOfAServiceThatLeaves(t *testing.T) {
	shown := []corev1.LoadBalancerIngress{{IP: "203.0.113.10"}}
	for name, status := range map[string][]corev1.LoadBalancerIngress{"held": shown, "only claimed": nil} {
		left := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "left", UID: "left",
			Finalizers: []string{contract.LoadBalancerFinalizer},
			Annotations: map[string]string{contract.ServiceIPAddress: "203.0.113.10",
				contract.ServiceIPOwner: "left"}}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP}}
		left.Status.LoadBalancer.Ingress = status
		asking := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "web"},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
		b := block("a", network.Assigned)
		b.Tags = network.PoolOwner(ours, v1beta1.DefaultNetwork).Tags()
		public := view(nil).Networks[net1]
		obs := plan.Observed{Service: asking, Owner: plan.OwnerOf(asking, ours), Holder: plan.HolderOf(asking),
			Live:    true,
			Records: ipblock.Records{{Purchase: ipblock.Purchase{BlockID: "a", Time: noon}}},
			Desired: plan.Desired{Shared: true}, Blocks: []network.Block{b}, Services: []*corev1.Service{left, asking},
			Account: ipblock.Account{Now: noon, Network: network.Named{ID: net1},
				Sightings: []network.Sighting{{Block: b}},
				Networks:  map[string]network.Network{net1: public}}}.Complete()
		want := map[string]string{"held": "203.0.113.11", "only claimed": "203.0.113.10"}[name]
		if got := plan.Decide(obs).Step.Address.String(); got != want {
			t.Errorf("%s: the next Service gets %s, want %s", name, got, want)
		}
	}
}

// TestReportOf: the object of a Service's own block shows the address while the Service wants it, and only in its
// block.
func TestReportOf(t *testing.T) {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1",
		Annotations: map[string]string{contract.ServiceIPAddress: "203.0.113.10", contract.ServiceIPOwner: "u1"}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	service.Status.Conditions = []metav1.Condition{{Type: contract.ServiceConditionBlockAssigned,
		Status: metav1.ConditionTrue, Reason: "BlockAssigned", Message: "assigned"}}
	b := block("a", network.Assigned)
	b.Location = "ASH"
	record := ipblock.Record{Name: "svc-u1", Purchase: ipblock.Purchase{BlockID: "a"}, Service: plan.HolderOf(service)}
	base := plan.Observed{Service: service, Holder: plan.HolderOf(service), Records: ipblock.Records{record},
		Account: ipblock.Account{Now: noon, Sightings: []network.Sighting{{Block: b}}}}
	base.Kind = plan.Dedicated
	want := ipblock.Report{CIDR: b.CIDR, Location: "ASH", Address: netip.MustParseAddr("203.0.113.10"),
		Assigned: ipblock.Condition{True: true, Reason: "BlockAssigned", Message: "assigned"}}
	without := want
	without.Address = netip.Addr{}
	unknown := want
	unknown.Assigned.True = false
	unknown.Assigned.Unknown = true
	unseen := want
	unseen.Location = "PHX"
	retain := func(o *plan.Observed, s *corev1.Service, assignedTo string) {
		kept := b
		kept.Tags = map[string]string{contract.TagRetain: contract.TagTrue}
		kept.ResourceID = assignedTo
		o.Sightings = []network.Sighting{{Block: kept}}
		s.Spec.Type = corev1.ServiceTypeClusterIP
	}
	retained := without
	retained.Assigned = ipblock.Condition{Reason: "Retained", Message: "the block outlives the address of Service " +
		"shop/web (annotation phoenixnap.com/ip-retain), and phoenixNAP goes on charging for it; the next Service of " +
		"that name gets it. To release it, give its IPBlock the annotation phoenixnap.com/allow-release=true and " +
		"delete that"}
	retained.Ready = retained.Assigned
	for name, test := range map[string]struct {
		change func(*plan.Observed, *corev1.Service)
		want   ipblock.Report
		due    bool
	}{
		"published": {func(*plan.Observed, *corev1.Service) {}, want, true},
		"not known": {func(_ *plan.Observed, s *corev1.Service) {
			s.Status.Conditions[0].Status = metav1.ConditionUnknown
		}, unknown, true},
		"shown already": {func(o *plan.Observed, _ *corev1.Service) {
			shown := record
			shown.Report = want
			o.Records = ipblock.Records{shown}
		}, want, false},
		"an address elsewhere": {func(_ *plan.Observed, s *corev1.Service) {
			s.Annotations[contract.ServiceIPAddress] = "198.51.100.1"
		}, without, true},
		"leaving": {func(_ *plan.Observed, s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP }, without, true},
		"cannot be seen, and was": {func(o *plan.Observed, _ *corev1.Service) {
			shown := record
			shown.Report = ipblock.Report{CIDR: b.CIDR, Location: "PHX"}
			o.Records = ipblock.Records{shown}
			o.Sightings = nil
		}, unseen, true},
		"retained": {func(o *plan.Observed, s *corev1.Service) { retain(o, s, "") }, retained, true},
		"retained, not unassigned yet": {func(o *plan.Observed, s *corev1.Service) { retain(o, s, "net") }, without,
			true},
		"retained, and taken up again": {func(o *plan.Observed, s *corev1.Service) {
			retain(o, s, "")
			s.Spec.Type = corev1.ServiceTypeLoadBalancer
		}, want, true},
		"was never seen": {func(o *plan.Observed, _ *corev1.Service) { o.Sightings = nil }, ipblock.Report{}, false},
		"has no object":  {func(o *plan.Observed, _ *corev1.Service) { o.Records = nil }, ipblock.Report{}, false},
		"in the pool":    {func(o *plan.Observed, _ *corev1.Service) { o.Kind = plan.Shared }, ipblock.Report{}, false},
	} {
		obs := base
		changed := service.DeepCopy()
		test.change(&obs, changed)
		if got, due := obs.ObjectsOf().ReportOf(plan.Options{}.SaidBy(changed)); got != test.want || due != test.due {
			t.Errorf("%s: %+v, due %t; want %+v, due %t", name, got, due, test.want, test.due)
		}
	}
}

//go:build linux

package speaker

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/election"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/blocks"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/vip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

var compare = cmpopts.EquateComparable(netip.Addr{})

// web is a Service whose address must be announced.
func web(change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: types.UID("u1"),
			Annotations: map[string]string{
				contract.ServiceIPAddress: address.String(), contract.ServiceIPBlockAssigned: "true",
				contract.ServiceIPOwner: "u1",
			}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

func annotated(key, value string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Annotations[key] = value }
}

// healthy is a node that can announce.
func healthy(change ...func(*Inputs)) Inputs {
	s := Inputs{
		Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", Labels: map[string]string{},
			Annotations: map[string]string{}}},
		View: vip.View{
			Ready: true, Announcer: contract.AnnouncerAgent, Report: check.Report{Source: "203.0.113.2"},
			Expected: check.Expected{Published: true, Network: contract.NodeNetwork{
				ID: network, IPs: []netip.Addr{netip.MustParseAddr("203.0.113.2")},
				Blocks: []contract.NetworkBlock{{CIDR: netip.MustParsePrefix("203.0.113.0/29"),
					Gateway: netip.MustParseAddr("203.0.113.1")}},
			}},
		},
		Sampled: true, Listed: true, Link: true, LocalReady: func(int32) bool { return false },
		Allocated: func(*corev1.Service, netip.Addr) blocks.Answer { return blocks.Allocated },
	}
	for _, c := range change {
		c(&s)
	}
	return s
}

func TestFacts(t *testing.T) {
	good := election.Facts{Link: true, Candidate: true, HasGateway: true, Known: true, Wanted: map[netip.Addr]bool{},
		Outside: map[netip.Addr]bool{}}
	with := func(change func(*election.Facts)) election.Facts {
		f := good
		change(&f)
		return f
	}
	witness := with(func(f *election.Facts) {
		f.Candidate = false
		f.Witness = true
	})
	for name, tc := range map[string]struct {
		change func(*Inputs)
		want   election.Facts
	}{
		"healthy": {func(*Inputs) {}, good},
		"its VLAN is not ready": {func(s *Inputs) { s.View.Ready = false },
			with(func(f *election.Facts) { f.Candidate = false })},
		"not known": {func(s *Inputs) { s.Node = nil }, with(func(f *election.Facts) { f.Candidate = false })},
		"not sampled": {func(s *Inputs) { s.Sampled = false }, with(func(f *election.Facts) {
			f.Candidate = false
			f.Known = false
		})},
		"excluded":             {func(s *Inputs) { s.Node.Labels[corev1.LabelNodeExcludeBalancers] = "" }, witness},
		"about to be serviced": {func(s *Inputs) { s.Node.Annotations[contract.NodeHandOver] = "true" }, witness},
		"cordoned": {func(s *Inputs) { s.Node.Spec.Unschedulable = true },
			with(func(f *election.Facts) { f.Cordoned = true })},
		"being deleted": {func(s *Inputs) { s.Node.DeletionTimestamp = &metav1.Time{} }, witness},
		"about to be deleted": {func(s *Inputs) {
			s.Node.Spec.Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler"}}
		}, witness},
		"kube-vip announces": {func(s *Inputs) { s.View.Announcer = contract.AnnouncerKubeVIP },
			with(func(f *election.Facts) { f.Candidate = false })},
		"without an address": {func(s *Inputs) { s.View.Report.Source = "" },
			with(func(f *election.Facts) { f.HasGateway = false })},
		"no block yet": {func(s *Inputs) { s.View.Expected.Network.Blocks = nil },
			with(func(f *election.Facts) { f.HasGateway = false })},
		"no carrier":       {func(s *Inputs) { s.Link = false }, with(func(f *election.Facts) { f.Link = false })},
		"Services unknown": {func(s *Inputs) { s.Listed = false }, with(func(f *election.Facts) { f.Known = false })},
	} {
		if diff := cmp.Diff(tc.want, healthy(tc.change).Facts(), compare); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestNetwork(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Inputs)
		want   string
	}{
		"agents announce":    {func(*Inputs) {}, network},
		"kube-vip announces": {func(s *Inputs) { s.View.Announcer = contract.AnnouncerKubeVIP }, ""},
		"not this node":      {func(s *Inputs) { s.View.Announcer = contract.AnnouncerNone }, ""},
		"not sampled":        {func(s *Inputs) { s.Sampled = false }, ""},
		"unreadable":         {func(s *Inputs) { s.View.Expected.Unreadable = "annotation x" }, ""},
	} {
		if got := healthy(tc.change).Network(); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestWanted(t *testing.T) {
	local := func(port int32) func(*corev1.Service) {
		return func(s *corev1.Service) {
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
			s.Spec.HealthCheckNodePort = port
		}
	}
	yes := map[netip.Addr]bool{address: true}
	no := map[netip.Addr]bool{address: false}
	none := map[netip.Addr]bool{}
	for name, tc := range map[string]struct {
		services []*corev1.Service
		want     map[netip.Addr]bool
	}{
		"to be announced": {[]*corev1.Service{web()}, yes},
		"its block is not assigned": {[]*corev1.Service{web(annotated(contract.ServiceIPBlockAssigned, "false"))},
			none},
		"copied from another": {[]*corev1.Service{web(annotated(contract.ServiceIPOwner, "u2"))}, none},
		"being deleted": {[]*corev1.Service{web(func(s *corev1.Service) {
			s.DeletionTimestamp = &metav1.Time{}
		})}, none},
		"of another type": {[]*corev1.Service{web(func(s *corev1.Service) {
			s.Spec.Type = corev1.ServiceTypeClusterIP
		})}, none},
		"no address": {[]*corev1.Service{web(annotated(contract.ServiceIPAddress, ""))}, none},
		"IPv6":       {[]*corev1.Service{web(annotated(contract.ServiceIPAddress, "2001:db8::1"))}, none},
		"the gateway's": {[]*corev1.Service{web(annotated(contract.ServiceIPAddress, "203.0.113.1"))},
			map[netip.Addr]bool{netip.MustParseAddr("203.0.113.1"): false}},
		"the network's": {[]*corev1.Service{web(annotated(contract.ServiceIPAddress, "203.0.113.0"))},
			map[netip.Addr]bool{netip.MustParseAddr("203.0.113.0"): false}},
		"that of all": {[]*corev1.Service{web(annotated(contract.ServiceIPAddress, "203.0.113.7"))},
			map[netip.Addr]bool{netip.MustParseAddr("203.0.113.7"): false}},
		"this node's": {[]*corev1.Service{web(annotated(contract.ServiceIPAddress, "203.0.113.2"))},
			map[netip.Addr]bool{netip.MustParseAddr("203.0.113.2"): false}},
		"of no block of the network": {[]*corev1.Service{web(annotated(contract.ServiceIPAddress, "198.51.100.3"))},
			map[netip.Addr]bool{netip.MustParseAddr("198.51.100.3"): false}},
		"local, with an endpoint": {[]*corev1.Service{web(local(30001))}, yes},
		"local, without":          {[]*corev1.Service{web(local(30002))}, no},
		"two with one address":    {[]*corev1.Service{web(local(30002)), web()}, yes},
	} {
		s := healthy(func(s *Inputs) {
			s.Services = tc.services
			s.LocalReady = func(port int32) bool { return port == 30001 }
		})
		if diff := cmp.Diff(tc.want, s.Facts().Wanted, compare); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		never := []string{"of no block of the network", "the gateway's", "the network's", "that of all", "this node's"}
		if outside := s.Facts().Outside; len(outside) > 0 != slices.Contains(never, name) {
			t.Errorf("%s: it never answers for %v", name, outside)
		}
	}
	gone := web(local(30009), annotated(contract.ServiceIPBlockAssigned, "false"))
	if diff := cmp.Diff([]int32{30001, 30002}, LocalPorts([]*corev1.Service{web(local(30002)), web(local(30001)),
		web(local(30002)), web(), gone})); diff != "" {
		t.Errorf("ports to ask (-want +got):\n%s", diff)
	}
}

// TestNodesAgreeOnWhatExists: whatever addresses the nodes have, they want the same addresses of Services as exist: if
// one dropped from the view what another adds, the view would never stop changing.
func TestNodesAgreeOnWhatExists(t *testing.T) {
	services := []*corev1.Service{}
	addresses := "203.0.113.0 203.0.113.1 203.0.113.2 203.0.113.3 203.0.113.7 198.51.100.3"
	for a := range strings.FieldsSeq(addresses) {
		services = append(services, web(annotated(contract.ServiceIPAddress, a)))
	}
	exist := slices.SortedFunc(maps.Keys(Existing(services)), netip.Addr.Compare)
	if len(exist) != len(services) {
		t.Errorf("%v exist, want those of all Services", exist)
	}
	for _, own := range []string{"203.0.113.2", "203.0.113.3", "198.51.100.3"} {
		facts := healthy(func(in *Inputs) {
			in.Services = services
			in.View.Expected.Network.IPs = []netip.Addr{netip.MustParseAddr(own)}
		}).Facts()
		if got := slices.SortedFunc(maps.Keys(facts.Wanted), netip.Addr.Compare); !slices.Equal(got, exist) {
			t.Errorf("the node with %s wants %v, but %v exist", own, got, exist)
		}
		if a := netip.MustParseAddr(own); facts.Wanted[a] || !facts.Outside[a] {
			t.Errorf("the node with %s serves that address itself", own)
		}
	}
}

//go:build linux

package agent

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/diagnose"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/diagnose/examine"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/vip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/client"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/limits"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/nodenet"
)

// TestExamineAddress asks a real wire for an address as a user does: with a cluster that knows the other node, and
// without.
func TestExamineAddress(t *testing.T) {
	const unpublished = "203.0.113.4"
	s := newServer(t)
	s.sound(patience)
	var mac string
	s.in(s.gateway, func() { mac = s.link(gatewayVIF).Attrs().HardwareAddr.String() })
	cluster := examine.New(examine.Config{
		Node: "srv-a", Client: fake.NewClientset(s.published("srv-a"), other("srv-b", mac), service()),
		IPBlocks: served(t), Reader: s.reader, Prober: undelayed{s.prober},
		Timeout: limits.Wait, KubeVIPLease: "kube-system/plndr-svcs-lock",
	})
	here := func(address string) func() { return func() { s.addAddress(nodeVIF, address+"/32") } }
	there := func(address string) func() {
		return func() { s.in(s.gateway, func() { s.addAddress(gatewayVIF, address+"/32") }) }
	}
	for _, tc := range []struct {
		name, address string
		state         []func()
		// With the cluster: the first cause and whose the answer is.
		id     check.ID
		status check.Status
		owner  string
		// Without it.
		only check.Status
	}{
		{"no one", serviceVIP, nil, vip.AddressAnswers, check.Fail, "", check.Fail},
		{"another node", serviceVIP, []func(){there(serviceVIP)}, vip.LeaseAlive, check.Warn, "srv-b", check.OK},
		{"both", serviceVIP, []func(){here(serviceVIP), there(serviceVIP)}, vip.SingleAnswer, check.Fail, "srv-b",
			check.Fail},
		{"no one, of no Service", unpublished, nil, "", check.OK, "", check.Fail},
		{"another node, of no Service", unpublished, []func(){there(unpublished)}, vip.NothingStale, check.Warn,
			"srv-b", check.OK},
		{"this node, of no Service", unpublished, []func(){here(unpublished)}, vip.NothingStale, check.Fail, "",
			check.Fail},
		{"the gateway", "203.0.113.1", nil, "", check.OK, "srv-b", check.OK},
	} {
		for _, change := range tc.state {
			change()
		}
		address := netip.MustParseAddr(tc.address)
		d, err := cluster.ExamineAddress(t.Context(), address)
		s.must("examine", err)
		if d.Result.FirstCause != tc.id || d.Result.Status != tc.status || d.APIServer != "" {
			t.Errorf("%s: first cause %q, want %q %s:\n%s", tc.name, d.Result.FirstCause, tc.id, tc.status, text(t, d))
		}
		owned := len(d.Address.Claimants) == 1 && slices.Equal(d.Address.Claimants[0].Nodes, []string{tc.owner})
		if tc.owner == "" && len(d.Address.Claimants) != 0 || tc.owner != "" && !owned {
			t.Errorf("%s: claimants %+v, want %q", tc.name, d.Address.Claimants, tc.owner)
		}
		if d, err = s.examiner().ExamineAddress(t.Context(), address); err != nil || d.Result.Status != tc.only {
			t.Errorf("%s, without a cluster: %v, want %s:\n%s", tc.name, err, tc.only, text(t, d))
		}
		s.withdraw(tc.address)
	}
}

// TestExamineNamesMachines: the whole diagnosis names the Node that answers, too, and an address that no Service has.
func TestExamineNamesMachines(t *testing.T) {
	s := newServer(t)
	s.sound(patience)
	var mac string
	s.in(s.gateway, func() {
		mac = s.link(gatewayVIF).Attrs().HardwareAddr.String()
		s.addAddress(gatewayVIF, serviceVIP+"/32")
	})
	examine := func(nodes ...runtime.Object) diagnose.Document {
		t.Helper()
		d, err := examine.New(examine.Config{
			Node: "srv-a", Client: fake.NewClientset(append(nodes, s.published("srv-a"), service())...),
			IPBlocks: served(t), Reader: s.reader, Prober: undelayed{s.prober}, Timeout: limits.Wait,
		}).Examine(t.Context())
		s.must("examine", err)
		return d
	}
	for name, tc := range map[string]struct {
		nodes []runtime.Object
		id    check.ID
		says  string
	}{
		"a Node":           {[]runtime.Object{other("srv-b", mac)}, "", "Node srv-b"},
		"no Node":          {[]runtime.Object{other("srv-b", "02:00:00:00:00:0b")}, vip.OwnMachine, "no Node"},
		"no agent reports": {nil, "", mac},
	} {
		d := examine(tc.nodes...)
		last := d.Findings[len(d.Findings)-1]
		if d.Result.FirstCause != tc.id || !strings.Contains(last.Observed, tc.says) {
			t.Errorf("%s: first cause %q, want %q, says %q:\n%s", name, d.Result.FirstCause, tc.id, tc.says, text(t, d))
		}
	}
	s.addAddress(nodeVIF, "203.0.113.4/32")
	if d := examine(other("srv-b", mac)); d.Result.FirstCause != vip.NothingStale {
		t.Errorf("an address of no Service on this node:\n%s", text(t, d))
	}
}

// served are the IPBlocks of the cluster: that of the Services.
func served(t *testing.T) *client.IPBlocks {
	t.Helper()
	objects := kubefake.NewStore().IPBlocks()
	_, err := objects.Create(t.Context(), &v1beta1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: "default-shared-1"}},
		metav1.CreateOptions{})
	if err == nil {
		err = kubefake.EditStatus(t.Context(), objects, "default-shared-1", func(s *v1beta1.IPBlockStatus) {
			*s = v1beta1.IPBlockStatus{CIDR: "203.0.113.0/29", Gateway: "203.0.113.1",
				Allocations: &[]v1beta1.Allocation{},
				Conditions:  []metav1.Condition{{Type: v1beta1.ConditionAssigned, Status: metav1.ConditionTrue}}}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// published is the Node of the server with what the controller published.
func (s *server) published(name string) *corev1.Node {
	s.t.Helper()
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: nodenet.On(s.expected.Network)}}
}

func other(name, mac string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
		contract.NodeReportedIdentity: `{"hostname":"` + name + `","addresses":[],"macs":["` + mac + `"]}`}}}
}

func service() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web",
			Annotations: map[string]string{contract.ServiceIPAddress: serviceVIP}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
	}
}

// withdraw removes an address from any interface where a row put it.
func (s *server) withdraw(address string) {
	s.t.Helper()
	addr := netip.MustParseAddr(address)
	snapshot, err := s.reader.Read(s.t.Context())
	s.must("read", err)
	for _, name := range snapshot.Holds(addr) {
		s.delAddress(name, address+"/32")
	}
	s.in(s.gateway, func() {
		snapshot, err := s.reader.Read(s.t.Context())
		s.must("read", err)
		for _, a := range snapshot.Addresses {
			if a.Prefix == netip.PrefixFrom(addr, 32) {
				s.delAddress(gatewayVIF, address+"/32")
			}
		}
	})
}

package reconcile_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// reportInterface has the agent of a Node report the name of its VLAN interface.
func (w *world) reportInterface(name string) {
	w.t.Helper()
	w.report("", "")
	node, _ := w.nodes.List()[0].(*corev1.Node)
	node = node.DeepCopy()
	node.Annotations[contract.NodeReportedIdentity] = `{"hostname":"node-1","addresses":[],"macs":[],"vlanInterface":"` + name + `"}`
	if err := w.nodes.Replace([]any{node}, ""); err != nil {
		w.t.Fatal(err)
	}
}

// TestNothingIsWrittenForKubeVIP: where the agents announce, nothing on the Service asks kube-vip to, and a cluster
// that goes
// from one to the other and back keeps its address and what the user wrote for kube-vip.
func TestNothingIsWrittenForKubeVIP(t *testing.T) {
	w := newWorld(t, configured(func(c *reconcile.Config) { c.Announcer = contract.AnnouncerAgent }))
	w.reportInterface("bond0.20")
	w.service("web")
	w.service("own", annotated(contract.KubeVIPInterface, "eth7"))
	w.settle("web")
	w.settle("own")
	address := w.address("web")
	for _, step := range []struct {
		announcer, addresses, vlanInterface, own string
	}{
		{contract.AnnouncerAgent, "", "", "eth7"},
		{contract.AnnouncerKubeVIP, address, "bond0.20", "eth7"},
		{contract.AnnouncerAgent, "", "bond0.20", "eth7"},
	} {
		w.config.Announcer = step.announcer
		w.restart()
		w.settle("web")
		w.settle("own")
		web := w.get("web")
		own := w.get("own")
		if web.Annotations[contract.ServiceIPAddress] != address || web.Status.LoadBalancer.Ingress[0].IP != address {
			t.Errorf("%s: the address became %q", step.announcer, web.Annotations[contract.ServiceIPAddress])
		}
		if got := web.Annotations[contract.KubeVIPAddresses]; got != step.addresses {
			t.Errorf("%s: kube-vip is asked to announce %q, want %q", step.announcer, got, step.addresses)
		}
		if got := web.Annotations[contract.KubeVIPInterface]; got != step.vlanInterface {
			t.Errorf("%s: kube-vip's interface is %q, want %q", step.announcer, got, step.vlanInterface)
		}
		if got := own.Annotations[contract.KubeVIPInterface]; got != step.own {
			t.Errorf("%s: the user's interface became %q", step.announcer, got)
		}
	}
}

package reconcile_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// reportInterface has the agent of a Node report the name of its VLAN interface.
func (w *world) reportInterface(name string) {
	w.t.Helper()
	w.report("", "")
	node, _ := w.nodes.List()[0].(*corev1.Node)
	node = node.DeepCopy()
	node.Annotations[contract.NodeReportedIdentity] = `{"hostname":"node-1","addresses":[],"macs":[],"vlanInterfaces":{"` +
		networkID + `":{"name":"` + name + `"}}}`
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

// TestChangedDefaultRefusesNoBlockOfItsOwn: what a Service says about a block of its own goes on to have a meaning when
// the option for Services that name no kind says shared, whether its address is published already or not. Another
// Service has to say which it wants.
func TestChangedDefaultRefusesNoBlockOfItsOwn(t *testing.T) {
	for name, annotation := range map[string]func(*corev1.Service){
		"retained": annotated(contract.ServiceIPRetain, "true"), "size": annotated(contract.ServiceIPBlockSize, "/30"),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.service("published", annotation)
			w.settle("published")
			w.service("bought", annotation)
			for w.sim.Money(accountID).Purchases < 2 {
				_, err := w.sync("bought")
				w.clock.Advance(w.pauseAfter(err))
			}
			w.config.Allocation = contract.AllocationShared
			w.restart()
			for _, service := range []string{"published", "bought"} {
				w.settle(service)
				if reason := w.condition(service).Reason; reason != "BlockAssigned" {
					t.Errorf("%s: the condition says %s: %s", service, reason, w.condition(service).Message)
				}
			}
			w.wantPurchases(2)
			w.service("new", annotation)
			_ = w.refused("new", time.Minute)
			if reason := w.condition("new").Reason; reason != "AnnotationsRefused" {
				t.Errorf("a new Service: the condition says %s", reason)
			}
			w.wantPurchases(2)
		})
	}
}

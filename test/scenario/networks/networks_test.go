//go:build linux

package networks

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
)

// TestTwoLocations is one story, because a cluster takes minutes to start.
func TestTwoLocations(t *testing.T) {
	h := newHarness(t, cluster.Options{Announcer: contract.AnnouncerAgent, Servers: 2, AwayServers: 2}, west,
		v1beta1.PublicNetworkSpec{ID: cluster.AwayNetworkID})
	h.ready(h.Servers...)
	h.listed(h.here(), v1beta1.DefaultNetwork, cluster.VLAN)
	h.listed(h.there(), west, cluster.VLAN)

	addresses := map[string]netip.Addr{}
	h.create("near", h.here(), nil)
	h.create("far", h.there(), map[string]string{contract.ServiceNetwork: west})
	h.create("by-location", h.there(), map[string]string{contract.ServiceIPLocation: cluster.AwayLocation})
	h.create("crossed", h.there(), nil) // answered in the other location
	h.create("nowhere", h.here(), map[string]string{contract.ServiceNetwork: "east"})
	for _, name := range []string{"near", "far", "by-location", "crossed"} {
		addresses[name] = h.published(name)
	}
	h.blocksAre(map[string]string{"near": v1beta1.DefaultNetwork, "far": west, "by-location": west,
		"crossed": v1beta1.DefaultNetwork})
	h.refuses("nowhere", "default (ASH)", "west (PHX)", `create PublicNetwork "east"`)

	probes := map[string]int{}
	for name, address := range addresses {
		probes[name] = h.ask(address, pace)
		h.row(probes[name], "Service "+name+" is answered", true)
	}
	h.announced(addresses["near"], h.here())
	h.announced(addresses["far"], h.there())
	h.warnedOnce("crossed")

	missed := len(h.harmOf(func() harm { return h.locationFails(probes) }).requests)
	h.figure("networks_lost_requests_elsewhere", missed, "requests")
	if missed > 0 {
		h.Errorf("%d requests to the other location had no answer", missed)
	}
	h.nothingIsLeft(west, "near", "far", "by-location", "crossed", "nowhere")
}

// ready waits until servers may announce addresses.
func (h *harness) ready(servers ...cluster.Server) {
	h.Helper()
	for _, s := range servers {
		h.until(s.Name+" is ready for its public network", func() (bool, string) {
			node := h.node(s.Name)
			condition := contract.FindNodeCondition(node, contract.ConditionVLANReady)
			return node.Labels[contract.NodeVLANReady] == "true" && condition != nil && condition.Status == "True",
				fmt.Sprintf("%v, %v", node.Labels, condition)
		})
	}
}

// listed: the Nodes of servers list a network of which they are members, and no other one unless there is more.
func (h *harness) listed(servers []cluster.Server, name string, vlan int, more ...string) {
	h.Helper()
	for _, s := range servers {
		list, _, err := contract.ParsePublicNetworks(h.node(s.Name).Annotations)
		var names []string
		for _, n := range list {
			names = append(names, n.Name)
			if n.Name == name && (!n.Member || n.VLAN != vlan) {
				h.Errorf("Node %s lists %+v, want VLAN %d", s.Name, n, vlan)
			}
		}
		want := slices.Sorted(slices.Values(append(more, name)))
		if slices.Sort(names); err != nil || !slices.Equal(names, want) {
			h.Errorf("Node %s lists %q (%v), want %q", s.Name, names, err, want)
		}
	}
}

// blocksAre: each Service has a block in a network.
func (h *harness) blocksAre(want map[string]string) {
	h.Helper()
	list, err := h.ControlPlane.IPBlocks().List(h.Context(), metav1.ListOptions{})
	h.must("list the IPBlocks", err)
	got := map[string]string{}
	for _, object := range list.Items {
		if object.Spec.ServiceRef != nil {
			got[object.Spec.ServiceRef.Name] = object.Spec.Attachment.Name
		}
	}
	if !maps.Equal(got, want) {
		h.Errorf("IPBlocks by Service are in %v, want %v", got, want)
	}
}

// refuses waits until a Service says why it gets no address.
func (h *harness) refuses(name string, parts ...string) {
	h.Helper()
	h.until("Service "+name+" is refused", func() (bool, string) {
		c := meta.FindStatusCondition(h.get(name).Status.Conditions, contract.ServiceConditionBlockAssigned)
		lacks := func(part string) bool { return !strings.Contains(c.Message, part) }
		return c != nil && !slices.ContainsFunc(parts, lacks), fmt.Sprintf("%+v", c)
	})
}

// warnedOnce waits until a Service, and no other one, says that its requests travel to the other location.
func (h *harness) warnedOnce(name string) {
	h.Helper()
	h.until("Service "+name+" says that its requests travel", func() (bool, string) {
		list, err := h.Kube.CoreV1().Events(cluster.Namespace).List(h.Context(), metav1.ListOptions{
			FieldSelector: "reason=EndpointsElsewhere"})
		h.must("list Events", err)
		for _, e := range list.Items {
			if e.InvolvedObject.Name != name || e.Count != 1 ||
				!strings.Contains(e.Message, "arrive in "+cluster.Location) {
				h.Fatalf("event %d times: %s: %s", e.Count, e.InvolvedObject.Name, e.Message)
			}
		}
		return len(list.Items) == 1, ""
	})
}

// announced: a server of the location answers for an address, and no server elsewhere knows anything of it.
func (h *harness) announced(address netip.Addr, servers []cluster.Server) {
	h.Helper()
	h.until(address.String()+" is reported where it is announced", func() (bool, string) {
		var by []string
		for _, s := range h.Servers {
			_, reports := h.reported(s.Name)[address]
			at := slices.ContainsFunc(servers, func(other cluster.Server) bool { return other.Name == s.Name })
			if reports && !at {
				h.Fatalf("server %s, in another location, reports %s", s.Name, address)
			}
			if reports {
				by = append(by, s.Name)
			}
		}
		return len(by) > 0, fmt.Sprint(by)
	})
}

// reported is what the agent of a server reports of addresses.
func (h *harness) reported(server string) contract.ReportedAddresses {
	h.Helper()
	reported, err := contract.ParseReportedAddresses(h.node(server).Annotations[contract.NodeReportedAddresses])
	h.must("read what "+server+" reports", err)
	return reported
}

// locationFails: the addresses of a location go with its servers and come back with them. It returns the harm to the
// other location, where no request may be lost.
func (h *harness) locationFails(probes map[string]int) harm {
	h.Helper()
	begun := time.Now()
	for _, s := range h.there() {
		h.must("end "+s.Name, h.TakeAway(h.Context(), s.Name))
	}
	h.row(probes["far"], "the address of the location that fails is silent", false)
	h.until("a server of that location is reported", func() (bool, string) {
		condition := contract.FindNodeCondition(h.node(h.there()[0].Name), contract.ConditionVLANReady)
		return condition != nil && condition.Status != "True", fmt.Sprintf("%+v", condition)
	})
	h.ready(h.here()...)
	for _, s := range h.there() {
		h.must("bring back "+s.Name, h.BringBack(h.Context(), s))
	}
	h.row(probes["far"], "the address is answered again", true)
	h.row(probes["by-location"], "the other address is answered again", true)
	h.row(probes["near"], "the Service elsewhere is answered", true)
	return harm{requests: h.lost(probes["near"], begun)}
}

// nothingIsLeft deletes Services; only the blocks of the nodes stay, in the account and in the further network.
func (h *harness) nothingIsLeft(network string, names ...string) {
	h.Helper()
	services := h.Kube.CoreV1().Services(cluster.Namespace)
	for _, name := range names {
		h.must("delete Service "+name, services.Delete(h.Context(), name, metav1.DeleteOptions{}))
	}
	h.until("no block is left in the account", func() (bool, string) {
		state, err := h.Sim.State(h.Context())
		h.must("read the account", err)
		return len(state.Blocks) == 2, fmt.Sprintf("%+v", state.Blocks) // those of the nodes
	})
	h.until("PublicNetwork "+network+" can be deleted, except for the block of the nodes", func() (bool, string) {
		object, err := h.ControlPlane.PublicNetworks().Get(h.Context(), network, metav1.GetOptions{})
		h.must("get PublicNetwork "+network, err)
		return object.Status.Blocks == "1/10", object.Status.Blocks
	})
	violations, err := h.Sim.Violations(h.Context())
	h.must("list the broken rules", err)
	for _, v := range violations {
		h.Errorf("the controller broke a rule of the API: %s", v)
	}
	h.figure("networks_api_rules_broken", len(violations), "rules")
}

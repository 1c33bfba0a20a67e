//go:build linux

package networks

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
)

// awayVLAN is that of the other location: with kube-vip the numbers have to differ.
const awayVLAN = 57

// TestKubeVIPInTwoLocations: one DaemonSet runs on the nodes of both, and each of its pods competes only for addresses
// of the network whose interface its node has. A VLAN that fails in one location moves nothing in the other.
func TestKubeVIPInTwoLocations(t *testing.T) {
	// What the example configures is the interface of one network; all nodes have the bond.
	h := newHarness(t, cluster.Options{Servers: 2, AwayServers: 2, AwayVLAN: awayVLAN,
		KubeVIPSettings: map[string]string{"vip_interface": "bond0"}}, west,
		v1beta1.PublicNetworkSpec{ID: cluster.AwayNetworkID})
	h.must("run kube-vip", h.SuperviseKubeVIP(t.Context()))
	h.ready(h.Servers...)
	h.listed(h.here(), v1beta1.DefaultNetwork, cluster.VLAN)
	h.listed(h.there(), west, awayVLAN)

	at := map[string][]cluster.Server{"near": h.here(), "far": h.there()}
	h.create("near", at["near"], nil)
	h.create("far", at["far"], map[string]string{contract.ServiceNetwork: west})
	probes := map[string]int{}
	for name, servers := range at {
		address := h.published(name)
		probes[name] = h.ask(address, pace)
		h.row(probes[name], "Service "+name+" is answered", true)
		h.announced(address, servers)
	}
	h.blocksAre(map[string]string{"near": v1beta1.DefaultNetwork, "far": west})
	for name, want := range map[string]string{"near": cluster.PublicInterface, "far": fmt.Sprint("bond0.", awayVLAN)} {
		if got := h.get(name).Annotations[contract.KubeVIPInterface]; got != want {
			t.Errorf("kube-vip announces Service %s on %q, want %s", name, got, want)
		}
	}

	seen := h.harmOf(func() harm { return h.vlanThereFails(probes) })
	h.figure("networks_kube_vip_lost_requests_elsewhere", len(seen.requests), "requests")
	if len(seen.requests) > 0 || len(seen.moves) > 0 {
		t.Errorf("in the other location requests had no answer at %v, and an address moved at %v", seen.requests,
			seen.moves)
	}
	h.nothingIsLeft(west, slices.Sorted(maps.Keys(at))...)
}

// vlanThereFails breaks the VLAN interface of the server that announces in the other location, and repairs it. It
// returns the harm to the first location.
func (h *harness) vlanThereFails(probes map[string]int) harm {
	h.Helper()
	stays, _ := h.holder("near")
	victim, _ := h.holder("far")
	begun := time.Now()
	h.must("break the VLAN of "+victim, h.Lab.BreakVLAN(h.Context(), victim, awayVLAN, lab.LinkDown))
	h.until("the other server there announces", func() (bool, string) {
		now, _ := h.holder("far")
		is := func(s cluster.Server) bool { return s.Name == now }
		return now != victim && slices.ContainsFunc(h.there(), is), now
	})
	h.row(probes["far"], "Service far is answered again", true)
	h.must("repair "+victim, h.Lab.Repair(h.Context(), victim))
	h.ready(h.Servers...)
	seen := harm{requests: h.lost(probes["near"], begun)}
	if now, since := h.holder("near"); now != stays {
		h.Logf("the address went from %s to %s", stays, now)
		seen.moves = []span{{since, since}}
	}
	return seen
}

// holder is the server whose kube-vip holds the Lease of a Service, and since when.
func (h *harness) holder(name string) (server string, since time.Time) {
	h.Helper()
	lease, err := h.Kube.CoordinationV1().Leases(cluster.Namespace).Get(h.Context(), "kubevip-"+name,
		metav1.GetOptions{})
	h.must("get the Lease of Service "+name, err)
	return ptr.Deref(lease.Spec.HolderIdentity, ""), ptr.Deref(lease.Spec.AcquireTime, metav1.MicroTime{}).Time
}

//go:build linux

package services

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// keyed is a Service that shares its address with those of the same key.
func keyed(name string, number, target int32) *corev1.Service {
	return loadBalancer(name, annotated(contract.ServiceSharedAddress, "front"),
		ports(port("tcp", corev1.ProtocolTCP, number, target)))
}

// prepareSharing creates two Services with one key.
func prepareSharing(h *harness) {
	h.create(keyed("front-web", 80, cluster.BackendPort))
	h.create(keyed("front-admin", 81, cluster.OtherBackendPort))
}

// publishedTogether waits until a Service has an address that others may have, too.
func (h *harness) publishedTogether(name string) netip.Addr {
	h.Helper()
	address := publishedIn(h, h.Kube, name, netip.Addr.IsValid)
	h.must("report what is published", h.Sim.Claim(h.Context(), pnapsim.Claim{
		Client: ccm, Kind: pnapsim.ClaimPublished, Service: ccm + "/" + name, Address: address.String(),
		Block: h.blockOf(h.get(name)).ID, Shared: true,
	}))
	return address
}

// checkSharing: two Services have one address, for which one node answers wherever it moves; a third one with a port of
// theirs is refused. The address stays with the last one.
func checkSharing(h *harness) {
	address := h.publishedTogether("front-web")
	if other := h.publishedTogether("front-admin"); other != address {
		h.Fatalf("two Services with one key have %s and %s", address, other)
	}
	for i, target := range []int{cluster.BackendPort, cluster.OtherBackendPort} {
		h.onPort(tcp(address, 80+i), target)
	}
	h.create(keyed("front-clash", 80, cluster.BackendPort))
	h.refusedFor("front-clash", "AddressConflict")
	h.remove("front-clash")
	w := h.watching(tcp(address, 81))
	for range 3 { // kube-vip would elect a node for each Service, and they met by luck
		server := h.held(address)
		w.during("shared_address_moved", func() {
			h.patchNode(server, fmt.Sprintf(`{"metadata":{"labels":{%q:""}}}`, corev1.LabelNodeExcludeBalancers))
			h.leaves(server, address)
			h.answered(tcp(address, 80))
		})
		h.oneAnswers(address)
		h.patchNode(server, fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, corev1.LabelNodeExcludeBalancers))
		h.joined(h.named(server))
	}
	w.during("shared_address_left", func() {
		h.remove("front-web")
		h.removed("front-web")
		h.until(answerLimit, "its port is closed", func() (bool, string) { return h.isClosed(tcp(address, 80)) })
	})
	h.answered(tcp(address, 81))
	h.oneAnswers(address)
	w.harmless("shared_address_moved", "shared_address_left")
	h.remove("front-admin")
}

// isClosed asks twice.
func (h *harness) isClosed(t target) (closed bool, seen string) {
	h.Helper()
	got := h.tried(t, 2, refusal)
	return !slices.ContainsFunc(got, func(a lab.Attempt) bool { return a.OK }), fmt.Sprintf("%+v", got)
}

// refusedFor waits until a Service is refused for a reason, which names another one.
func (h *harness) refusedFor(name, reason string) {
	h.Helper()
	h.until(publishLimit, "Service "+name+" is refused", func() (bool, string) {
		s := h.get(name)
		c := meta.FindStatusCondition(s.Status.Conditions, contract.ServiceConditionBlockAssigned)
		return c != nil && c.Reason == reason && !publishedAddress(s).IsValid(), s.Status.String()
	})
}

// oneAnswers asks who has an address ten times, as a router does that has forgotten it, and fails if more than one
// machine answers.
func (h *harness) oneAnswers(address netip.Addr) {
	h.Helper()
	begun := time.Now()
	for range 10 {
		h.execute("gateway", "ip", "neighbour", "flush", "to", address.String())
		h.answered(tcp(address, 81))
	}
	claims, err := h.Lab.ARPClaims(h.Context(), begun)
	h.must("who has answered", err)
	var all []string
	for _, c := range claims {
		if c.IP == address && !slices.Contains(all, c.MAC) {
			all = append(all, c.MAC)
		}
	}
	h.figure("shared_address_answered_by", len(all), "machines")
	if len(all) != 1 {
		h.Errorf("%s is answered for by %q, want one machine", address, all)
	}
}

//go:build linux

package services

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
)

// trafficKinds differ in what passes to the backends.
func trafficKinds() []kind {
	return []kind{
		//proves:service-changes/labels
		{"TCP", func(h *harness) { h.create(loadBalancer("tcp")) }, checkTCP},
		{"UDP", func(h *harness) { h.create(udpService()) }, checkUDP},
		{"TCP and UDP", func(h *harness) { h.create(bothService()) }, checkBoth},
		//proves:service-changes/ports
		{"several and changing ports", func(h *harness) { h.create(portsService()) }, checkPorts},
		//proves:service-changes/traffic-policy
		{"externalTrafficPolicy Local", func(h *harness) { h.create(localService(), h.Servers[1].Name) }, checkLocal},
		//proves:service-changes/traffic-policy
		{"loadBalancerSourceRanges", func(h *harness) { h.create(rangesService()) }, checkRanges},
		//proves:service-changes/traffic-policy
		{"sessionAffinity ClientIP", func(h *harness) { h.create(affinityService()) }, checkAffinity},
	}
}

// serversOf lists the servers that answered.
func serversOf(all []testimony) []string {
	servers := map[string]bool{}
	for _, a := range all {
		servers[a.server] = true
	}
	return slices.Sorted(maps.Keys(servers))
}

// spread fails unless every backend has its share of the answers: of 24 none comes from one of two with a
// probability of 1 in 8 million.
func (h *harness) spread(t target) {
	h.Helper()
	if got := serversOf(h.answers(t, 24)); len(got) != 2 {
		h.Errorf("%s is answered only by %v, want both backends", t, got)
	}
}

func checkTCP(h *harness) {
	address := h.published("tcp")
	t := tcp(address, 80)
	h.answered(t)
	h.spread(t)
	for _, a := range h.answers(t, 3) {
		if a.client == client {
			h.Errorf("%s sees the client's own address, which policy Cluster hides", a.server)
		}
	}
	h.refused(tcp(address, 81))
	w := h.watching(t)
	w.during("selector", func() {
		s := h.get("tcp")
		h.endpoints(s, h.Servers[0].Name)
		h.answeredBy(t, func(a testimony) bool { return a.server == h.Servers[0].Name })
		h.endpoints(s, h.Servers[0].Name, h.Servers[1].Name)
		h.answeredBy(t, func(a testimony) bool { return a.server == h.Servers[1].Name })
	})
	w.during("annotations_and_labels", func() {
		h.patch("tcp", map[string]any{"metadata": map[string]any{
			"annotations": map[string]any{"example.com/team": "web"}, "labels": map[string]any{"team": "web"},
		}})
	})
	w.harmless()
	h.remove("tcp")
}

func udpService() *corev1.Service {
	return loadBalancer("udp", shared(), ports(port("dns", corev1.ProtocolUDP, 53, cluster.BackendPort)))
}

func checkUDP(h *harness) {
	t := udp(h.published("udp"), 53)
	h.answered(t)
	h.spread(t)
	h.remove("udp")
}

func bothService() *corev1.Service {
	return loadBalancer("both", shared(), ports(
		port("tcp", corev1.ProtocolTCP, 443, cluster.BackendPort),
		port("udp", corev1.ProtocolUDP, 443, cluster.BackendPort),
	))
}

func checkBoth(h *harness) {
	address := h.published("both")
	for _, t := range []target{tcp(address, 443), udp(address, 443)} {
		h.answered(t)
		h.spread(t)
	}
	h.statusFollows("both")
	h.remove("both")
}

// statusFollows fails unless the status lists the ports of the spec.
func (h *harness) statusFollows(name string) {
	h.Helper()
	h.until(answerLimit, "the status of Service "+name+" lists its ports", func() (bool, string) {
		s := h.get(name)
		var want, got []string
		for _, p := range s.Spec.Ports {
			want = append(want, fmt.Sprint(p.Protocol, p.Port))
		}
		for _, i := range s.Status.LoadBalancer.Ingress {
			for _, p := range i.Ports {
				got = append(got, fmt.Sprint(p.Protocol, p.Port))
			}
		}
		return slices.Equal(want, got), fmt.Sprintf("ports %v, status %v", want, got)
	})
}

func portsService() *corev1.Service {
	return loadBalancer("ports", shared(), ports(
		port("http", corev1.ProtocolTCP, 80, cluster.BackendPort),
		port("admin", corev1.ProtocolTCP, 81, cluster.OtherBackendPort),
	))
}

// setPorts gives a Service other ports, and its endpoints with them.
func (h *harness) setPorts(name string, all ...corev1.ServicePort) {
	h.Helper()
	h.patch(name, spec("ports", all))
	h.endpoints(h.get(name), h.Servers[0].Name, h.Servers[1].Name)
	h.statusFollows(name)
}

func checkPorts(h *harness) {
	address := h.published("ports")
	http := port("http", corev1.ProtocolTCP, 80, cluster.BackendPort)
	admin := port("admin", corev1.ProtocolTCP, 81, cluster.OtherBackendPort)
	h.onPort(tcp(address, 80), cluster.BackendPort)
	h.onPort(tcp(address, 81), cluster.OtherBackendPort)
	w := h.watching(tcp(address, 80))
	w.during("port_added", func() {
		h.setPorts("ports", http, admin, port("more", corev1.ProtocolTCP, 82, cluster.BackendPort))
		h.onPort(tcp(address, 82), cluster.BackendPort)
	})
	w.during("target_port_changed", func() {
		h.setPorts("ports", http, port("admin", corev1.ProtocolTCP, 81, cluster.BackendPort))
		h.onPort(tcp(address, 81), cluster.BackendPort)
	})
	w.during("port_changed", func() {
		h.setPorts("ports", port("admin", corev1.ProtocolTCP, 8443, cluster.OtherBackendPort), http)
		h.onPort(tcp(address, 8443), cluster.OtherBackendPort)
	})
	h.refused(tcp(address, 81))
	w.harmless()
	if now := publishedAddress(h.get("ports")); now != address {
		h.Errorf("the address was %s and is %s", address, now)
	}
	h.remove("ports")
}

// onPort waits until a target is answered on one of the backends' ports.
func (h *harness) onPort(t target, want int) {
	h.Helper()
	h.answeredBy(t, func(a testimony) bool { return a.port == fmt.Sprint(want) })
}

func localService() *corev1.Service {
	return loadBalancer("local", shared(),
		func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal })
}

// checkLocal: the server with the backend announces, and the backend sees the client; both follow the backend.
func checkLocal(h *harness) {
	address := h.published("local")
	t := tcp(address, 80)
	first := h.Servers[1].Name
	second := h.Servers[0].Name
	h.servedOnly(t, address, first)
	for _, from := range []string{client, otherClient} {
		for _, a := range h.answers(t.by(from), 3) {
			if a.client != from {
				h.Errorf("asked from %s, the backend sees %s", from, a.client)
			}
		}
	}
	w := h.watching(t)
	w.during("local_backend_moved", func() {
		h.endpoints(h.get("local"), second)
		h.servedOnly(t, address, second)
	})
	w.during("policy_to_cluster", func() {
		h.patch("local", spec("externalTrafficPolicy", corev1.ServiceExternalTrafficPolicyCluster))
		h.answeredBy(t, func(a testimony) bool { return a.client != client })
	})
	w.during("policy_to_local", func() {
		h.patch("local", spec("externalTrafficPolicy", corev1.ServiceExternalTrafficPolicyLocal))
		h.answeredBy(t, func(a testimony) bool { return a.client == client })
	})
	w.end()
	h.servedOnly(t, address, second)
	h.remove("local")
}

// servedOnly waits until one server answers, and holds the address.
func (h *harness) servedOnly(t target, address netip.Addr, server string) {
	h.Helper()
	h.answeredBy(t, func(a testimony) bool { return a.server == server })
	h.until(answerLimit, fmt.Sprintf("%s holds %s", server, address), func() (bool, string) {
		holder, err := h.holder(h.Context(), address)
		return err == nil && holder == server, fmt.Sprintf("%q holds it (%v)", holder, err)
	})
	if got := serversOf(h.answers(t, 5)); !slices.Equal(got, []string{server}) {
		h.Errorf("%s is answered by %v, want only %s", t, got, server)
	}
}

func rangesService() *corev1.Service {
	return loadBalancer("ranges", shared(),
		func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{client + "/32"} })
}

func checkRanges(h *harness) {
	t := tcp(h.published("ranges"), 80)
	h.answered(t)
	h.refused(t.by(otherClient))
	w := h.watching(t)
	w.during("source_ranges_widened", func() {
		h.patch("ranges", spec("loadBalancerSourceRanges", []string{client + "/32", otherClient + "/32"}))
		h.answered(t.by(otherClient))
	})
	w.harmless()
	h.refused(t.by(thirdClient))
	h.patch("ranges", spec("loadBalancerSourceRanges", nil))
	h.answered(t.by(thirdClient))
	h.remove("ranges")
}

func affinityService() *corev1.Service {
	return loadBalancer("affinity", shared(),
		func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP })
}

func checkAffinity(h *harness) {
	address := h.published("affinity")
	t := tcp(address, 80)
	h.answered(t)
	for _, from := range []string{client, otherClient, thirdClient} {
		h.sticks(t.by(from), address)
	}
	w := h.watching(t)
	w.during("affinity_off", func() {
		h.patch("affinity", map[string]any{"spec": map[string]any{"sessionAffinity": corev1.ServiceAffinityNone,
			"sessionAffinityConfig": nil}})
		for _, server := range h.members() {
			h.answeredBy(t, func(a testimony) bool { return a.server == server.Name })
		}
	})
	w.during("affinity_on", func() {
		h.patch("affinity", spec("sessionAffinity", corev1.ServiceAffinityClientIP))
		// From the patch until kube-proxy has written its rules the old ones hold.
		h.until(answerLimit, t.String()+" is answered by one backend", func() (bool, string) {
			got := serversOf(h.answers(t, 24))
			return len(got) == 1, strings.Join(got, ", ")
		})
	})
	w.harmless()
	h.sticks(t, address)
	h.remove("affinity")
}

// sticks fails unless one backend answers a client whenever it asks. Each node remembers by itself whom a client is
// served by, so only what is asked while the address stays on a node counts.
func (h *harness) sticks(t target, address netip.Addr) {
	h.Helper()
	h.until(answerLimit, t.String()+" is asked while its address stays", func() (bool, string) {
		before := h.held(address)
		got := serversOf(h.answers(t, 24))
		after := h.held(address)
		if before == after && len(got) != 1 {
			h.Errorf("%s is answered by %v through %s, want always the same backend", t, got, after)
		}
		return before == after, before + ", then " + after
	})
}

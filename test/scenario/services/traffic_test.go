//go:build linux

package services

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/cluster"
)

// trafficKinds differ in what passes to the backends.
func trafficKinds() []kind {
	return []kind{
		//proves:service-changes/labels
		{"TCP", func(r *rig) { r.create(loadBalancer("tcp")) }, checkTCP},
		{"UDP", func(r *rig) { r.create(udpService()) }, checkUDP},
		{"TCP and UDP", func(r *rig) { r.create(bothService()) }, checkBoth},
		//proves:service-changes/ports
		{"several and changing ports", func(r *rig) { r.create(portsService()) }, checkPorts},
		//proves:service-changes/traffic-policy
		{"externalTrafficPolicy Local", func(r *rig) { r.create(localService(), r.Servers[1].Name) }, checkLocal},
		//proves:service-changes/traffic-policy
		{"loadBalancerSourceRanges", func(r *rig) { r.create(rangesService()) }, checkRanges},
		//proves:service-changes/traffic-policy
		{"sessionAffinity ClientIP", func(r *rig) { r.create(affinityService()) }, checkAffinity},
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
func (r *rig) spread(t target) {
	r.Helper()
	if got := serversOf(r.answers(t, 24)); len(got) != 2 {
		r.Errorf("%s is answered only by %v, want both backends", t, got)
	}
}

func checkTCP(r *rig) {
	address := r.published("tcp")
	t := tcp(address, 80)
	r.answered(t)
	r.spread(t)
	for _, a := range r.answers(t, 3) {
		if a.client == client {
			r.Errorf("%s sees the client's own address, which policy Cluster hides", a.server)
		}
	}
	r.refused(tcp(address, 81))
	w := r.watching(t)
	w.during("selector", func() {
		s := r.get("tcp")
		r.endpoints(s, r.Servers[0].Name)
		r.answeredBy(t, func(a testimony) bool { return a.server == r.Servers[0].Name })
		r.endpoints(s, r.Servers[0].Name, r.Servers[1].Name)
		r.answeredBy(t, func(a testimony) bool { return a.server == r.Servers[1].Name })
	})
	w.during("annotations_and_labels", func() {
		r.patch("tcp", map[string]any{"metadata": map[string]any{
			"annotations": map[string]any{"example.com/team": "web"}, "labels": map[string]any{"team": "web"},
		}})
	})
	w.harmless()
	r.remove("tcp")
}

func udpService() *corev1.Service {
	return loadBalancer("udp", shared(), ports(port("dns", corev1.ProtocolUDP, 53, cluster.BackendPort)))
}

func checkUDP(r *rig) {
	t := udp(r.published("udp"), 53)
	r.answered(t)
	r.spread(t)
	r.remove("udp")
}

func bothService() *corev1.Service {
	return loadBalancer("both", shared(), ports(
		port("tcp", corev1.ProtocolTCP, 443, cluster.BackendPort),
		port("udp", corev1.ProtocolUDP, 443, cluster.BackendPort),
	))
}

func checkBoth(r *rig) {
	address := r.published("both")
	for _, t := range []target{tcp(address, 443), udp(address, 443)} {
		r.answered(t)
		r.spread(t)
	}
	r.statusFollows("both")
	r.remove("both")
}

// statusFollows fails unless the status lists the ports of the spec.
func (r *rig) statusFollows(name string) {
	r.Helper()
	r.until(answerLimit, "the status of Service "+name+" lists its ports", func() (bool, string) {
		s := r.get(name)
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
func (r *rig) setPorts(name string, all ...corev1.ServicePort) {
	r.Helper()
	r.patch(name, spec("ports", all))
	r.endpoints(r.get(name), r.Servers[0].Name, r.Servers[1].Name)
	r.statusFollows(name)
}

func checkPorts(r *rig) {
	address := r.published("ports")
	http := port("http", corev1.ProtocolTCP, 80, cluster.BackendPort)
	admin := port("admin", corev1.ProtocolTCP, 81, cluster.OtherBackendPort)
	r.onPort(tcp(address, 80), cluster.BackendPort)
	r.onPort(tcp(address, 81), cluster.OtherBackendPort)
	w := r.watching(tcp(address, 80))
	w.during("port_added", func() {
		r.setPorts("ports", http, admin, port("more", corev1.ProtocolTCP, 82, cluster.BackendPort))
		r.onPort(tcp(address, 82), cluster.BackendPort)
	})
	w.during("target_port_changed", func() {
		r.setPorts("ports", http, port("admin", corev1.ProtocolTCP, 81, cluster.BackendPort))
		r.onPort(tcp(address, 81), cluster.BackendPort)
	})
	w.during("port_changed", func() {
		r.setPorts("ports", port("admin", corev1.ProtocolTCP, 8443, cluster.OtherBackendPort), http)
		r.onPort(tcp(address, 8443), cluster.OtherBackendPort)
	})
	r.refused(tcp(address, 81))
	w.harmless()
	if now := publishedAddress(r.get("ports")); now != address {
		r.Errorf("the address was %s and is %s", address, now)
	}
	r.remove("ports")
}

// onPort waits until a target is answered on one of the backends' ports.
func (r *rig) onPort(t target, want int) {
	r.Helper()
	r.answeredBy(t, func(a testimony) bool { return a.port == fmt.Sprint(want) })
}

func localService() *corev1.Service {
	return loadBalancer("local", shared(),
		func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal })
}

// checkLocal: the server with the backend announces, and the backend sees the client; both follow the backend.
func checkLocal(r *rig) {
	address := r.published("local")
	t := tcp(address, 80)
	first := r.Servers[1].Name
	second := r.Servers[0].Name
	r.servedAlone(t, address, first)
	for _, from := range []string{client, otherClient} {
		for _, a := range r.answers(t.by(from), 3) {
			if a.client != from {
				r.Errorf("asked from %s, the backend sees %s", from, a.client)
			}
		}
	}
	w := r.watching(t)
	w.during("local_backend_moved", func() {
		r.endpoints(r.get("local"), second)
		r.servedAlone(t, address, second)
	})
	w.during("policy_to_cluster", func() {
		r.patch("local", spec("externalTrafficPolicy", corev1.ServiceExternalTrafficPolicyCluster))
		r.answeredBy(t, func(a testimony) bool { return a.client != client })
	})
	w.during("policy_to_local", func() {
		r.patch("local", spec("externalTrafficPolicy", corev1.ServiceExternalTrafficPolicyLocal))
		r.answeredBy(t, func(a testimony) bool { return a.client == client })
	})
	w.end()
	r.servedAlone(t, address, second)
	r.remove("local")
}

// servedAlone waits until one server answers, and holds the address.
func (r *rig) servedAlone(t target, address netip.Addr, server string) {
	r.Helper()
	r.answeredBy(t, func(a testimony) bool { return a.server == server })
	r.until(answerLimit, fmt.Sprintf("%s holds %s", server, address), func() (bool, string) {
		holder, err := r.holder(r.Context(), address)
		return err == nil && holder == server, fmt.Sprintf("%q holds it (%v)", holder, err)
	})
	if got := serversOf(r.answers(t, 5)); !slices.Equal(got, []string{server}) {
		r.Errorf("%s is answered by %v, want only %s", t, got, server)
	}
}

func rangesService() *corev1.Service {
	return loadBalancer("ranges", shared(),
		func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{client + "/32"} })
}

func checkRanges(r *rig) {
	t := tcp(r.published("ranges"), 80)
	r.answered(t)
	r.refused(t.by(otherClient))
	w := r.watching(t)
	w.during("source_ranges_widened", func() {
		r.patch("ranges", spec("loadBalancerSourceRanges", []string{client + "/32", otherClient + "/32"}))
		r.answered(t.by(otherClient))
	})
	w.harmless()
	r.refused(t.by(thirdClient))
	r.patch("ranges", spec("loadBalancerSourceRanges", nil))
	r.answered(t.by(thirdClient))
	r.remove("ranges")
}

func affinityService() *corev1.Service {
	return loadBalancer("affinity", shared(),
		func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP })
}

func checkAffinity(r *rig) {
	address := r.published("affinity")
	t := tcp(address, 80)
	r.answered(t)
	for _, from := range []string{client, otherClient, thirdClient} {
		r.sticks(t.by(from), address)
	}
	w := r.watching(t)
	w.during("affinity_off", func() {
		r.patch("affinity", map[string]any{"spec": map[string]any{"sessionAffinity": corev1.ServiceAffinityNone,
			"sessionAffinityConfig": nil}})
		for _, server := range r.members() {
			r.answeredBy(t, func(a testimony) bool { return a.server == server.Name })
		}
	})
	w.during("affinity_on", func() {
		r.patch("affinity", spec("sessionAffinity", corev1.ServiceAffinityClientIP))
		// From the patch until kube-proxy has written its rules the old ones hold.
		r.until(answerLimit, t.String()+" is answered by one backend", func() (bool, string) {
			got := serversOf(r.answers(t, 24))
			return len(got) == 1, strings.Join(got, ", ")
		})
	})
	w.harmless()
	r.sticks(t, address)
	r.remove("affinity")
}

// sticks fails unless one backend answers a client whenever it asks. Each node remembers by itself whom a client is
// served by, so only what is asked while the address stays on a node counts.
func (r *rig) sticks(t target, address netip.Addr) {
	r.Helper()
	r.until(answerLimit, t.String()+" is asked while its address stays", func() (bool, string) {
		before := r.held(address)
		got := serversOf(r.answers(t, 24))
		after := r.held(address)
		if before == after && len(got) != 1 {
			r.Errorf("%s is answered by %v through %s, want always the same backend", t, got, after)
		}
		return before == after, before + ", then " + after
	})
}

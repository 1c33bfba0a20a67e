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

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab"
)

// late is a Service that is created while a network fails.
const late = "late"

// served is a public network with the Services in it: their addresses, and the requests that a client sends there.
type served struct {
	name, id string
	vlan     int
	// services are the names by address, probes the requests to it.
	services map[netip.Addr]string
	probes   map[netip.Addr]int
}

// TestOneVLANFails: each server is in two public networks of its location and announces addresses of both. A VLAN
// interface that goes down takes the addresses of its network to other servers. Those of the other network stay, and
// no request to them is lost, whichever of the two has the default route.
func TestOneVLANFails(t *testing.T) {
	h := newHarness(t, cluster.Options{Announcer: contract.AnnouncerAgent, Servers: 3, SecondNetwork: true,
		AgentFlags: []string{"--manage=return-path"}},
		second, v1beta1.PublicNetworkSpec{ID: cluster.SecondNetworkID,
			Members: v1beta1.MemberPolicy{Membership: v1beta1.MembershipReport}})
	h.ready(h.Servers...)
	h.listed(h.Servers, v1beta1.DefaultNetwork, cluster.VLAN, second)
	h.listed(h.Servers, second, cluster.SecondVLAN, v1beta1.DefaultNetwork)

	byDefault := &served{name: v1beta1.DefaultNetwork, id: cluster.NetworkID, vlan: cluster.VLAN}
	other := &served{name: second, id: cluster.SecondNetworkID, vlan: cluster.SecondVLAN}
	h.serve(byDefault, other)

	var all harm
	for _, broken := range []*served{other, byDefault} {
		whole := byDefault
		if broken == byDefault {
			whole = other
		}
		seen := h.harmOf(func() harm { return h.vlanFails(broken, whole) })
		all.moves = append(all.moves, seen.moves...)
		all.requests = append(all.requests, seen.requests...)
	}
	h.figure("unrelated_moves", len(all.moves), "addresses")
	h.figure("networks_unrelated_lost_requests", len(all.requests), "requests")
	if len(all.moves) > 0 || len(all.requests) > 0 {
		h.Errorf("of the network without a fault addresses moved at %v, and requests had no answer at %v", all.moves,
			all.requests)
	}
	h.failsEverywhere(other, byDefault)
	h.nothingIsLeft(second, slices.Concat(byDefault.names(), other.names(), []string{late})...)
}

func (s *served) names() []string { return slices.Sorted(maps.Values(s.services)) }

// serve creates Services in networks, one for each server and network, and waits until a client is answered.
func (h *harness) serve(networks ...*served) {
	h.Helper()
	for _, s := range networks {
		for i := range h.Servers {
			h.create(fmt.Sprintf("%s-%d", s.name, i), h.Servers, map[string]string{contract.ServiceNetwork: s.name})
		}
	}
	blocks := map[string]string{}
	for _, s := range networks {
		s.services = map[netip.Addr]string{}
		s.probes = map[netip.Addr]int{}
		for i := range h.Servers {
			name := fmt.Sprintf("%s-%d", s.name, i)
			address := h.published(name)
			s.services[address] = name
			s.probes[address] = h.ask(address, time.Second/2)
			blocks[name] = s.name
		}
	}
	h.blocksAre(blocks)
	for _, s := range networks {
		h.answered(s)
	}
}

// answered waits until the client is answered by all addresses of a network.
func (h *harness) answered(s *served) {
	h.Helper()
	for address, probe := range s.probes {
		h.row(probe, fmt.Sprintf("Service %s (%s) is answered", s.services[address], address), true)
	}
}

// owners are the servers to which the gateway sends what clients send to the addresses of a network.
func (h *harness) owners(s *served) map[netip.Addr]string {
	h.Helper()
	table, err := h.Lab.Neighbours(h.Context(), lab.Gateway)
	h.must("read the gateway's ARP table", err)
	owners := map[netip.Addr]string{}
	for _, entry := range table {
		if _, ours := s.services[entry.IP]; ours {
			owners[entry.IP] = h.serverOf(entry.MAC)
		}
	}
	return owners
}

// serverOf is the server with a hardware address, which is that of all its VLAN interfaces.
func (h *harness) serverOf(mac string) string {
	h.Helper()
	if h.macs == nil {
		h.macs = map[string]string{}
		for _, s := range h.Servers {
			out, err := h.Lab.Exec(h.Context(), s.Name, "cat", "/sys/class/net/"+cluster.PublicInterface+"/address")
			h.must("read the hardware address of "+s.Name, err)
			h.macs[strings.TrimSpace(string(out.Stdout))] = s.Name
		}
	}
	return h.macs[mac]
}

// calm is how long no address must have moved before a fault: a busy machine may miss heartbeats while programs start.
const calm = 20 * time.Second

// ofBoth waits until a server announces addresses of both networks, and each address has had its owner for a while.
func (h *harness) ofBoth(a, b *served) (server string) {
	h.Helper()
	since := time.Now()
	var lastA, lastB map[netip.Addr]string
	h.until("a server announces addresses of both networks", func() (bool, string) {
		ofA := h.owners(a)
		ofB := h.owners(b)
		if !maps.Equal(ofA, lastA) || !maps.Equal(ofB, lastB) {
			since = time.Now()
			lastA = ofA
			lastB = ofB
		}
		server = ""
		for _, s := range h.Servers {
			if slices.Contains(slices.Collect(maps.Values(ofA)), s.Name) &&
				slices.Contains(slices.Collect(maps.Values(ofB)), s.Name) {
				server = s.Name
			}
		}
		return server != "" && len(ofA) == len(a.services) && len(ofB) == len(b.services) && time.Since(since) >= calm,
			fmt.Sprint(ofA, ofB)
	})
	return server
}

// vlanFails breaks the VLAN interface of a network on a server that announces addresses of both, and repairs it. It
// returns the harm to the other network.
func (h *harness) vlanFails(broken, whole *served) harm {
	h.Helper()
	victim := h.ofBoth(broken, whole)
	before := h.owners(whole)
	begun := time.Now()
	h.must("break VLAN of "+broken.name, h.Lab.BreakVLAN(h.Context(), victim, broken.vlan, lab.LinkDown))
	h.until("the addresses of network "+broken.name+" leave "+victim, func() (bool, string) {
		now := h.owners(broken)
		return !slices.Contains(slices.Collect(maps.Values(now)), victim), fmt.Sprint(now)
	})
	h.answered(broken)
	h.blamed(victim, broken, whole)
	h.diagnosed(victim, broken, whole)
	h.answered(whole)
	if len(h.moves(whole, before, begun)) == 0 {
		h.reports(victim, before)
	}

	h.must("repair "+victim, h.Lab.Repair(h.Context(), victim))
	h.ready(h.Servers...)
	h.answered(broken)
	h.answered(whole)
	return harm{h.moves(whole, before, begun), h.unanswered(whole, begun)}
}

// blamed waits until the Node of a server names the network with the fault, and no other one, and until it has lost the
// label, which each network can do without on one server of several.
func (h *harness) blamed(server string, broken, whole *served) {
	h.Helper()
	h.until("Node "+server+" names network "+broken.name, func() (bool, string) {
		node := h.node(server)
		c := contract.FindNodeCondition(node, contract.ConditionVLANReady)
		if c == nil || c.Status != corev1.ConditionFalse || !strings.Contains(c.Message, broken.id) {
			return false, fmt.Sprintf("%+v", c)
		}
		if strings.Contains(c.Message, whole.id) {
			h.Fatalf("Node %s names a network without a fault: %s", server, c.Message)
		}
		_, labelled := node.Labels[contract.NodeVLANReady]
		return !labelled, fmt.Sprint(node.Labels)
	})
}

// diagnosed: a person who asks on the server is shown the network with the fault, and the other one beside it.
func (h *harness) diagnosed(server string, broken, whole *served) {
	h.Helper()
	out, err := h.Diagnose(h.Context(), server)
	h.must("diagnose "+server, err)
	said := string(out.Stdout)
	if out.Code != 1 || !strings.Contains(said, "public network "+broken.id) ||
		!strings.Contains(said, "(--public-network="+whole.name+")") {
		h.Errorf("the diagnosis of %s ended with code %d:\n%s", server, out.Code, said)
	}
}

// failsEverywhere breaks the VLAN interfaces of a network on all servers. A new Service of the other network, which has
// no fault, has its address all the same and is answered.
func (h *harness) failsEverywhere(broken, whole *served) {
	h.Helper()
	for _, s := range h.Servers {
		h.must("break VLAN of "+broken.name, h.Lab.BreakVLAN(h.Context(), s.Name, broken.vlan, lab.LinkDown))
	}
	for _, s := range h.Servers {
		h.until("Node "+s.Name+" reports the fault", func() (bool, string) {
			c := contract.FindNodeCondition(h.node(s.Name), contract.ConditionVLANReady)
			return c != nil && c.Status == corev1.ConditionFalse, fmt.Sprintf("%+v", c)
		})
	}
	h.create(late, h.Servers, map[string]string{contract.ServiceNetwork: whole.name})
	h.row(h.ask(h.published(late), time.Second/2), "the new Service is answered", true)
	for _, s := range h.Servers {
		h.must("repair "+s.Name, h.Lab.Repair(h.Context(), s.Name))
	}
	h.ready(h.Servers...)
}

// reports waits until the agent of a server reports that it is the one that answers for its addresses.
func (h *harness) reports(server string, owners map[netip.Addr]string) {
	h.Helper()
	h.until("the agent of "+server+" reports the addresses that it keeps", func() (bool, string) {
		reported := h.reported(server)
		for address, owner := range owners {
			r, reports := reported[address]
			if owner == server && (!reports || r.State != contract.AddressAnswered || h.serverOf(r.MAC) != server) {
				return false, fmt.Sprintf("%s: %+v", address, r)
			}
		}
		return true, ""
	})
}

// moves are when addresses of a network went to another owner since a time: another machine claimed them.
func (h *harness) moves(s *served, before map[netip.Addr]string, since time.Time) []span {
	h.Helper()
	claims, err := h.Lab.ARPClaims(h.Context(), since)
	h.must("read what the gateway has seen", err)
	var moves []span
	last := maps.Clone(before)
	for _, c := range claims {
		if owner, ours := last[c.IP]; ours && h.serverOf(c.MAC) != owner {
			moves = append(moves, span{c.At, c.At})
			last[c.IP] = h.serverOf(c.MAC)
		}
	}
	owners := h.owners(s)
	now := time.Now()
	for address, owner := range last {
		if owners[address] != owner {
			moves = append(moves, span{now, now})
		}
	}
	if len(moves) > 0 {
		h.Logf("in network %s addresses moved at %v; owners were %v, and are %v", s.name, moves, before, owners)
	}
	return moves
}

// unanswered are the requests to the addresses of a network that were lost since a time.
func (h *harness) unanswered(s *served, since time.Time) []span {
	h.Helper()
	var all []span
	for _, probe := range s.probes {
		all = append(all, h.lost(probe, since)...)
	}
	return all
}

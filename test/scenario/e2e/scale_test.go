//go:build linux && e2e

package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/installer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// TestScale adds a server and removes another one under load, as Cluster Autoscaler does. Controller and agents
// configure the servers, and no person does anything on them.
func TestScale(t *testing.T) {
	s := newSite(t, kind{
		announcer: contract.AnnouncerAgent,
		overlay:   "deploy/overlays/kubeadm-agent-manage-vlan",
		replicas:  1,
		servers:   3,
		later:     "srv-c",
		auto:      true,
		register:  func(m *installer.Machine) { m.Joins = m.Name != "srv-a" },
		account: func(a *pnapsim.AccountSeed) {
			a.Servers = slices.DeleteFunc(a.Servers, func(s pnapsim.ServerSeed) bool { return s.Hostname == "srv-c" })
		},
	})
	s.registered()
	s.install()
	address, probe := s.serve()
	began := time.Now()
	s.scaleUp(s.Servers[2])
	s.scaleDown(s.Servers[1], address)
	s.settled("scale", began, probe)
	s.allowed()
	s.undisturbed()
}

// bring creates the IPBlock for the addresses of the servers, where the controller joins them.
func (s *site) bring() {
	s.Helper()
	if s.auto {
		s.apply(`apiVersion: networking.phoenixnap.com/v1beta1
kind: IPBlock
metadata: {name: nodes}
spec: {source: Brought, purpose: Nodes, blockID: ` + cluster.NodeBlockID + "}\n")
	}
}

// scaleUp rents a server, whose first start makes it a node, and waits until it may carry traffic.
func (s *site) scaleUp(server cluster.Server) {
	s.Helper()
	check(s.T, s.Sim.Edit(s.Context(), pnapsim.Edit{Kind: pnapsim.EditAddServer, Server: server.ID,
		Hostname: server.Name, Network: cluster.NetworkID, IPs: []string{server.Private.Addr().String()}}))
	s.switchOn(server)
	s.registered()
	began := time.Now()
	s.figure("added_node_initialised_after", s.initialised().Sub(began).Seconds(), "s")
	s.figure("added_node_ready_after", s.ready().Sub(began).Seconds(), "s")
	s.checkServers()
	if _, member := s.membership(server); !member {
		s.Errorf("server %s is no member of the public network", server.Name)
	}
}

// scaleDown does what Cluster Autoscaler does: it taints a node, drains it, and has its server deprovisioned.
func (s *site) scaleDown(server cluster.Server, address netip.Addr) {
	s.Helper()
	before := s.announces(address)
	began := time.Now()
	s.run("kubectl taint node " + server.Name + " ToBeDeletedByClusterAutoscaler=" + fmt.Sprint(began.Unix()) +
		":NoSchedule")
	s.run("kubectl drain " + server.Name + " --ignore-daemonsets --delete-emptydir-data --timeout=10m")
	s.eventually(limit, address.String()+" is announced by another node", func() (bool, string) {
		now := s.announces(address)
		return now != before, now + " announces it, as before"
	})
	s.figure("drain_took", time.Since(began).Seconds(), "s")
	ips, _ := s.membership(server)
	s.on = slices.DeleteFunc(s.on, func(on cluster.Server) bool { return on.Name == server.Name })
	began = time.Now()
	check(s.T, s.Sim.Edit(s.Context(), pnapsim.Edit{Kind: pnapsim.EditDeleteServer, Server: server.ID}))
	check(s.T, s.Lab.KillServer(s.Context(), server.Name))
	gone := s.eventually(limit, "Node "+server.Name+" is gone", func() (bool, string) {
		n, err := s.Kube.CoreV1().Nodes().Get(s.Context(), server.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(n.Status.Conditions, err)
	})
	s.figure("removed_node_gone_after", gone.Sub(began).Seconds(), "s")
	s.eventually(limit, "the address of "+server.Name+" is free", func() (bool, string) {
		out := s.run("kubectl get ipblock nodes -o jsonpath={.status.allocations[*].server}")
		return !strings.Contains(out, server.ID), fmt.Sprint(ips, ", and the servers ", out)
	})
	if ips, member := s.membership(server); member {
		s.Errorf("server %s, which is gone, is still a member with %v", server.Name, ips)
	}
}

// announces returns the link-layer address of the machine that has announced an address last.
func (s *site) announces(address netip.Addr) string {
	s.Helper()
	claims, err := s.Lab.ARPClaims(s.Context(), s.began)
	check(s.T, err)
	last := ""
	for _, c := range claims {
		if c.IP == address {
			last = c.MAC
		}
	}
	return last
}

// membership returns the addresses of a server in the public network.
func (s *site) membership(server cluster.Server) (ips []string, member bool) {
	s.Helper()
	state, err := s.Sim.State(s.Context())
	check(s.T, err)
	for _, n := range state.Networks {
		for _, m := range n.Memberships {
			if m.Server == server.ID {
				return m.IPs, true
			}
		}
	}
	return nil, false
}

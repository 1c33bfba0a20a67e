//go:build linux

package services

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// nodeKinds differ in what happens to servers. The last of them takes one away for good.
func nodeKinds() []kind {
	prepare := func(name string) func(*harness) {
		return func(h *harness) { h.create(loadBalancer(name, shared())) }
	}
	return []kind{
		//proves:service-changes/node-joins
		{"node added", prepare("added"), checkAdded},
		{"shared address", prepareSharing, checkSharing}, // one of three servers is left out, and two compete
		//proves:service-changes/node-drained
		//proves:service-changes/node-excluded
		{"node drained", prepare("drained"), checkDrained},
		//proves:service-changes/node-dies
		{"node removed", prepare("removed"), checkRemoved},
	}
}

// checkAdded: a server that joins serves, and no client notices otherwise.
func checkAdded(h *harness) {
	t := tcp(h.published("added"), 80)
	w := h.watching(t)
	w.during("node_added", func() {
		begun := time.Now()
		h.join(h.late())
		h.joined(h.late())
		h.figure("node_added_ready_after", time.Since(begun), "s")
		h.endpoints(h.get("added"), h.Servers[0].Name, h.Servers[1].Name, h.late().Name)
		h.answeredBy(t, func(a testimony) bool { return a.server == h.late().Name })
	})
	w.harmless()
	h.remove("added")
}

// othersThan lists the servers but one.
func (h *harness) othersThan(server string) []string {
	var names []string
	for _, s := range h.Servers {
		if s.Name != server {
			names = append(names, s.Name)
		}
	}
	return names
}

// held is the server that has an address now.
func (h *harness) held(address netip.Addr) string {
	h.Helper()
	holder, err := h.holder(h.Context(), address)
	h.must("who has the address", err)
	if holder == "" {
		h.Fatalf("no server has %s", address)
	}
	return holder
}

// leaves waits until another server has an address.
func (h *harness) leaves(server string, address netip.Addr) {
	h.Helper()
	h.until(answerLimit, fmt.Sprintf("%s leaves %s", address, server), func() (bool, string) {
		holder, err := h.holder(h.Context(), address)
		return err == nil && holder != "" && holder != server, fmt.Sprintf("%q has it (%v)", holder, err)
	})
}

// checkDrained: a cordoned and drained node keeps the address and passes requests on; with the label that excludes it
// from load balancers the address leaves it.
func checkDrained(h *harness) {
	address := h.published("drained")
	t := tcp(address, 80)
	w := h.watching(t)
	server := h.held(address)
	w.during("node_drained", func() {
		h.patchNode(server, `{"spec":{"unschedulable":true}}`)
		h.endpoints(h.get("drained"), h.othersThan(server)...)
		h.answeredBy(t, func(a testimony) bool { return a.server != server })
	})
	h.until(answerLimit, server+" answers no more", func() (bool, string) {
		got := serversOf(h.answers(t, 10))
		return !slices.Contains(got, server), fmt.Sprint(got)
	})
	if now := h.held(address); now != server {
		h.Errorf("cordon and drain already moved %s from %s to %s", address, server, now)
	}
	w.during("node_excluded", func() {
		h.patchNode(server, fmt.Sprintf(`{"metadata":{"labels":{%q:""}}}`, corev1.LabelNodeExcludeBalancers))
		h.leaves(server, address)
		h.answered(t)
	})
	w.during("node_admitted_again", func() {
		h.patchNode(server, fmt.Sprintf(`{"metadata":{"labels":{%q:null}},"spec":{"unschedulable":null}}`,
			corev1.LabelNodeExcludeBalancers))
		h.joined(h.named(server))
	})
	w.harmless("node_excluded")
	h.remove("drained")
}

func (h *harness) named(server string) cluster.Server {
	for _, s := range h.Servers {
		if s.Name == server {
			return s
		}
	}
	h.Fatalf("there is no server %s", server)
	return cluster.Server{}
}

func (h *harness) patchNode(name, changes string) {
	h.Helper()
	_, err := h.Kube.CoreV1().Nodes().Patch(h.Context(), name, types.MergePatchType, []byte(changes),
		metav1.PatchOptions{})
	h.must("change Node "+name, err)
}

// checkRemoved: the server with the address is given back in the portal; the address moves and the Node goes.
func checkRemoved(h *harness) {
	address := h.published("removed")
	t := tcp(address, 80)
	w := h.watching(t)
	server := h.held(address)
	w.during("node_removed", func() {
		begun := time.Now()
		h.must("give the server back", h.Sim.Edit(h.Context(),
			pnapsim.Edit{Kind: pnapsim.EditDeleteServer, Server: h.named(server).ID}))
		h.must("switch the server off", h.TakeAway(h.Context(), server))
		h.endpoints(h.get("removed"), h.othersThan(server)...)
		h.unheard(server)
		h.leaves(server, address)
		h.answered(t)
		h.until(answerLimit, "the Node is gone", func() (bool, string) {
			_, err := h.Kube.CoreV1().Nodes().Get(h.Context(), server, metav1.GetOptions{})
			return apierrors.IsNotFound(err), fmt.Sprint(err)
		})
		h.figure("node_removed_gone_after", time.Since(begun), "s")
	})
	w.end()
	h.remove("removed")
}

// unheard marks a Node as the node lifecycle controller does when its kubelet is silent.
func (h *harness) unheard(name string) {
	h.Helper()
	node := h.node(name)
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			c.Status = corev1.ConditionUnknown
			c.Reason = "NodeStatusUnknown"
			c.LastTransitionTime = metav1.Now()
		}
	}
	_, err := h.Kube.CoreV1().Nodes().UpdateStatus(h.Context(), node, metav1.UpdateOptions{})
	h.must("mark Node "+name+" as unreachable", err)
}

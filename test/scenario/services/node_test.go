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

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/cluster"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/sim/pnapsim"
)

// nodeKinds differ in what happens to servers. The last of them takes one away for good.
func nodeKinds() []kind {
	prepare := func(name string) func(*rig) {
		return func(r *rig) { r.create(loadBalancer(name, shared())) }
	}
	return []kind{
		//proves:service-changes/node-joins
		{"node added", prepare("added"), checkAdded},
		//proves:service-changes/node-drained
		//proves:service-changes/node-excluded
		{"node drained", prepare("drained"), checkDrained},
		//proves:service-changes/node-dies
		{"node removed", prepare("removed"), checkRemoved},
	}
}

// checkAdded: a server that joins serves, and no client notices otherwise.
func checkAdded(r *rig) {
	t := tcp(r.published("added"), 80)
	w := r.watching(t)
	w.during("node_added", func() {
		begun := time.Now()
		r.join(r.late())
		r.joined(r.late())
		r.figure("node_added_ready_after", time.Since(begun), "s")
		r.endpoints(r.get("added"), r.Servers[0].Name, r.Servers[1].Name, r.late().Name)
		r.answeredBy(t, func(a testimony) bool { return a.server == r.late().Name })
	})
	w.harmless()
	r.remove("added")
}

// othersThan lists the servers but one.
func (r *rig) othersThan(server string) []string {
	var names []string
	for _, s := range r.Servers {
		if s.Name != server {
			names = append(names, s.Name)
		}
	}
	return names
}

// held is the server that has an address now.
func (r *rig) held(address netip.Addr) string {
	r.Helper()
	holder, err := r.holder(r.Context(), address)
	r.must("who has the address", err)
	if holder == "" {
		r.Fatalf("no server has %s", address)
	}
	return holder
}

// leaves waits until another server has an address.
func (r *rig) leaves(server string, address netip.Addr) {
	r.Helper()
	r.until(answerLimit, fmt.Sprintf("%s leaves %s", address, server), func() (bool, string) {
		holder, err := r.holder(r.Context(), address)
		return err == nil && holder != "" && holder != server, fmt.Sprintf("%q has it (%v)", holder, err)
	})
}

// checkDrained: a cordoned and drained node keeps the address and passes requests on; with the label that excludes it
// from load balancers the address leaves it.
func checkDrained(r *rig) {
	address := r.published("drained")
	t := tcp(address, 80)
	w := r.watching(t)
	server := r.held(address)
	w.during("node_drained", func() {
		r.patchNode(server, `{"spec":{"unschedulable":true}}`)
		r.endpoints(r.get("drained"), r.othersThan(server)...)
		r.answeredBy(t, func(a testimony) bool { return a.server != server })
	})
	r.until(answerLimit, server+" answers no more", func() (bool, string) {
		got := serversOf(r.answers(t, 10))
		return !slices.Contains(got, server), fmt.Sprint(got)
	})
	if now := r.held(address); now != server {
		r.Errorf("cordon and drain already moved %s from %s to %s", address, server, now)
	}
	w.during("node_excluded", func() {
		r.patchNode(server, fmt.Sprintf(`{"metadata":{"labels":{%q:""}}}`, corev1.LabelNodeExcludeBalancers))
		r.leaves(server, address)
		r.answered(t)
	})
	w.during("node_admitted_again", func() {
		r.patchNode(server, fmt.Sprintf(`{"metadata":{"labels":{%q:null}},"spec":{"unschedulable":null}}`,
			corev1.LabelNodeExcludeBalancers))
		r.joined(r.named(server))
	})
	w.harmless("node_excluded")
	r.remove("drained")
}

func (r *rig) named(server string) cluster.Server {
	for _, s := range r.Servers {
		if s.Name == server {
			return s
		}
	}
	r.Fatalf("there is no server %s", server)
	return cluster.Server{}
}

func (r *rig) patchNode(name, changes string) {
	r.Helper()
	_, err := r.Kube.CoreV1().Nodes().Patch(r.Context(), name, types.MergePatchType, []byte(changes),
		metav1.PatchOptions{})
	r.must("change Node "+name, err)
}

// checkRemoved: the server with the address is given back in the portal; the address moves and the Node goes.
func checkRemoved(r *rig) {
	address := r.published("removed")
	t := tcp(address, 80)
	w := r.watching(t)
	server := r.held(address)
	w.during("node_removed", func() {
		begun := time.Now()
		r.must("give the server back", r.Sim.Edit(r.Context(),
			pnapsim.Edit{Kind: pnapsim.EditDeleteServer, Server: r.named(server).ID}))
		r.must("switch the server off", r.TakeAway(r.Context(), server))
		r.endpoints(r.get("removed"), r.othersThan(server)...)
		r.unheard(server)
		r.leaves(server, address)
		r.answered(t)
		r.until(answerLimit, "the Node is gone", func() (bool, string) {
			_, err := r.Kube.CoreV1().Nodes().Get(r.Context(), server, metav1.GetOptions{})
			return apierrors.IsNotFound(err), fmt.Sprint(err)
		})
		r.figure("node_removed_gone_after", time.Since(begun), "s")
	})
	w.end()
	r.remove("removed")
}

// unheard marks a Node as the node lifecycle controller does when its kubelet is silent.
func (r *rig) unheard(name string) {
	r.Helper()
	node := r.node(name)
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			c.Status = corev1.ConditionUnknown
			c.Reason = "NodeStatusUnknown"
			c.LastTransitionTime = metav1.Now()
		}
	}
	_, err := r.Kube.CoreV1().Nodes().UpdateStatus(r.Context(), node, metav1.UpdateOptions{})
	r.must("mark Node "+name+" as unreachable", err)
}

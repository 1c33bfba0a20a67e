//go:build linux

package services

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/cluster"
)

// kind is one kind of Service, or one thing that happens to Services.
type kind struct {
	// name is the subtest's; the documentation names it.
	name string
	// prepare creates what will be published while earlier kinds are checked; nil for nothing.
	prepare func(h *harness)
	// check reports whether it works, and gives everything back.
	check func(h *harness)
}

// kinds are all of them, in the order in which they run: what changes servers comes last.
func kinds() []kind {
	return slices.Concat(
		trafficKinds(), addressKinds(), lifeKinds(), nodeKinds(),
	)
}

// ahead is how many kinds are prepared while one is checked: buying and assigning takes longest.
const ahead = 3

// nothingIsLeft waits for the ends of all Services and compares the account with its state at the beginning.
func (h *harness) nothingIsLeft() {
	all, err := h.Kube.CoreV1().Services(cluster.Namespace).List(h.Context(), metav1.ListOptions{})
	h.must("list Services", err)
	for _, s := range all.Items {
		if s.Name == "kubernetes" {
			continue
		}
		if s.DeletionTimestamp == nil {
			h.remove(s.Name)
		}
		h.removed(s.Name)
	}
	for _, b := range h.blocks() {
		if b.ID != cluster.NodeBlockID && b.ID != ownBlockID {
			h.Errorf("block %s (%s, %v) is left in the account", b.CIDR, b.Status, b.Tags)
		}
	}
	violations, err := h.Sim.Violations(h.Context())
	h.must("ask for broken rules", err)
	for _, v := range violations {
		h.Errorf("the controllers broke a rule of the API: %s", v)
	}
	h.figure("api_rules_broken", len(violations), "rules")
}

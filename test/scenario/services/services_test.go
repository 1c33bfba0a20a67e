//go:build linux

package services

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/cluster"
)

// kind is one kind of Service, or one thing that happens to Services.
type kind struct {
	// name is the subtest's; the documentation names it.
	name string
	// prepare creates what will be published while earlier kinds are checked; nil for nothing.
	prepare func(r *rig)
	// check reports whether it works, and gives everything back.
	check func(r *rig)
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
func (r *rig) nothingIsLeft() {
	all, err := r.Kube.CoreV1().Services(cluster.Namespace).List(r.Context(), metav1.ListOptions{})
	r.must("list Services", err)
	for _, s := range all.Items {
		if s.Name == "kubernetes" {
			continue
		}
		if s.DeletionTimestamp == nil {
			r.remove(s.Name)
		}
		r.removed(s.Name)
	}
	for _, b := range r.blocks() {
		if b.ID != cluster.NodeBlockID && b.ID != ownBlockID {
			r.Errorf("block %s (%s, %v) is left in the account", b.CIDR, b.Status, b.Tags)
		}
	}
	violations, err := r.Sim.Violations(r.Context())
	r.must("ask for broken rules", err)
	for _, v := range violations {
		r.Errorf("the controllers broke a rule of the API: %s", v)
	}
	r.figure("api_rules_broken", len(violations), "rules")
}

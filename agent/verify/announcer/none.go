package announcer

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

// None is the announcer of a cluster without load balancers, and stands for kinds that this agent does not know.
type None struct{}

// Placement is Nowhere.
func (None) Placement() Placement { return Nowhere }

// Elected returns nothing: there is no election.
func (None) Elected(*corev1.Service, time.Time) Election { return Election{} }

// Named returns nothing: no node is named.
func (None) Named(*corev1.Service) (node, annotation string) { return "", "" }

// NeedsEndpoints returns nothing: what is not announced misses no endpoints.
func (None) NeedsEndpoints() string { return "" }

// Fixes says that no node is meant to answer.
func (None) Fixes(f Fault) []check.Fix {
	const note = "the controller is configured without load balancers, so no node announces addresses"
	if len(f.Carried) > 0 {
		return f.RemoveCarried("on this node: " + note)
	}
	return Advice(note)
}

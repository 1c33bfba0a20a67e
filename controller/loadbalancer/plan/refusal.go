package plan

import "github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"

// Refusal is the error of a Service for which nothing more is done until a person has acted.
type Refusal struct {
	// Reason is the reason of the condition BlockAssigned.
	Reason ipblock.Reason
	// Detail is a sentence for the user: what is refused, and what to do.
	Detail string
	// Reported is true when the Service has a condition with this reason and detail, and an event was sent when that
	// changed. Users need not be notified again.
	Reported bool
}

// Error is the sentence for the user.
func (r *Refusal) Error() string { return r.Detail }

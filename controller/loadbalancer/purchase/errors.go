package purchase

import (
	"errors"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
)

// ErrOutdated says that the object which holds the record changed since it was read, or is gone.
var ErrOutdated = errors.New("the record of the purchase changed meanwhile")

// Why a purchase waits, beside ipblock.PurchaseUnanswered.
const (
	// TagsFresh: the account's tags were created a moment ago and cannot be used yet.
	TagsFresh plan.Reason = "TagsFresh"
	// APIPaused: the API asked for a pause.
	APIPaused plan.Reason = "APIPaused"
)

// Pause says that nothing can be bought now, or that the outcome of the purchase is not known, and that
// trying again later is enough.
type Pause struct {
	// Reason is ipblock.PurchaseUnanswered, TagsFresh or APIPaused.
	Reason plan.Reason
	// After is when to try again.
	After time.Duration
	// Cause is what the API or the way to it said; nil when no request was sent.
	Cause error
}

// Error says what is waited for; it is constant for each reason.
func (p *Pause) Error() string {
	switch p.Reason {
	case TagsFresh:
		return "waiting for new tags to be usable"
	case APIPaused:
		return "waiting as long as the phoenixNAP API asks to"
	default:
		return "waiting to learn whether an IP block was bought"
	}
}

// Unwrap returns the cause.
func (p *Pause) Unwrap() error { return p.Cause }

// Refused says that nothing is bought until a person has acted.
type Refused struct {
	// Reason is ipblock.LocationNotOnSale or ipblock.PurchaseRefused.
	Reason plan.Reason
	// Detail is a sentence for the user.
	Detail string
}

// Error is the sentence for the user.
func (r *Refused) Error() string { return r.Detail }

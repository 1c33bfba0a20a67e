package purchase

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Why a purchase waits, beside plan.PurchaseUnanswered.
const (
	// TagsFresh: the account's tags were created a moment ago and cannot be used yet.
	TagsFresh ipblock.Reason = "TagsFresh"
	// APIPaused: the API asked for a pause; the message says, where known, until when.
	APIPaused ipblock.Reason = "APIPaused"
)

// Pause says that nothing can be bought now, or that the outcome of the purchase is not known, and that
// trying again later is enough.
type Pause struct {
	// Reason is plan.PurchaseUnanswered, TagsFresh or APIPaused.
	Reason ipblock.Reason
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
		return "waiting because the phoenixNAP API limits the request rate"
	default:
		return "waiting to learn whether an IP block was bought"
	}
}

// Unwrap returns the cause.
func (p *Pause) Unwrap() error { return p.Cause }

// Refused says that nothing is bought until a person has acted.
type Refused struct {
	// Reason is plan.LocationNotOnSale or plan.PurchaseRefused.
	Reason ipblock.Reason
	// Detail is a sentence for the user.
	Detail string
}

// Error is the sentence for the user.
func (r *Refused) Error() string { return r.Detail }

// remedy says what to do about a refused purchase.
func (o Order) remedy(failure *pnap.Error) string {
	size := fmt.Sprintf("the size (annotation %s or option ipBlockSize)", contract.ServiceIPBlockSize)
	switch {
	case o.Owner.Nodes != "":
		size = "the size (bring a block of another one, as an IPBlock with purpose Nodes)"
	case o.Owner.Pool != "": // the annotation of a Service does not size a block that others share
		size = "the size (option ipBlockSize)"
	}
	switch {
	case failure.StatusCode == http.StatusNotAcceptable: // "No IP Blocks available of provided cidr block size"
		return fmt.Sprintf("phoenixNAP has no IP block of size %s left in location %s: change %s, or use a public "+
			"network in another location", o.size(), o.Location, size)
	case failure.StatusCode == http.StatusBadRequest && aboutTags(failure):
		return "the controller makes the tags that are missing and tries again by itself; if this lasts, check that " +
			"the credentials have the scopes " + pnap.Scopes
	case failure.StatusCode == http.StatusBadRequest:
		return fmt.Sprintf("check %s, and %s", size, cmp.Or(o.LocationSource, "the location"))
	default:
		return pnap.Remedy(failure)
	}
}

// aboutTags reports whether the API complains about tags: of what else is in a request no complaint has that word.
func aboutTags(failure *pnap.Error) bool {
	said := strings.ToLower(strings.Join(append(failure.ValidationErrors, failure.Message), " "))
	return strings.Contains(said, "tag")
}

// A refused purchase is tried again after a pause that doubles with each refusal.
const (
	firstBackoff = time.Minute
	lastBackoff  = 16 * time.Minute
)

// refusal is a purchase that the API refused lately.
type refusal struct {
	// location and size that were tried; another purchase may succeed.
	location string
	size     ipblock.Size
	// until is when the pause ends.
	until time.Time
	// length of the pause; 0 for one that says itself when it ends.
	length time.Duration
	// answer is what a purchase gets to hear meanwhile.
	answer error
}

func (r refusal) about(order Order) bool {
	return r.location == order.Location && r.size == order.size()
}

// backingOff returns the error for a purchase that was rejected recently; nil when it may be tried.
func (b *Buyer) backingOff(order Order) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	last, known := b.refusals[order.subject()]
	left := last.until.Sub(b.config.Now())
	if !known || !last.about(order) || left <= 0 {
		return nil
	}
	var pause *Pause
	if errors.As(last.answer, &pause) {
		return &Pause{Reason: pause.Reason, After: left, Cause: pause.Cause}
	}
	return last.answer
}

// backOff makes the next purchase wait as long as the pause says, and returns the pause.
func (b *Buyer) backOff(order Order, pause *Pause) error {
	b.remember(order, refusal{until: b.config.Now().Add(pause.After), answer: pause})
	return pause
}

// backOffUnsent makes the next purchase wait for an interval, although the API said nothing: the record was written and
// taken back, which calls the caller's queue again at once.
func (b *Buyer) backOffUnsent(order Order, failure error) error {
	b.remember(order, refusal{until: b.config.Now().Add(b.config.Interval), answer: failure})
	return failure
}

// backOffLonger makes the next purchase wait for a time that doubles with each refusal, and returns the
// refusal with the given sentence.
func (b *Buyer) backOffLonger(order Order, detail string) error {
	b.mu.Lock()
	last := b.refusals[order.subject()]
	b.mu.Unlock()
	length := firstBackoff
	if last.about(order) {
		length = min(max(2*last.length, firstBackoff), lastBackoff)
	}
	refused := &Refused{Reason: ipblock.PurchaseRefused, Detail: detail}
	b.remember(order, refusal{until: b.config.Now().Add(length), length: length, answer: refused})
	return refused
}

func (b *Buyer) remember(order Order, r refusal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.config.Now()
	r.location = order.Location
	r.size = order.size()
	b.refusals[order.subject()] = r
	maps.DeleteFunc(b.refusals, func(_ string, old refusal) bool { return now.Sub(old.until) > lastBackoff })
}

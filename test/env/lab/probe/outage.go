package probe

import (
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/lab/wire"
)

// Outage is a stretch of time without an answer.
type Outage struct {
	// From is when the last attempt that was answered before began, To when the first that was answered after did;
	// zero when there was none.
	From, To time.Time
	// Failed counts the attempts in between.
	Failed int
}

// Duration is the length of the outage; 0 while it has no beginning or no end.
func (o Outage) Duration() time.Duration {
	if o.From.IsZero() || o.To.IsZero() {
		return 0
	}
	return o.To.Sub(o.From)
}

// Outages finds the stretches of failed attempts among attempts in the order of their beginning. What failed before
// the first answer counts too, with From zero.
func Outages(attempts []wire.Attempt) []Outage {
	var all []Outage
	var last time.Time
	failed := 0
	for _, a := range attempts {
		if !a.OK {
			failed++
			continue
		}
		if failed > 0 {
			all = append(all, Outage{From: last, To: a.At, Failed: failed})
		}
		last = a.At
		failed = 0
	}
	if failed > 0 {
		all = append(all, Outage{From: last, Failed: failed})
	}
	return all
}

package vip

import (
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

const (
	// leavingInterval is the time between samples of an address whose Service leaves, while agents announce: they stop
	// answering at once, and the controller waits, for 10 s at most, until no node reports an answer any more.
	leavingInterval = 500 * time.Millisecond
	// leavingPeriod is how long to sample that often.
	leavingPeriod = 20 * time.Second
)

// noteLeaving notes whether the address leaves while agents announce and this node reports an answer.
func (st *addressState) noteLeaving(s subject, view View, said contract.AddressState) {
	switch {
	case s.phase == published || view.Announcer != contract.AnnouncerAgent || said == "" ||
		said == contract.AddressSilent:
		st.leftAt = time.Time{}
	case st.leftAt.IsZero():
		st.leftAt = time.Now()
		st.nextLook = st.leftAt
		st.atWire = true
	}
}

// lookForEnd schedules another probe for the address of a Service that leaves, until it is confirmed that no machine
// answers.
func (st *addressState) lookForEnd(held result, now time.Time) {
	if st.leftAt.IsZero() || now.Sub(st.leftAt) > leavingPeriod || held.entry.State == contract.AddressSilent {
		return
	}
	if next := now.Add(leavingInterval); st.nextLook.IsZero() || next.Before(st.nextLook) {
		st.nextLook = next
		st.atWire = true
	}
}

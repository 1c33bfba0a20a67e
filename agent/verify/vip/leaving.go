package vip

import (
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

const (
	// leavingInterval is the time between looks at an address whose Service leaves, while agents announce: they cease to answer at
	// once, and the controller waits, for 10 s at most, until nobody says any more that somebody answers.
	leavingInterval = 500 * time.Millisecond
	// leavingPeriod is for how long to look that often.
	leavingPeriod = 20 * time.Second
)

// noteLeaving notes whether the address leaves while agents announce and this node says that somebody answers.
func (st *addressState) noteLeaving(s subject, view View, said contract.AddressState) {
	switch {
	case s.phase == published || view.Announcer != contract.AnnouncerAgent || said == "" || said == contract.AddressSilent:
		st.leftAt = time.Time{}
	case st.leftAt.IsZero():
		st.leftAt = time.Now()
		st.nextLook, st.atWire = st.leftAt, true
	}
}

// lookForEnd has the address of a Service that leaves asked for again soon, until it is believed that nobody answers.
func (st *addressState) lookForEnd(held result, now time.Time) {
	if st.leftAt.IsZero() || now.Sub(st.leftAt) > leavingPeriod || held.entry.State == contract.AddressSilent {
		return
	}
	if next := now.Add(leavingInterval); st.nextLook.IsZero() || next.Before(st.nextLook) {
		st.nextLook, st.atWire = next, true
	}
}

package sampler

import (
	"math"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/debounce"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

const (
	// wireSamples is how many bad samples in a row a wire check needs to fail.
	wireSamples = 2
	// recoverySamples is how many good samples in a row a check needs to recover.
	recoverySamples = 2
	// ReasonConfirming is the reason of a check that waits for a confirming sample.
	ReasonConfirming = "Confirming"
)

// dampener turns the reports of single samples into a stable one: what the kernel reports counts at once, what is
// missing on the wire only when it is missing twice, and a failure is over after two good samples. A check that flaps
// must be good for longer each time, so that a loose cable does not make a node join and leave all day: its state
// changes at most 60 times an hour.
type dampener map[check.ID]*dampened

// dampened is the state of one check.
type dampened struct {
	value debounce.Value[check.Finding]
	// failures are the confirmed ones.
	failures debounce.Failures
	// goodSince is when the current run of good samples started, zero after a bad one.
	goodSince time.Time
}

// Observe takes the report of a sample. again is when to take the next sample to confirm this one; zero when there is
// nothing to confirm.
func (d dampener) Observe(r check.Report, now time.Time) (report check.Report, again time.Duration) {
	findings := make([]check.Finding, len(r.Findings))
	for i, f := range r.Findings {
		state := d[f.ID]
		if state == nil {
			state = &dampened{}
			d[f.ID] = state
		}
		held, wait := state.observe(f, now)
		if findings[i] = held; wait > 0 && (again == 0 || wait < again) {
			again = wait
		}
	}
	r.Findings = findings
	return r, again
}

func (d *dampened) observe(f check.Finding, now time.Time) (held check.Finding, again time.Duration) {
	class := classOf(f.Status)
	before := d.value.Class()
	if isBad(class) {
		d.goodSince = time.Time{}
	} else if d.goodSince.IsZero() {
		d.goodSince = now
	}
	needed, again := needed(f, before), confirm
	if class == good && isBad(before) {
		if wait := d.failures.Hold(now) - now.Sub(d.goodSince); wait > 0 {
			needed = math.MaxInt
			again = max(wait, confirm)
		}
	}
	held, stable, waiting := d.value.Observe(f, class, needed)
	switch {
	case !stable:
		held = unconfirmed(f)
	case isBad(class) && isBad(d.value.Class()) && !isBad(before):
		d.failures.Note(now)
	default:
	}
	if !waiting {
		again = 0
	}
	return held, again
}

const (
	good    = "good"
	skipped = "skipped"
)

// classOf groups the good statuses, so that a warning that appears or disappears shows at once.
func classOf(status check.Status) string {
	switch status {
	case check.OK, check.Warn:
		return good
	case check.Skip:
		return skipped
	default:
		return string(status)
	}
}

func isBad(class string) bool { return class != "" && class != good && class != skipped }

func needed(f check.Finding, held string) int {
	switch classOf(f.Status) {
	case skipped:
		return 1
	case good:
		if held == "" || held == skipped {
			return 1
		}
		return recoverySamples
	default:
		if f.Wire {
			return wireSamples
		}
		return 1
	}
}

func unconfirmed(f check.Finding) check.Finding {
	f.Status = check.Unknown
	f.Reason = ReasonConfirming
	f.Cause = "not confirmed yet: " + f.Cause
	return f
}

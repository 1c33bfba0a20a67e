package monitor

import (
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/steady"
)

const (
	// wireSamples is how many bad samples in a row it takes to believe bad news from the wire.
	wireSamples = 2
	// recoverySamples is how many good samples in a row it takes to believe that a failure is over.
	recoverySamples = 2
	// ReasonConfirming is the reason of a check that waits for the sample that confirms it.
	ReasonConfirming = "Confirming"
)

// Damper turns the reports of single samples into one that holds: what the kernel says of itself is believed at once, what
// is missing on the wire only when it is missing twice, and a failure is over after two good samples.
type Damper struct {
	checks map[check.ID]*steady.Value[check.Finding]
}

// NewDamper returns a damper that has seen nothing.
func NewDamper() *Damper { return &Damper{checks: map[check.ID]*steady.Value[check.Finding]{}} }

// Observe takes the report of a sample. pending tells that the next sample should come soon, to confirm this one.
func (d *Damper) Observe(r check.Report) (damped check.Report, pending bool) {
	findings := make([]check.Finding, len(r.Findings))
	for i, f := range r.Findings {
		value := d.checks[f.ID]
		if value == nil {
			value = &steady.Value[check.Finding]{}
			d.checks[f.ID] = value
		}
		class := classOf(f.Status)
		held, settled, waiting := value.Observe(f, class, needed(f, value.Class()))
		if !settled {
			held = unconfirmed(f)
		}
		findings[i], pending = held, pending || waiting
	}
	r.Findings = findings
	return r, pending
}

const (
	good    = "good"
	skipped = "skipped"
)

// classOf puts good news together, so that a warning that comes or goes shows at once.
func classOf(status check.Status) string {
	switch status {
	case check.OK, check.Warn:
		return good
	case check.Skip:
		return skipped
	case check.Unknown, check.Fail:
		return string(status)
	default:
		return string(status)
	}
}

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
	f.Status, f.Reason = check.Unknown, ReasonConfirming
	f.Cause = "not confirmed yet: " + f.Cause
	return f
}

package diagnose

import (
	"context"
	"fmt"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

// Watcher diagnoses periodically, and shows a diagnosis that differs from the last.
type Watcher struct {
	// Interval is the time between diagnoses when nothing changes.
	Interval time.Duration
	// Changed requests a diagnosis at once; nil when nothing does.
	Changed loop.Wake
	// Look diagnoses once.
	Look func(context.Context) (Document, error)
	// Show receives a diagnosis that differs from the last, and how; the first differs in nothing.
	Show func(d Document, changes []string) error
}

// Run watches until ctx ends and returns the last diagnosis. What was cut short by the end of ctx does not count.
func (w Watcher) Run(ctx context.Context) (last Document, err error) {
	for first := true; ; first = false {
		now, err := w.Look(ctx)
		switch {
		case ctx.Err() != nil:
			return last, nil //nolint:nilerr // an interrupted diagnosis proves nothing
		case err != nil:
			return last, err
		}
		if changes := Changes(last, now); first || len(changes) > 0 {
			if first {
				changes = nil
			}
			if err := w.Show(now, changes); err != nil {
				return now, err
			}
		}
		last = now
		if w.Changed.Wait(ctx, w.Interval) == loop.Ended {
			return last, nil
		}
	}
}

// Changes lists what differs between two diagnoses. Evidence, such as a round-trip time, does not count as a
// difference.
func Changes(before, after Document) []string {
	var lines []string
	if before.Network != after.Network {
		lines = append(lines, "the network is now "+after.Network)
	}
	if (before.APIServer == "") != (after.APIServer == "") {
		lines = append(lines, map[bool]string{true: "the API server is reached",
			false: "the API server is not reached"}[after.APIServer == ""])
	}
	was := map[string]check.Finding{}
	for _, f := range before.Findings {
		was[key(f)] = f
	}
	is := map[string]bool{}
	for _, f := range after.Findings {
		is[key(f)] = true
		old, ok := was[key(f)]
		if !ok {
			old.Status = "new"
		}
		if !ok || old.Status != f.Status || old.Reason != f.Reason || old.Cause != f.Cause ||
			old.Because != f.Because {
			lines = append(lines, change(old, f))
		}
	}
	for _, f := range before.Findings {
		if !is[key(f)] {
			lines = append(lines, fmt.Sprintf("%s gone: %s", f.ID, f.Title))
		}
	}
	return lines
}

// key identifies a finding: those of addresses share an ID.
func key(f check.Finding) string { return string(f.ID) + " " + f.Title }

func change(old, f check.Finding) string {
	text := fmt.Sprintf("%s %s -> %s", f.ID, old.Status, f.Status)
	if f.Cause != "" {
		text += ": " + f.Cause
	}
	return text
}

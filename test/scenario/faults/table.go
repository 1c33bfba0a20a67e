//go:build linux

package faults

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Limits of the times from a fault to its report, and from its repair to the end of the report.
const (
	// EventLimit holds where the kernel sends an event.
	EventLimit = 2 * time.Second
	// LookLimit holds where the agent has to look by itself.
	LookLimit = 30 * time.Second
	// MinFaults is how many faults a full run makes at least.
	MinFaults = 25
)

// line is a row of the table.
func line(r Result) string {
	verdict := "found"
	if r.Err != nil {
		verdict = "FAILED: " + strings.ReplaceAll(r.Err.Error(), "\n", "; ")
	}
	how := "looks"
	if r.Event {
		how = "event"
	}
	return fmt.Sprintf("%-52s %-5s %-23s %-9s %-5s %s %s %s  %s", r.Name, r.ID, r.Reason, r.Told, how,
		seconds(r.Seen), seconds(r.Named), seconds(r.Mended), verdict)
}

func seconds(d time.Duration) string {
	if d == 0 {
		return "     –"
	}
	return fmt.Sprintf("%6.2f", d.Seconds())
}

// header names the columns of the table.
func header() string {
	return fmt.Sprintf("%-52s %-5s %-23s %-9s %-5s %6s %6s %6s", "fault", "first", "reason", "told by", "how", "seen",
		"named", "mended") +
		"\n" + strings.Repeat("-", 120)
}

// Report prints the table in the order of the layers and the figures.
func Report(out io.Writer, all []Fault, results []Result) {
	fmt.Fprintf(out, "\n%s\n", header())
	for _, f := range all {
		for _, r := range results {
			if r.Name == f.Name {
				fmt.Fprintln(out, line(r))
			}
		}
	}
	fmt.Fprintf(out,
		"\nseen, named, mended: seconds from the command that makes the fault until the node is no longer called "+
			"well,\nuntil the right first cause is told, and from the command that mends it until the node is called "+
			"well again.\n\n")
	s := sum(results)
	fmt.Fprintf(out, "figure faults_made %d faults\n", s.made)
	fmt.Fprintf(out, "figure faults_found_as_first_cause %d faults\n", s.found)
	for _, d := range s.durations() {
		fmt.Fprintf(out, "figure %s %.2f s\n", d.name, d.value.Seconds())
	}
}

// summary are the figures of a run.
type summary struct {
	made, found                int
	seen, mended               time.Duration
	seenByEvent, mendedByEvent time.Duration
	membership                 time.Duration
}

func sum(results []Result) summary {
	s := summary{made: len(results)}
	for _, r := range results {
		if r.Found {
			s.found++
		}
		switch {
		case r.Slow:
			// The agent sees it by itself; the cause is named when the controller has learned it from the API.
			s.seen, s.membership = max(s.seen, r.Seen), max(s.membership, r.Named)
			s.mended = max(s.mended, r.Mended)
		case r.Event:
			s.seenByEvent, s.mendedByEvent = max(s.seenByEvent, r.Seen), max(s.mendedByEvent, r.Mended)
			s.seen, s.mended = max(s.seen, r.Seen), max(s.mended, r.Mended)
		default:
			s.seen, s.mended = max(s.seen, r.Seen), max(s.mended, r.Mended)
		}
	}
	return s
}

// duration is a figure with its limit.
type duration struct {
	name         string
	value, limit time.Duration
}

func (s summary) durations() []duration {
	return []duration{
		{"fault_to_condition_max", s.seen, LookLimit},
		{"fault_to_condition_event_max", s.seenByEvent, EventLimit},
		{"mended_to_condition_max", s.mended, LookLimit},
		{"mended_to_condition_event_max", s.mendedByEvent, EventLimit},
		{"lost_membership_named_after", s.membership, LookLimit},
	}
}

// Missed are the faults that were not found as the first cause, or whose end was not seen.
func Missed(results []Result) error {
	var errs []error
	for _, r := range results {
		if r.Err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.Name, r.Err))
		}
	}
	return errors.Join(errs...)
}

// Late are the figures beyond their limits.
func Late(results []Result) error {
	s := sum(results)
	var errs []error
	if s.made < MinFaults {
		errs = append(errs, fmt.Errorf("%d faults were made, want at least %d", s.made, MinFaults))
	}
	for _, d := range s.durations() {
		if d.value > d.limit {
			errs = append(errs, fmt.Errorf("%s is %.2f s, more than %s", d.name, d.value.Seconds(), d.limit))
		}
	}
	return errors.Join(errs...)
}

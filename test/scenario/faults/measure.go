//go:build linux

package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	// patience is how long a fault, or its repair, is waited for: beyond the limit, so that the table shows how late it
	// was.
	patience = 60 * time.Second
	// slowPatience is for what the controller has to find out first: its window is 30 s.
	slowPatience = 100 * time.Second
)

// Result is what came of one fault.
type Result struct {
	Fault
	Server string
	// Seen is the time from the fault until the node was no longer reported healthy; Named until the right first cause
	// was.
	Seen, Named time.Duration
	// Repaired is the time from the repair until the node was reported healthy again.
	Repaired time.Duration
	// Err is what went wrong; nil when the fault was found as the first cause and its end was seen.
	Err error
	// Found reports that the fault was found as the first cause.
	Found bool
}

// trial makes one fault at a site and repairs it.
type trial struct {
	*site
	watcher *watcher
}

func (t *trial) run(ctx context.Context, f Fault) Result {
	r := Result{Fault: f, Server: t.server.Name}
	if err := t.healthy(ctx, patience); err != nil {
		r.Err = fmt.Errorf("before the fault: %w", err)
		return r
	}
	begun := time.Now()
	if err := t.do(ctx, f.Make); err != nil {
		r.Err = fmt.Errorf("make the fault: %w", err)
	} else if err := t.find(ctx, f, begun, &r); err != nil {
		r.Err = fmt.Errorf("find the fault: %w", err)
	} else {
		r.Found = true
	}
	r.Err = errors.Join(r.Err, t.repair(ctx, f, &r))
	return r
}

// find waits until the fault is reported as the first cause.
func (t *trial) find(ctx context.Context, f Fault, begun time.Time, r *Result) error {
	limit := patience
	if f.Slow {
		limit = slowPatience
	}
	if f.channel() == "condition" {
		return t.findInCondition(ctx, f, begun, limit, r)
	}
	if f.Warns || f.Fails {
		if err := t.awaitStatus(ctx, f.ID, f.status(), limit); err != nil {
			return err
		}
		r.Seen = time.Since(begun)
	}
	first, err := t.diagnose(ctx, f.flags()...)
	if err != nil {
		return err
	}
	r.Named = time.Since(begun)
	if r.Seen == 0 {
		r.Seen = r.Named
	}
	if first.ID != f.ID || first.Reason != f.Reason {
		return fmt.Errorf("want %s %s as the first cause, diagnose reports %s", f.ID, f.Reason, describe(first))
	}
	return nil
}

func (t *trial) findInCondition(ctx context.Context, f Fault, begun time.Time, limit time.Duration, r *Result) error {
	name := t.server.Name
	seen, err := t.watcher.await(ctx, name, limit, func(c condition) bool { return !isReady(c) })
	if err != nil {
		return err
	}
	named, err := t.watcher.await(ctx, name, limit,
		func(c condition) bool { return c.firstCause() == f.ID && c.reason == f.Reason })
	if err != nil {
		return fmt.Errorf("want %s %s as the first cause: %w", f.ID, f.Reason, err)
	}
	r.Seen = seen.Sub(begun)
	r.Named = named.Sub(begun)
	return nil
}

// repair ends the fault and waits until the node is reported healthy.
func (t *trial) repair(ctx context.Context, f Fault, r *Result) error {
	begun := time.Now()
	if err := t.do(ctx, f.Repair); err != nil {
		return fmt.Errorf("repair: %w", err)
	}
	switch f.channel() {
	case "condition":
		ready, err := t.watcher.await(ctx, t.server.Name, slowPatience, isReady)
		if err != nil {
			return fmt.Errorf("after the repair: %w", err)
		}
		r.Repaired = ready.Sub(begun)
	case "metric":
		if err := t.awaitHealthy(ctx, slowPatience); err != nil {
			return fmt.Errorf("after the repair: %w", err)
		}
		r.Repaired = time.Since(begun)
	default:
		first, err := t.diagnose(ctx, f.flags()...)
		if err != nil || first.ID != "" {
			return errors.Join(err, fmt.Errorf("after the repair diagnose reports %s", describe(first)))
		}
		r.Repaired = time.Since(begun)
	}
	return nil
}

// healthy waits until the server's condition is True and none of its checks reports anything.
func (t *trial) healthy(ctx context.Context, within time.Duration) error {
	if _, err := t.watcher.await(ctx, t.server.Name, within, isReady); err != nil {
		return err
	}
	return t.awaitHealthy(ctx, within)
}

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
	result := "found"
	if r.Err != nil {
		result = "FAILED: " + strings.ReplaceAll(r.Err.Error(), "\n", "; ")
	}
	how := "looks"
	if r.Event {
		how = "event"
	}
	return fmt.Sprintf("%-52s %-5s %-23s %-9s %-5s %s %s %s  %s", r.Name, r.ID, r.Reason, r.channel(), how,
		seconds(r.Seen), seconds(r.Named), seconds(r.Repaired), result)
}

func seconds(d time.Duration) string {
	if d == 0 {
		return "     –"
	}
	return fmt.Sprintf("%6.2f", d.Seconds())
}

// Report prints the table in the order of the layers and the figures.
func Report(out io.Writer, all []Fault, results []Result) {
	fmt.Fprintf(out, "\n%-52s %-5s %-23s %-9s %-5s %6s %6s %6s\n%s\n", "fault", "first", "reason", "found by", "how",
		"seen", "named", "fixed", strings.Repeat("-", 120))
	for _, f := range all {
		for _, r := range results {
			if r.Name == f.Name {
				fmt.Fprintln(out, line(r))
			}
		}
	}
	fmt.Fprintf(out,
		"\nseen, named, fixed: seconds from the command that makes the fault until the node is no longer reported "+
			"healthy,\nuntil the right first cause is, and from the command that repairs it until the node is "+
			"reported healthy again.\n\n")
	s := sum(results)
	fmt.Fprintf(out, "figure faults_made %d faults\n", s.made)
	fmt.Fprintf(out, "figure faults_found_as_first_cause %d faults\n", s.found)
	for _, d := range s.durations() {
		fmt.Fprintf(out, "figure %s %.2f s\n", d.name, d.value.Seconds())
	}
}

// summary are the figures of a run.
type summary struct {
	made, found                  int
	seen, repaired               time.Duration
	seenByEvent, repairedByEvent time.Duration
	membership                   time.Duration
}

func sum(results []Result) summary {
	s := summary{made: len(results)}
	for _, r := range results {
		if r.Found {
			s.found++
		}
		s.seen = max(s.seen, r.Seen)
		s.repaired = max(s.repaired, r.Repaired)
		switch {
		case r.Slow:
			// The agent sees it by itself; the cause is named when the controller has learned it from the API.
			s.membership = max(s.membership, r.Named)
		case r.Event:
			s.seenByEvent = max(s.seenByEvent, r.Seen)
			s.repairedByEvent = max(s.repairedByEvent, r.Repaired)
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
		{"mended_to_condition_max", s.repaired, LookLimit},
		{"mended_to_condition_event_max", s.repairedByEvent, EventLimit},
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

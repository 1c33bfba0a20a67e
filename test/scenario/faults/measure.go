//go:build linux

package faults

import (
	"context"
	"errors"
	"fmt"
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
	// Mended is the time from the repair until the node was reported healthy again.
	Mended time.Duration
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
	if err := t.well(ctx, patience); err != nil {
		r.Err = fmt.Errorf("before the fault: %w", err)
		return r
	}
	begun := time.Now()
	if err := f.make(ctx, t.site); err != nil {
		r.Err = fmt.Errorf("make the fault: %w", err)
	} else if err := t.find(ctx, f, begun, &r); err != nil {
		r.Err = fmt.Errorf("find the fault: %w", err)
	} else {
		r.Found = true
	}
	r.Err = errors.Join(r.Err, t.mend(ctx, f, &r))
	return r
}

// find waits until the fault is reported as the first cause.
func (t *trial) find(ctx context.Context, f Fault, begun time.Time, r *Result) error {
	limit := patience
	if f.Slow {
		limit = slowPatience
	}
	switch f.Told {
	case ByCondition:
		return t.findInCondition(ctx, f, begun, limit, r)
	case ByMetric:
		if err := t.awaitStatus(ctx, f.ID, f.Status, limit); err != nil {
			return err
		}
		r.Seen = time.Since(begun)
	case ByDiagnosis:
	}
	first, err := t.diagnose(ctx, f.Flags...)
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
	seen, err := t.watcher.await(ctx, name, limit, func(c told) bool { return !isReady(c) })
	if err != nil {
		return err
	}
	named, err := t.watcher.await(ctx, name, limit,
		func(c told) bool { return c.firstCause() == f.ID && c.reason == f.Reason })
	if err != nil {
		return fmt.Errorf("want %s %s as the first cause: %w", f.ID, f.Reason, err)
	}
	r.Seen = seen.Sub(begun)
	r.Named = named.Sub(begun)
	return nil
}

// mend ends the fault and waits until the node is reported healthy.
func (t *trial) mend(ctx context.Context, f Fault, r *Result) error {
	begun := time.Now()
	if err := f.mend(ctx, t.site); err != nil {
		return fmt.Errorf("repair: %w", err)
	}
	switch f.Told {
	case ByCondition:
		ready, err := t.watcher.await(ctx, t.server.Name, slowPatience, isReady)
		if err != nil {
			return fmt.Errorf("after the repair: %w", err)
		}
		r.Mended = ready.Sub(begun)
	case ByMetric:
		if err := t.awaitHealthy(ctx, slowPatience); err != nil {
			return fmt.Errorf("after the repair: %w", err)
		}
		r.Mended = time.Since(begun)
	case ByDiagnosis:
		first, err := t.diagnose(ctx, f.Flags...)
		if err != nil || first.ID != "" {
			return errors.Join(err, fmt.Errorf("after the repair diagnose reports %s", describe(first)))
		}
		r.Mended = time.Since(begun)
	}
	return nil
}

// well waits until the server's condition is True and none of its checks reports anything.
func (t *trial) well(ctx context.Context, within time.Duration) error {
	if _, err := t.watcher.await(ctx, t.server.Name, within, isReady); err != nil {
		return err
	}
	return t.awaitHealthy(ctx, within)
}

//go:build linux

package failover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/command"
)

const (
	// most is how long a failover may take to be one.
	most = 60 * time.Second
	// calm is for how long the client must be answered without a gap before a fault is made, and after it.
	calm = time.Second
	// calmLimit bounds the wait for calm after a start.
	calmLimit = 90 * time.Second
	// stayFor is how long an address is watched that must stay where it is.
	stayFor = 5 * time.Second
	// twoMost is how long it is watched whether two machines answer.
	twoMost = 30 * time.Second
	// wakeAfter is when a stopped announcer continues, counted from the takeover, and how long it is watched then.
	wakeAfter = 2 * time.Second
)

// result is what one fault cost.
type result struct {
	outage    time.Duration
	recovered bool
	two       time.Duration
	// broken is how many of the client's TCP connections broke.
	broken int
	moves
	// silent is the longest time for which a machine that asks for the address (ARP) got no answer.
	silent time.Duration
}

// bench is everything that measures.
type bench struct {
	segment *segment
	prober  *prober
	witness *witness
	out     io.Writer
}

// repeat makes a fault a number of times.
func (b *bench) repeat(ctx context.Context, f *fleet, fa fault, times int) ([]result, error) {
	var results []result
	for n := range times {
		r, err := b.once(ctx, f, fa)
		if err != nil {
			return results, fmt.Errorf("%s, %s, repetition %d: %w", f.candidate.name, fa.name, n+1, err)
		}
		fmt.Fprintf(b.out, "%s, %s (%d of %d): %s\n", f.candidate.name, fa.what, n+1, times, r)
		results = append(results, r)
	}
	return results, nil
}

func (r result) String() string {
	text := fmt.Sprintf("%d ms without an answer", r.outage.Milliseconds())
	if !r.recovered {
		text = "the address does not answer where it should"
	}
	text += fmt.Sprintf(", %d of %d connections broke", r.broken, connectionCount)
	if r.two > 0 {
		text += fmt.Sprintf(", two machines answered for %.1f s", r.two.Seconds())
	}
	return text
}

// once restarts everything, makes the fault and watches what follows.
func (b *bench) once(ctx context.Context, f *fleet, fa fault) (r result, err error) {
	defer func() {
		err = errors.Join(err, f.stop(context.WithoutCancel(ctx)))
		for i := range b.segment.nodes {
			err = errors.Join(err, b.segment.cut(i, false))
		}
	}()
	if err := f.start(); err != nil {
		return r, err
	}
	holder, err := b.awaitCalm(ctx, f)
	if err != nil {
		return r, err
	}
	open, err := connect(ctx, b.segment.client)
	if err != nil {
		return r, err
	}
	defer open.close()
	before, err := f.moves()
	if err != nil {
		return r, err
	}
	at := time.Now()
	if err := fa.make(ctx, b.segment, f, holder); err != nil {
		return r, err
	}
	if fa.stays {
		r.recovered, err = b.remain(ctx, at, holder)
	} else {
		r.recovered, err = b.recover(ctx, at, holder)
	}
	if err != nil {
		return r, err
	}
	r.broken = open.broken()
	r.silent = b.witness.silent(at)
	after, err := f.moves()
	if err != nil {
		return r, err
	}
	r.moves = moves{after.takeovers - before.takeovers, after.lapses - before.lapses}
	if r.recovered {
		r.outage = outage(b.prober.since(at.Add(-calm)))
	}
	if fa.twoAnswer {
		r.two, err = b.watchTwo(ctx, f, fa, holder, at)
	}
	return r, err
}

// awaitCalm waits until one node answers and all take part; it returns that node.
func (b *bench) awaitCalm(ctx context.Context, f *fleet) (holder int, err error) {
	b.prober.forget()
	begun := time.Now()
	for time.Since(begun) < calmLimit {
		if err := command.Pause(ctx, 50*time.Millisecond); err != nil {
			return 0, err
		}
		requests := b.prober.since(begun)
		mac, sole := b.witness.sole(time.Now().Add(-calm))
		if !steady(requests, calm, -1) || !sole || f.candidate.complete != nil && !f.candidate.complete(ctx) {
			continue
		}
		// The gateway may still send to a node that announced the address before.
		if node := requests[len(requests)-1].node; mac == b.segment.macs[node] {
			return node, nil
		}
	}
	return 0, fmt.Errorf("the address does not answer calmly within %s of the start; see the logs", calmLimit)
}

// recover waits until another node answers.
func (b *bench) recover(ctx context.Context, at time.Time, holder int) (bool, error) {
	for time.Since(at) < most {
		if err := command.Pause(ctx, 50*time.Millisecond); err != nil {
			return false, err
		}
		if steady(b.prober.since(at), calm, holder) {
			return true, nil
		}
	}
	return false, nil
}

// remain reports whether the same node answers long after it could have lost the address.
func (b *bench) remain(ctx context.Context, at time.Time, holder int) (bool, error) {
	if err := command.Pause(ctx, stayFor); err != nil {
		return false, err
	}
	requests := b.prober.since(at)
	return steady(requests, calm, -1) && requests[len(requests)-1].node == holder, nil
}

// watchTwo watches whether two machines answer; what was stopped continues meanwhile.
func (b *bench) watchTwo(ctx context.Context, f *fleet, fa fault, holder int, at time.Time) (time.Duration, error) {
	if err := command.Pause(ctx, wakeAfter); err != nil {
		return 0, err
	}
	rest := wakeAfter
	switch two := b.witness.twoAnswered(at); {
	case two > 0:
		// It does not matter what happens when it wakes up: until then nothing ends it.
		rest = time.Until(at.Add(twoMost))
	case !fa.wakes:
		return 0, nil
	default:
		if err := f.signal(holder, syscall.SIGCONT); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return 0, err
		}
	}
	err := command.Pause(ctx, rest)
	return b.witness.twoAnswered(at), err
}

// figures are the lines of one candidate and one fault.
func figures(candidate string, fa fault, results []result) (lines []string, median float64) {
	var outages []float64
	var two time.Duration
	broken := 0
	takeovers := 0
	lapses := 0
	var silent time.Duration
	for _, r := range results {
		broken = max(broken, r.broken)
		takeovers += r.takeovers
		lapses += r.lapses
		silent = max(silent, r.silent)
		if r.recovered {
			outages = append(outages, float64(r.outage.Microseconds())/1000)
		}
		two = max(two, r.two)
	}
	name := "figure failover_" + candidate + "_" + fa.name
	lines = append(lines, fmt.Sprintf("%s_recovered %d of %d", name, len(outages), len(results)))
	if len(outages) > 0 {
		slices.Sort(outages)
		median = (outages[(len(outages)-1)/2] + outages[len(outages)/2]) / 2
		lines = append(lines, fmt.Sprintf("%s_median %.0f ms", name, median),
			fmt.Sprintf("%s_max %.0f ms", name, outages[len(outages)-1]))
	}
	if fa.stays {
		lines = append(lines, fmt.Sprintf("%s_needless_takeovers %d takeovers", name, takeovers),
			fmt.Sprintf("%s_leases_lost %d leases", name, lapses),
			fmt.Sprintf("%s_silent_max %d ms", name, silent.Milliseconds()))
	}
	lines = append(lines, fmt.Sprintf("%s_connections_broken %d of %d", name, broken, connectionCount))
	if fa.twoAnswer {
		lines = append(lines, fmt.Sprintf("%s_two_answered_max %.1f s", name, two.Seconds()))
	}
	return lines, median
}

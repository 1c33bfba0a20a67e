package demo

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// width is where the lines of the story break.
const width = 100

// presenter presents the story: it runs the steps one after the other, with times, and remembers what was measured.
type presenter struct {
	out     io.Writer
	begun   time.Time
	steps   []stepResult
	figures []string // lines
}

// stepResult is a step that was run.
type stepResult struct {
	title string
	took  time.Duration
	err   error
}

func newPresenter(out io.Writer) *presenter { return &presenter{out: out, begun: time.Now()} }

// step runs one step and reports it.
func (p *presenter) step(ctx context.Context, title string, run func(context.Context) error) error {
	fmt.Fprintf(p.out, "\n[%6.1f s] %d. %s\n", time.Since(p.begun).Seconds(), len(p.steps)+1, title)
	started := time.Now()
	err := run(ctx)
	if err == nil {
		err = ctx.Err()
	}
	p.steps = append(p.steps, stepResult{title: title, took: time.Since(started), err: err})
	if err != nil {
		fmt.Fprintf(p.out, "           FAILED: %v\n", err)
		return fmt.Errorf("step %d (%s): %w", len(p.steps), title, err)
	}
	return nil
}

// say prints a detail of the running step.
func (p *presenter) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	for line := range strings.Lines(text) {
		fmt.Fprintf(p.out, "           %s\n", strings.TrimRight(line, "\n"))
	}
}

// quote shows what a program printed.
func (p *presenter) quote(text string) {
	for line := range strings.Lines(strings.TrimRight(text, "\n") + "\n") {
		fmt.Fprintf(p.out, "           | %s\n", strings.TrimRight(line, "\n"))
	}
}

// seconds remembers a measured duration.
func (p *presenter) seconds(name string, d time.Duration) {
	p.figures = append(p.figures, fmt.Sprintf("figure %s %.2f s", name, d.Seconds()))
}

// count remembers a measured number.
func (p *presenter) count(name string, n int, unit string) {
	p.figures = append(p.figures, fmt.Sprintf("figure %s %d %s", name, n, unit))
}

// summary prints the table of steps and the figures, each as a line of its own.
func (p *presenter) summary() {
	fmt.Fprintf(p.out, "\n%s\n", strings.Repeat("=", width))
	passed := 0
	for i, s := range p.steps {
		outcome := "FAILED"
		if s.err == nil {
			outcome = "ok"
			passed++
		}
		fmt.Fprintf(p.out, "%3d  %-80.80s %6.1f s  %s\n", i+1, s.title, s.took.Seconds(), outcome)
	}
	fmt.Fprintf(p.out, "%s\n", strings.Repeat("=", width))
	p.count("demo_steps_passed", passed, "steps")
	p.seconds("demo_seconds", time.Since(p.begun))
	for _, line := range p.figures {
		fmt.Fprintln(p.out, line)
	}
}

// poll is how often the story looks again.
const poll = 200 * time.Millisecond

// patience is how long the story waits for what takes seconds on a machine that does nothing else.
const patience = 3 * time.Minute

// until polls until look reports true, and returns when that was. What look last saw goes into the
// error when the time is over.
func until(ctx context.Context, limit time.Duration, what string,
	look func(context.Context) (ok bool, seen string, err error)) (time.Time, error) {
	last := "nothing yet"
	err := wait.PollUntilContextTimeout(ctx, poll, limit, true, func(polling context.Context) (bool, error) {
		ok, seen, err := look(polling)
		switch {
		case err != nil && polling.Err() == nil:
			last = err.Error()
		case err == nil && !ok:
			last = seen
		}
		return err == nil && ok, nil
	})
	switch {
	case err == nil:
		return time.Now(), nil
	case ctx.Err() != nil:
		return time.Time{}, fmt.Errorf("%s: %w", what, context.Cause(ctx))
	default:
		return time.Time{}, fmt.Errorf("%s: not within %s; last seen: %s", what, limit, last)
	}
}

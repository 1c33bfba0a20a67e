package mutants

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
)

// Options are what to try.
type Options struct {
	// Root of the repository.
	Root string
	// Kept tries the mutations of the list.
	Kept bool
	// Generated is how many generated mutations to try of each target.
	Generated int
	// Only restricts the files; nil means all.
	Only *regexp.Regexp
}

// ErrUnexplained means that a mutation survived without a reason, or a reason is out of date.
var ErrUnexplained = errors.New("a surviving mutation has no reason in test/repo/mutants/survivors.yaml, " +
	"or one that has a reason was detected")

// Run tries mutations one after the other and prints what became of each, and figures.
func Run(ctx context.Context, out io.Writer, o Options) error {
	list, err := choose(o)
	if err != nil {
		return err
	}
	known, err := reasons()
	if err != nil {
		return err
	}
	r := report{out: out, reasons: known}
	for _, m := range list {
		began := time.Now()
		outcome, by, err := Try(ctx, o.Root, m)
		if err != nil {
			return err
		}
		r.add(m, outcome, by, time.Since(began))
	}
	return r.end()
}

// choose returns the mutations to try.
func choose(o Options) ([]Mutation, error) {
	var all, chosen []Mutation
	if o.Kept {
		kept, err := Kept()
		if err != nil {
			return nil, err
		}
		all = kept
	}
	generated, err := Generate(o.Root, o.Generated)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, m := range append(all, generated...) {
		if !seen[m.key()] && (o.Only == nil || o.Only.MatchString(m.File)) {
			chosen = append(chosen, m)
		}
		seen[m.key()] = true
	}
	return chosen, nil
}

func reasons() (map[string]string, error) {
	list, err := Survivors()
	known := map[string]string{}
	for _, m := range list {
		known[m.key()] = m.Why
	}
	return known, err
}

type report struct {
	out     io.Writer
	reasons map[string]string
	// all counts the mutations, announcer those of how the agents announce addresses.
	all, announcer tally
	wrong          bool
}

type tally struct{ tried, survived int }

func (t *tally) add(outcome Outcome) {
	t.tried++
	if outcome == Survived {
		t.survived++
	}
}

func (r *report) add(m Mutation, outcome Outcome, by string, took time.Duration) {
	reason, known := r.reasons[m.key()]
	r.print("%s by %s in %.0fs: %s\n", outcome, by, took.Seconds(), m)
	switch outcome {
	case Invalid:
		return
	case Survived:
		if r.wrong = r.wrong || !known; known {
			r.print("  %s\n", reason)
		} else {
			r.print("  NO REASON; %s\n", m.Why)
		}
	case Killed:
		if r.wrong = r.wrong || known; known {
			r.print("  DETECTED, although survivors.yaml has it\n")
		}
	}
	r.all.add(outcome)
	if strings.HasPrefix(m.File, announcerFiles) {
		r.announcer.add(outcome)
	}
}

// announcerFiles are where the agents agree on who announces an address.
const announcerFiles = "agent/announce/"

func (r *report) end() error {
	r.print("figure announcer_mutants_tried %d mutations\nfigure announcer_mutants_survived %d mutations\n",
		r.announcer.tried, r.announcer.survived)
	r.print("figure mutants_tried %d mutations\nfigure mutants_survived %d mutations\n", r.all.tried, r.all.survived)
	if r.wrong {
		return ErrUnexplained
	}
	return nil
}

func (r *report) print(format string, args ...any) {
	_, _ = fmt.Fprintf(r.out, format, args...) // standard output; the exit code reports the result
}

// Package sampler takes samples of the node, at once when the kernel reports a change and otherwise at intervals, and
// reports the stable result.
package sampler

import (
	"cmp"
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/netstate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/arp"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

const (
	// eventDebounce gathers the burst of events that one change of the network makes.
	eventDebounce = 100 * time.Millisecond
	// minInterval is the minimum time between samples that are caused by events: a node whose pods come and go all
	// the time is not sampled all the time.
	minInterval = 500 * time.Millisecond
	// confirm is the pause before a confirming sample.
	confirm = 500 * time.Millisecond
	// wireAge is how long ARP answers are used for samples caused by events: on a busy node the gateway need not be
	// probed for each of them.
	wireAge = 5 * time.Second
)

// Sample is the current state of the node.
type Sample struct {
	// Report is dampened, see dampener.
	Report check.Report
	// Snapshot is that of the last sample.
	Snapshot check.Snapshot
	// Expected is what the sample was compared with.
	Expected check.Expected
}

// Config configures a Sampler.
type Config struct {
	Reader Reader
	Prober Prober
	// Expected returns what to expect now.
	Expected func() check.Expected
	// Watch calls changed when it has subscribed and at each change that the kernel reports, until ctx ends.
	Watch func(ctx context.Context, changed func()) error
	// Interval is the time between samples without an event.
	Interval time.Duration
	// Record receives each sample; it must not block.
	Record func(Sample)
	// Signals asks for a sample soon, as Changed does; nil for one that only the Sampler knows.
	Signals loop.Wake
}

// Sampler takes samples.
type Sampler struct {
	Config
	wake     loop.Wake
	dampener dampener
	wire     wireMemory
}

// New returns a Sampler; it starts nothing.
func New(config Config) *Sampler {
	return &Sampler{Config: config, wake: cmp.Or(config.Signals, loop.NewWake()), dampener: dampener{}}
}

// Changed requests a sample soon, because the state or the expected state has changed.
func (s *Sampler) Changed() { s.wake.Signal() }

// Run takes samples until ctx ends.
func (s *Sampler) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return netstate.Follow(ctx, s.Watch, s.Changed) })
	group.Go(func() error { return s.loop(ctx) })
	return group.Wait()
}

func (s *Sampler) loop(ctx context.Context) error {
	fresh := true
	for {
		began := time.Now()
		next := s.Interval
		again := s.sample(ctx, fresh)
		if again > 0 {
			next = min(again, s.Interval)
		}
		switch s.wake.Wait(ctx, next) {
		case loop.Ended:
			return nil
		case loop.Due:
			fresh = true
		case loop.Woken:
			if !s.wake.Debounce(ctx, max(eventDebounce, minInterval-time.Since(began))) {
				return nil
			}
			// An event may reuse the answers, but a confirming sample probes the wire again.
			fresh = again > 0
		}
	}
}

// sample takes a sample; with fresh the wire is probed in any case. It returns when to take the next one to confirm
// it, zero when there is nothing to confirm.
func (s *Sampler) sample(ctx context.Context, fresh bool) (again time.Duration) {
	expected := s.Expected()
	if fresh {
		s.wire = wireMemory{}
	}
	snapshot, err := look(ctx, s.Reader, s.Prober, expected, &s.wire)
	if err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to take a sample")
		}
		return confirm
	}
	report := check.Evaluate(expected, snapshot)
	if !expected.Unreached { // what could not be checked until the Node was read had not failed: it needs no recovery
		report, again = s.dampener.Observe(report, time.Now())
	}
	s.Record(Sample{Report: report, Snapshot: snapshot, Expected: expected})
	return again
}

// Reader reads the kernel.
type Reader interface {
	Read(ctx context.Context) (check.Snapshot, error)
	Routes(s check.Snapshot, questions []check.RouteQuestion) []check.RouteAnswer
}

// Prober probes by ARP.
type Prober interface {
	Ask(ctx context.Context, interfaceName string, questions []arp.Question) ([]arp.Answer, error)
}

// Look takes one full snapshot: the kernel, then the route look-ups and ARP probes that follow from it.
func Look(ctx context.Context, reader Reader, prober Prober, expected check.Expected) (check.Snapshot, error) {
	return look(ctx, reader, prober, expected, &wireMemory{})
}

// look takes a snapshot and uses the remembered answers where they are valid.
func look(
	ctx context.Context, reader Reader, prober Prober, expected check.Expected, memory *wireMemory,
) (check.Snapshot, error) {
	s, err := reader.Read(ctx)
	if err != nil {
		return s, err
	}
	link, asks, routes := check.Questions(expected, s)
	s.Routes = reader.Routes(s, routes)
	if answers, ok := memory.recall(link, asks, time.Now()); ok {
		s.ARP = answers
		return s, nil
	}
	s.ARP = ask(ctx, prober, link, asks)
	*memory = wireMemory{link: link, asked: asks, answers: s.ARP, at: time.Now()}
	return s, ctx.Err()
}

// wireMemory keeps the last ARP answers, and the questions that they answer.
type wireMemory struct {
	link    string
	asked   []check.Question
	answers []check.ARPAnswer
	at      time.Time
}

func (w *wireMemory) recall(link string, asks []check.Question, now time.Time) ([]check.ARPAnswer, bool) {
	if w.answers == nil || link != w.link || now.Sub(w.at) >= wireAge || !slices.Equal(asks, w.asked) {
		return nil, false
	}
	return w.answers, true
}

func ask(ctx context.Context, prober Prober, link string, questions []check.Question) []check.ARPAnswer {
	converted := make([]arp.Question, len(questions))
	for i, q := range questions {
		converted[i] = arp.Question{Target: q.Target, Source: q.Source}
	}
	heard, err := prober.Ask(ctx, link, converted)
	answers := make([]check.ARPAnswer, len(questions))
	for i, q := range questions {
		answers[i] = check.ARPAnswer{Target: q.Target, Source: q.Source}
		if err != nil {
			answers[i].Error = err.Error()
			continue
		}
		answers[i].MACs = heard[i].MACs
		answers[i].Replied = heard[i].Replied
		answers[i].RTT = heard[i].RTT
		answers[i].Within = heard[i].Within
	}
	return answers
}

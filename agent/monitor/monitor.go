package monitor

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/check"
)

const (
	// debounce gathers the burst of events that one change of the network makes.
	debounce = 100 * time.Millisecond
	// confirm is the pause before the sample that confirms a change.
	confirm = time.Second
	// wireAge is how long ARP answers serve samples that events call for: pods come and go on a busy node, and the
	// gateway need not be asked for each.
	wireAge = 5 * time.Second
	// watchPause is the pause before a broken subscription to the kernel's events is made anew.
	watchPause = time.Second
)

// Sample is what holds true of the node.
type Sample struct {
	// Report is damped: see Damper.
	Report check.Report
	// Snapshot is the one that the last sample saw.
	Snapshot check.Snapshot
	// Expected is what it was judged against.
	Expected check.Expected
}

// Monitor takes samples.
type Monitor struct {
	Reader Reader
	Asker  Asker
	// Expected returns what to expect at the moment.
	Expected func() check.Expected
	// Watch calls changed at each change that the kernel reports, until ctx ends.
	Watch func(ctx context.Context, changed func()) error
	// Interval is the time between samples without an event.
	Interval time.Duration
	// Tell receives each sample; it must not block.
	Tell func(Sample)

	wakeOnce sync.Once
	wake     chan struct{}
	damper   *Damper
	wire     wireMemory
}

// wireMemory keeps the last ARP answers for the questions that they answer.
type wireMemory struct {
	link    string
	asked   []check.Question
	answers []check.ARPAnswer
	at      time.Time
}

func (m *wireMemory) recall(link string, asks []check.Question, now time.Time) ([]check.ARPAnswer, bool) {
	if m.answers == nil || link != m.link || now.Sub(m.at) >= wireAge || !slices.Equal(asks, m.asked) {
		return nil, false
	}
	return m.answers, true
}

// Changed asks for a sample soon, because something to be judged, or to judge by, has changed.
func (m *Monitor) Changed() {
	select {
	case m.wakeup() <- struct{}{}:
	default:
	}
}

func (m *Monitor) wakeup() chan struct{} {
	m.wakeOnce.Do(func() { m.wake = make(chan struct{}, 1) })
	return m.wake
}

// Run takes samples until ctx ends.
func (m *Monitor) Run(ctx context.Context) error {
	m.damper = NewDamper()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return m.follow(ctx) })
	group.Go(func() error { return m.loop(ctx) })
	return group.Wait()
}

// follow keeps the subscription to the kernel's events, and asks for a sample when it had to be made anew.
func (m *Monitor) follow(ctx context.Context) error {
	for {
		if err := m.Watch(ctx, m.Changed); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Watching the kernel")
		}
		if !pause(ctx, watchPause) {
			return nil
		}
		m.Changed()
	}
}

func (m *Monitor) loop(ctx context.Context) error {
	fresh := true
	for {
		next := m.Interval
		if m.sample(ctx, fresh) {
			next = confirm
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
			fresh = true
		case <-m.wakeup():
			timer.Stop()
			if !pause(ctx, debounce) {
				return nil
			}
			// One event may call for a sample, but a sample that is to confirm something asks the wire again.
			fresh = next == confirm
			m.drain()
		}
	}
}

func (m *Monitor) drain() {
	select {
	case <-m.wakeup():
	default:
	}
}

// sample takes a sample; with fresh the wire is asked in any case. It returns whether the next one should come soon.
func (m *Monitor) sample(ctx context.Context, fresh bool) (pending bool) {
	expected := m.Expected()
	s, err := m.look(ctx, expected, fresh)
	if err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Taking a sample")
		}
		return true
	}
	report, pending := m.damper.Observe(check.Evaluate(expected, s))
	m.Tell(Sample{Report: report, Snapshot: s, Expected: expected})
	return pending
}

func (m *Monitor) look(ctx context.Context, expected check.Expected, fresh bool) (check.Snapshot, error) {
	s, err := m.Reader.Read(ctx)
	if err != nil {
		return s, err
	}
	link, asks, routes := check.Questions(expected, s)
	s.Routes = m.Reader.Routes(s, routes)
	if answers, known := m.wire.recall(link, asks, time.Now()); known && !fresh {
		s.ARP = answers
		return s, nil
	}
	s.ARP = ask(ctx, m.Asker, link, asks)
	m.wire = wireMemory{link: link, asked: asks, answers: s.ARP, at: time.Now()}
	return s, ctx.Err()
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

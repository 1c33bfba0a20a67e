//go:build linux

package speaker

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/election"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/heartbeat"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/store"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/wire/responder"
)

const (
	// inbox is how many inputs may wait for the core; a hundred nodes send that many heartbeats in half a second.
	inbox = 512
	// firstTimeout bounds a request to the API server. After one without an answer it doubles up to mostTimeout: the server may
	// be slow rather than gone.
	firstTimeout = 400 * time.Millisecond
	mostTimeout  = 3200 * time.Millisecond
	// gatewayTimeout bounds a question for the gateway.
	gatewayTimeout = time.Second
	// factsEvery is how often facts are looked at when nothing is said to have changed.
	factsEvery = time.Second
)

// session is the life of one core.
type session struct {
	*Speaker
	network string
	core    Election
	line    *heartbeat.Transport
	store   Store
	inbox   chan election.Input
	// requests are those to the API server and to the gateway that are under way.
	requests sync.WaitGroup

	// What follows belongs to the loop.
	table   *responder.Table
	timeout time.Duration
	told    election.Facts // to the core
	leaving bool
	// troubled says why the last heartbeat could not be sent.
	troubled string

	mu    sync.Mutex // of what follows
	heard map[string]time.Duration
	gone  map[string]bool
}

// hear takes a heartbeat. One that finds no room is lost, as it may be on the wire.
func (s *session) hear(b *election.Heartbeat) {
	s.mu.Lock()
	s.heard[b.Node] = s.Clock()
	s.mu.Unlock()
	select {
	case s.inbox <- election.Heard{Heartbeat: b}:
	default:
		s.note(func(state *State) { state.Lost++ })
	}
}

// put gives the loop an input that must not be lost.
func (s *session) put(ctx context.Context, in election.Input) {
	select {
	case s.inbox <- in:
	case <-ctx.Done():
	}
}

func (s *session) watched(d store.Document) {
	select {
	case s.inbox <- read(d, nil, false):
	default: // the next read brings it
	}
}

// read makes an input of what was read.
func read(d store.Document, err error, asked bool) election.Read {
	in := election.Read{Err: err, Found: d.Version != "", Version: d.Version, Asked: asked}
	if err == nil && d.View != "" {
		// A view that cannot be read is none: the core writes a new one.
		in.View, _ = election.ParseView(d.View)
	}
	return in
}

// run steps the core until the network is another, the core is to begin anew, or all is handed over after outer has ended.
// ctx is that of everything around it.
func (s *session) run(outer, ctx context.Context) error {
	s.timeout = firstTimeout
	facts := time.NewTicker(factsEvery)
	defer facts.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	ended, deadline := outer.Done(), (<-chan time.Time)(nil)
	out := s.step(ctx, s.facts())
	for !s.leaving || !out.Done {
		timer.Reset(max(0, out.Next-s.Clock()))
		select {
		case <-ctx.Done():
			return nil
		case <-deadline:
			klog.FromContext(ctx).Info("Ending before all addresses were taken over", "addresses", len(s.table.Addresses()))
			return nil
		case <-ended:
			s.leaving, ended = true, nil
			last := time.NewTimer(farewell)
			defer last.Stop()
			deadline = last.C
			klog.FromContext(ctx).Info("Handing over before the end", "addresses", len(s.table.Addresses()))
			out = s.step(ctx, s.facts())
		case in := <-s.inbox:
			out = s.step(ctx, in)
		case <-timer.C:
			out = s.step(ctx, election.Tick{})
		case <-facts.C:
			out = s.look(ctx, out)
		case <-s.wake:
			out = s.look(ctx, out)
		}
		if !s.leaving && s.Network() != s.network {
			return errElsewhere
		}
		if out.Restart {
			return errAnew
		}
	}
	return nil
}

// look steps the core if the facts are others than it knows.
func (s *session) look(ctx context.Context, before election.Output) election.Output {
	facts := s.facts()
	if reflect.DeepEqual(facts, s.told) {
		return before
	}
	return s.step(ctx, facts)
}

// facts are those of the moment. A node that cannot sign its heartbeats is no candidate: nobody would hear that it is alive.
func (s *session) facts() election.Facts {
	f := s.Facts()
	f.Leaving = s.leaving
	problem := ""
	if err := s.Line.Keys.Err(); err != nil {
		f.Candidate, problem = false, err.Error()
	}
	s.mu.Lock()
	f.Gone = s.gone
	s.mu.Unlock()
	s.note(func(state *State) { state.Problem = problem })
	return f
}

// step lets the core decide and does what it says. What the node answers for changes first: what it says to others holds.
func (s *session) step(ctx context.Context, in election.Input) election.Output {
	if facts, are := in.(election.Facts); are {
		s.told = facts
	}
	s.observe(in)
	out := s.core.Step(s.Clock(), in)
	s.grant(out.Grant)
	if out.Send != nil {
		s.send(ctx, out.Send)
	}
	if out.Read {
		s.request(ctx, func(ctx context.Context) election.Input {
			d, err := s.store.Read(ctx)
			return read(d, err, true)
		})
	}
	if out.Write != nil {
		s.write(ctx, out.Write)
	}
	if out.AskGateway {
		s.askGateway(ctx)
	}
	for _, e := range out.Events {
		s.record(ctx, e)
	}
	return out
}

// observe notes what an input says of the API server and of the view.
func (s *session) observe(in election.Input) {
	var err error
	var view *election.View
	switch in := in.(type) {
	case election.Read:
		err, view = in.Err, in.View
		if !in.Asked {
			break
		}
		s.adapt(err)
	case election.Wrote:
		err, view = in.Err, in.View
		s.adapt(err)
	default:
		return
	}
	s.note(func(state *State) {
		if err != nil {
			state.APIFailures++
		}
		if view != nil && (state.View == nil || state.View.Number < view.Number) {
			state.View = view
		}
	})
}

// adapt makes the timeout longer after a failure.
func (s *session) adapt(err error) {
	if err == nil {
		s.timeout = firstTimeout
	} else {
		s.timeout = min(2*s.timeout, mostTimeout)
	}
}

// grant has the responder answer for other addresses, or for longer.
func (s *session) grant(g election.Grant) {
	if slices.Equal(s.table.Addresses(), g.Addresses) {
		if s.table != nil && s.table.Until() == g.Until {
			return
		}
		s.table = s.table.Prolonged(g.Until)
	} else {
		s.table = responder.NewTable(g.Until, g.Addresses...)
	}
	s.Responder.Grant(s.table)
	s.note(func(state *State) { state.Addresses, state.Until = g.Addresses, g.Until })
}

// send sends a heartbeat. A failure is told once, until one is sent again.
func (s *session) send(ctx context.Context, b *election.Heartbeat) {
	err := s.line.Send(b)
	switch {
	case err == nil:
		s.troubled = ""
	case err.Error() != s.troubled:
		s.troubled = err.Error()
		klog.FromContext(ctx).Info("No heartbeat is sent, trying again", "reason", s.troubled)
	}
}

// request makes a request to the API server beside the loop; the answer becomes an input.
func (s *session) request(ctx context.Context, do func(context.Context) election.Input) {
	timeout := s.timeout
	s.requests.Go(func() {
		bounded, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		s.put(ctx, do(bounded))
	})
}

func (s *session) write(ctx context.Context, w *election.Write) {
	w.View.Stamp(time.Now())
	encoded, err := w.View.Encode()
	s.request(ctx, func(ctx context.Context) election.Input {
		if err != nil {
			return election.Wrote{Err: err}
		}
		d, err := s.store.Write(ctx, store.Document{Version: w.Version, View: encoded})
		if err != nil {
			return election.Wrote{Err: err}
		}
		return election.Wrote{View: w.View, Version: d.Version}
	})
}

func (s *session) askGateway(ctx context.Context) {
	s.requests.Go(func() {
		bounded, cancel := context.WithTimeout(ctx, gatewayTimeout)
		defer cancel()
		if s.AskGateway(bounded) {
			s.put(ctx, election.Gateway{})
		}
	})
}

// record tells of an event, in the log and to whoever wants to know.
func (s *session) record(ctx context.Context, e election.Event) {
	log := klog.FromContext(ctx)
	var number uint64
	s.note(func(state *State) {
		if state.View != nil {
			number = state.View.Number
		}
		switch e.Kind {
		case election.BecameOwner:
			state.Took++
		case election.LostOwnership:
			state.Gave++
		case election.LeaseLost, election.MemberFailed, election.MemberLeft, election.MemberJoined, election.ViewRebuilt, election.DuplicateMember:
		}
	})
	switch e.Kind {
	case election.BecameOwner:
		log.Info("Answering for an address", "address", e.Address, "before", e.Node, "view", number)
	case election.LostOwnership:
		log.Info("Ceased to answer for an address", "address", e.Address, "now", e.Node, "view", number)
	case election.LeaseLost:
		log.Info("Ceased to answer, no majority of the nodes hears this one", "view", number)
	case election.DuplicateMember:
		log.Info("Answering for nothing: another agent has the name of this Node and was started later")
	case election.MemberFailed, election.MemberLeft, election.MemberJoined, election.ViewRebuilt:
		log.Info("The view of the announcers changed", "event", e.Kind, "node", e.Node, "view", number)
	}
	s.Tell(Event{Event: e, Number: number})
}

//go:build linux

package speaker

import (
	"context"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/election"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/heartbeat"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/store"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/responder"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

const (
	// inbox is how many inputs may wait; a hundred nodes send that many heartbeats in half a second.
	inbox = 512
	// firstTimeout bounds a request to the API server; each one without an answer doubles it, up to maxTimeout.
	firstTimeout = 400 * time.Millisecond
	maxTimeout   = 3200 * time.Millisecond
	// gatewayTimeout bounds a probe of the gateway.
	gatewayTimeout = time.Second
	// examineTimeout bounds the examination of silent members.
	examineTimeout = 5 * time.Second
	// factsEvery is how often facts are compared when no change is signalled.
	factsEvery = time.Second
)

// session runs one Election.
type session struct {
	*Speaker
	network   string
	election  Election
	transport *heartbeat.Transport
	store     Store
	inbox     chan election.Input
	// requests are the running requests to the API server and the gateway.
	requests sync.WaitGroup

	// The following fields belong to the loop.
	table     *responder.Table
	timeout   time.Duration
	lastFacts election.Facts // given to the election
	// leaving is set when the addresses go to other nodes, replaced when another agent of this node continues.
	leaving, replaced bool
	// isolated is as in State.
	isolated bool
	// sendError is why the last heartbeat could not be sent.
	sendError string

	mu sync.Mutex
	// invalid is the version of the object whose view was last reported as invalid. It is guarded by mu.
	invalid string
}

// receive handles a heartbeat. One that finds no room is lost, as on the wire.
func (s *session) receive(b *election.Heartbeat) {
	select {
	case s.inbox <- election.Heard{Heartbeat: b}:
	default:
		s.note(func(state *State) { state.Lost++ })
	}
}

// replaySuspect handles a heartbeat that was dropped, because it may be an old one.
func (s *session) replaySuspect(node string) {
	select {
	case s.inbox <- election.ReplaySuspect{Node: node}:
	default: // the next one is handled
	}
}

// foreign handles a heartbeat that another cluster signed with our key.
func (s *session) foreign(node string) {
	s.note(func(state *State) {
		state.KeyShared = true
		state.sharedAt = s.Clock()
	})
	select {
	case s.inbox <- election.Foreign{Node: node}:
	default: // the next one is reported
	}
}

// reportInvalid logs why a version of the view is invalid, once for each.
func (s *session) reportInvalid(version string, invalid error) {
	s.mu.Lock()
	isNew := invalid != nil && version != s.invalid
	if isNew {
		s.invalid = version
	}
	s.mu.Unlock()
	if isNew {
		klog.Background().Info("The view of the announcers is invalid, the agents write it again. Do not edit it",
			"configMap", metav1.NamespaceSystem+"/"+contract.AnnouncerView, "network", s.network, "version", version,
			"reason", invalid.Error())
	}
}

// enqueue gives the loop an input that must not be lost.
func (s *session) enqueue(ctx context.Context, in election.Input) {
	select {
	case s.inbox <- in:
	case <-ctx.Done():
	}
}

func (s *session) handleWatch(d store.Document) {
	select {
	case s.inbox <- s.read(d, nil, false):
	default: // the next read brings it
	}
}

// read converts what was read to an input.
func (s *session) read(d store.Document, err error, asked bool) election.Read {
	in := election.Read{Err: err, Found: d.Version != "", Version: d.Version, Asked: asked}
	if err == nil && d.View != "" {
		// An unreadable view counts as none: the election writes a new one.
		var invalid error
		in.View, invalid = election.ParseView(d.View)
		s.reportInvalid(d.Version, invalid)
	}
	return in
}

// run steps the election until the network changes, it must start again, or outer ended and the election is done.
func (s *session) run(outer, ctx context.Context) error {
	s.timeout = firstTimeout
	facts := time.NewTicker(factsEvery)
	defer facts.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	ended := outer.Done()
	deadline := (<-chan time.Time)(nil)
	out := s.step(ctx, s.facts())
	for !s.ending() || !out.Done {
		timer.Reset(max(0, out.Next-s.Clock()))
		select {
		case <-ctx.Done():
			return nil
		case <-deadline:
			klog.FromContext(ctx).Info("Stopping before all addresses were taken over", "addresses",
				len(s.table.Addresses()))
			return nil
		case <-ended:
			ended = nil
			last := time.NewTimer(handOverTimeout)
			defer last.Stop()
			deadline = last.C
			out = s.end(ctx)
		case in := <-s.inbox:
			out = s.step(ctx, in)
		case <-timer.C:
			out = s.step(ctx, election.Tick{})
		case <-facts.C:
			out = s.checkFacts(ctx, out)
		case <-s.wake:
			out = s.checkFacts(ctx, out)
		}
		if !s.ending() && s.Network() != s.network {
			return errNetworkChanged
		}
		if out.Restart {
			return errRestart
		}
	}
	return nil
}

func (s *session) ending() bool { return s.leaving || s.replaced }

// end begins the end of the session. The other agent of this node, if there is one, continues after the last heartbeat.
func (s *session) end(ctx context.Context) election.Output {
	s.replaced = s.Waiting()
	s.leaving = !s.replaced
	what := "Handing over addresses before stopping"
	if s.replaced {
		what = "Stopping: another agent of this node continues with its addresses"
	}
	klog.FromContext(ctx).Info(what, "addresses", len(s.table.Addresses()))
	out := s.step(ctx, s.facts())
	if s.replaced {
		s.Release()
	}
	return out
}

// checkFacts steps the election if the facts have changed.
func (s *session) checkFacts(ctx context.Context, before election.Output) election.Output {
	facts := s.facts()
	if reflect.DeepEqual(facts, s.lastFacts) {
		return before
	}
	return s.step(ctx, facts)
}

// facts returns the current facts. A node that cannot sign heartbeats is no candidate: the others hear nothing.
func (s *session) facts() election.Facts {
	f := s.Facts()
	f.Leaving = s.leaving
	f.Replaced = s.replaced
	problem := ""
	if err := s.Transport.Keys.Err(); err != nil {
		f.Candidate = false
		problem = err.Error()
	}
	s.note(func(state *State) { state.Problem = problem })
	return f
}

// step steps the election and does what it requests, the grant first, so that the heartbeats are true.
func (s *session) step(ctx context.Context, in election.Input) election.Output {
	if facts, ok := in.(election.Facts); ok {
		s.lastFacts = facts
	}
	s.observe(in)
	out := s.election.Step(s.Clock(), in)
	s.grant(out.Grant)
	s.showIsolated(out.Isolated)
	if out.Send != nil {
		s.send(ctx, out.Send)
	}
	if out.Read {
		s.request(ctx, func(ctx context.Context) election.Input {
			d, err := s.store.Read(ctx)
			return s.read(d, err, true)
		})
	}
	if out.Write != nil {
		s.write(ctx, out.Write)
	}
	if out.List {
		s.request(ctx, func(ctx context.Context) election.Input {
			addresses, err := s.List(ctx)
			return election.Listed{Err: err, Addresses: addresses}
		})
	}
	if out.AskGateway {
		s.askGateway(ctx)
	}
	if out.Examine != nil {
		s.examine(ctx, out.Examine)
	}
	for _, e := range out.Events {
		s.record(ctx, e)
	}
	return out
}

// observe records what an input shows about the API server and the view.
func (s *session) observe(in election.Input) {
	var err error
	var view *election.View
	asked := true
	switch in := in.(type) {
	case election.Read:
		err = in.Err
		view = in.View
		asked = in.Asked
	case election.Wrote:
		err = in.Err
		view = in.View
	case election.Listed:
		err = in.Err
	default:
		return
	}
	switch {
	case !asked:
	case err == nil:
		s.timeout = firstTimeout
	default:
		s.timeout = min(2*s.timeout, maxTimeout)
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

// grant makes the responder answer for other addresses, or for longer.
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
	s.note(func(state *State) {
		state.Addresses = g.Addresses
		state.Until = g.Until
	})
}

// showIsolated notes whether others may take this node for off, and has the API server show that it lives.
func (s *session) showIsolated(is bool) {
	if is == s.isolated {
		return
	}
	s.isolated = is
	s.note(func(state *State) { state.Isolated = is })
	if is {
		s.Isolated()
	}
}

// send sends a heartbeat. A failure is logged once, until sending succeeds again.
func (s *session) send(ctx context.Context, b *election.Heartbeat) {
	err := s.transport.Send(b)
	switch {
	case err == nil:
		s.sendError = ""
	case err.Error() != s.sendError:
		s.sendError = err.Error()
		klog.FromContext(ctx).Info("Failed to send a heartbeat, retrying", "reason", s.sendError)
	}
}

// request runs a request to the API server outside the loop; the answer becomes an input.
func (s *session) request(ctx context.Context, do func(context.Context) election.Input) {
	timeout := s.timeout
	s.requests.Go(func() {
		bounded, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		s.enqueue(ctx, do(bounded))
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
			s.enqueue(ctx, election.Gateway{})
		}
	})
}

func (s *session) examine(ctx context.Context, members map[string][]netip.Addr) {
	s.requests.Go(func() {
		bounded, cancel := context.WithTimeout(ctx, examineTimeout)
		defer cancel()
		s.enqueue(ctx, s.Examine(bounded, members))
	})
}

//go:build linux

// Package speaker runs the announcer of a node: it carries what the core decides to the wire and to the API server, and to the
// core what happens there.
package speaker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/election"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/heartbeat"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/store"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/wire/responder"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/loop"
)

const (
	// farewell is how long an agent that is about to end waits for its addresses to be taken over. It lies within the 30 s
	// that the kubelet gives a pod.
	farewell = 5 * time.Second
	// again is the pause before a herald that could not go on tries again.
	again = 500 * time.Millisecond
	// idle is how long a herald that has no network to announce on waits when nobody calls Changed.
	idle = 30 * time.Second
)

// Election decides, see announcer.Election.
type Election interface {
	Step(now time.Duration, in election.Input) election.Output
}

// Store keeps the view, see viewstore.Store.
type Store interface {
	Read(ctx context.Context) (store.Document, error)
	Write(ctx context.Context, d store.Document) (store.Document, error)
	Watch(ctx context.Context, changed func(store.Document)) error
}

// Responder answers for addresses, see responder.Responder.
type Responder interface {
	Grant(t *responder.Table)
	Run(ctx context.Context) error
}

// Config is what a Herald works with.
type Config struct {
	// Node is the name of the Node.
	Node string
	// NewCore makes the core of a session, NewStore the store of a network's view.
	NewCore  func(election.Config) Election
	NewStore func(networkID string) Store
	// Line is how heartbeats go, and how often; the herald fills in Node, Boot and Hear.
	Line heartbeat.Config
	// Responder answers on the wire.
	Responder Responder
	// Network returns the ID of the public network whose addresses the agents announce; empty while they do not, or while that
	// is not known.
	Network func() string
	// Facts returns what is known of node and cluster at the moment; the herald fills in Leaving and Gone.
	Facts func() election.Facts
	// AskGateway asks for a gateway of the public network and tells whether one answered.
	AskGateway func(ctx context.Context) bool
	// Off tells whether a Node is certainly off. An error says that this is not known.
	Off func(ctx context.Context, node string) (bool, error)
	// Tell receives what is to be told; it must not block. It may be nil.
	Tell func(Event)
	// Clock returns the time of the core; see boottime.Now.
	Clock func() time.Duration
	// Signals says that Network or Facts may return something else now, as Changed does; nil for one that only the Herald
	// knows.
	Signals loop.Wake
}

// Event is something to tell.
type Event struct {
	election.Event
	// Number is that of the view.
	Number uint64
}

// Speaker announces the addresses that the nodes agree on.
type Speaker struct {
	Config
	wake loop.Wake

	mu    sync.Mutex
	state State
	line  *heartbeat.Transport
	past  heartbeat.Counters // of lines before this one
}

// State is how a herald stands.
type State struct {
	// Running tells that there is a network to announce on.
	Running bool
	// Problem says why this node cannot announce; empty when nothing keeps it from that.
	Problem string
	// View is the newest view that is known; nil when none is. It must not be changed.
	View *election.View
	// Addresses are those that this node answers for, sorted, until Until. They must not be changed.
	Addresses []netip.Addr
	Until     time.Duration
	// Took and Gave count addresses that this node began and ceased to answer for.
	Took, Gave uint64
	// APIFailures counts requests for the view that failed.
	APIFailures uint64
	// Lost counts heartbeats that came faster than they could be taken.
	Lost uint64
}

// New returns a herald; it starts nothing.
func New(c Config) *Speaker {
	if c.Tell == nil {
		c.Tell = func(Event) {}
	}
	return &Speaker{Config: c, wake: cmp.Or(c.Signals, loop.NewWake()), past: heartbeat.Counters{Heard: map[heartbeat.Drop]uint64{}}}
}

// Changed says that Network or Facts may return something else now. It does not block.
func (h *Speaker) Changed() { h.wake.Signal() }

// State returns how the herald stands.
func (h *Speaker) State() State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state
}

// Answers tells whether this node answers for an address at the moment.
func (h *Speaker) Answers(a netip.Addr) bool {
	s := h.State()
	if h.Clock() >= s.Until {
		return false
	}
	for _, each := range s.Addresses {
		if each == a {
			return true
		}
	}
	return false
}

// Heartbeats returns what was sent and heard since the herald was made.
func (h *Speaker) Heartbeats() heartbeat.Counters {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sum()
}

func (h *Speaker) sum() heartbeat.Counters {
	total := heartbeat.Counters{Sent: h.past.Sent, Heard: map[heartbeat.Drop]uint64{}}
	for drop, n := range h.past.Heard {
		total.Heard[drop] = n
	}
	if h.line == nil {
		return total
	}
	now := h.line.Counters()
	total.Sent += now.Sent
	for drop, n := range now.Heard {
		total.Heard[drop] += n
	}
	return total
}

func (h *Speaker) note(change func(*State)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(&h.state)
}

// Run announces until ctx ends. Then it hands its addresses over, which takes a moment.
func (h *Speaker) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		network := h.Network()
		if network == "" {
			h.wake.Wait(ctx, idle)
			continue
		}
		if err := h.session(ctx, network); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "No addresses are announced, trying again")
			h.wake.Wait(ctx, again)
		}
	}
	return nil
}

var (
	// errElsewhere ends a session whose network is another.
	errElsewhere = errors.New("the public network is another one now")
	// errAnew ends a session that was silent because of a later agent of its name, which is gone.
	errAnew = errors.New("the later agent of the same name has gone")
)

// session announces on one network until ctx ends, the network is another, or it is to begin anew. What it starts goes on
// after ctx until the addresses are handed over.
func (h *Speaker) session(ctx context.Context, network string) error {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	started := time.Now()
	boot := uint64(started.UnixMicro()) //nolint:gosec // after 1970
	s := &session{Speaker: h, network: network, inbox: make(chan election.Input, inbox), heard: map[string]time.Duration{}}
	line := h.Line
	line.Node, line.Boot, line.Hear = h.Node, boot, s.hear
	s.line, s.store = heartbeat.New(line), h.NewStore(network)
	s.core = h.NewCore(election.Config{
		Node: h.Node, Boot: boot, First: uint64(started.Unix()), Seed: boot, Interval: line.Interval, //nolint:gosec // after 1970
	})
	h.begin(s.line)
	defer h.end()
	klog.FromContext(ctx).Info("Announcing addresses of Services", "network", network)

	group, groupCtx := errgroup.WithContext(inner)
	group.Go(func() error { return s.line.Run(groupCtx) })
	group.Go(func() error { return h.Responder.Run(groupCtx) })
	group.Go(func() error { return s.store.Watch(groupCtx, s.watched) })
	group.Go(func() error { return s.watchOff(groupCtx) })
	group.Go(func() error {
		defer cancel()
		return s.run(ctx, groupCtx)
	})
	err := group.Wait()
	s.requests.Wait()
	if err != nil && !errors.Is(err, errElsewhere) && !errors.Is(err, errAnew) {
		return fmt.Errorf("announce on network %s: %w", network, err)
	}
	return nil
}

func (h *Speaker) begin(line *heartbeat.Transport) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.line, h.state.Running = line, true
}

// end takes all grants back: nothing is answered for between two sessions.
func (h *Speaker) end() {
	h.Responder.Grant(nil)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.past, h.line = h.sum(), nil
	h.state.Running, h.state.View, h.state.Addresses, h.state.Until = false, nil, nil, 0
}

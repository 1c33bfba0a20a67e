//go:build linux

// Package speaker runs the announcer of a node: the election's decisions on the wire and the API server, and its input.
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

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/election"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/heartbeat"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/store"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/responder"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

const (
	// handOverTimeout bounds the hand-over of addresses at the end, within the 30 s that the kubelet gives a pod.
	handOverTimeout = 5 * time.Second
	// retryAfter is the pause before a Speaker that failed tries again.
	retryAfter = 500 * time.Millisecond
	// idle is how long a Speaker without a network to announce on waits when Changed is not called.
	idle = 30 * time.Second
)

// Election decides, see election.Election.
type Election interface {
	Step(now time.Duration, in election.Input) election.Output
}

// Store keeps the view, see store.Store.
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

// Config configures a Speaker.
type Config struct {
	// Node is the name of the Node.
	Node string
	// NewElection makes the election of a session, NewStore the store of a network's view.
	NewElection func(election.Config) Election
	NewStore    func(networkID string) Store
	// Transport configures how heartbeats are sent, and how often; the Speaker sets Node, Boot and Receive.
	Transport heartbeat.Config
	// WatchKeys maintains Transport.Keys while the Speaker announces, until its context ends.
	WatchKeys func(ctx context.Context) error
	// Rebalance is as in election.Config.
	Rebalance time.Duration
	// Responder answers on the wire.
	Responder Responder
	// Network returns the ID of the network on which the agents announce; empty when they do not or it is unknown.
	Network func() string
	// Cluster returns the UID of the cluster, never an empty one without an error.
	Cluster func(ctx context.Context) (string, error)
	// Facts returns the current facts about node and cluster; the Speaker sets Leaving and Replaced.
	Facts func() election.Facts
	// List returns the addresses of all Services, never from a cache.
	List func(ctx context.Context) (map[netip.Addr]bool, error)
	// AskGateway probes the gateways of the public network and reports whether one answered.
	AskGateway func(ctx context.Context) bool
	// Examine returns what is known about silent members with these addresses other than by heartbeats.
	Examine func(ctx context.Context, members map[string][]netip.Addr) election.Examined
	// Isolated is called when other nodes may come to take this one for off; it must not block. It may be nil.
	Isolated func()
	// Record receives events; it must not block. It may be nil.
	Record func(election.Event)
	// Waiting reports whether another agent of this node is ready to continue when this one ends, and Release lets it.
	// They may be nil.
	Waiting func() bool
	Release func()
	// Clock returns the time of the election; see responder.Now.
	Clock func() time.Duration
	// Signals says that Network or Facts may have changed, as Changed does; nil for one that only the Speaker knows.
	Signals loop.Wake
}

// Speaker announces the addresses that the nodes agree on.
type Speaker struct {
	Config
	wake loop.Wake

	mu    sync.Mutex
	state State
}

// sharedFor is how long a heartbeat that another cluster signed with our key counts. One is reported each minute.
const sharedFor = 3 * time.Minute

// State is the state of a Speaker.
type State struct {
	// Running reports whether there is a network to announce on.
	Running bool
	// Problem is why this node cannot announce; empty when it can.
	Problem string
	// View is the newest known view, or nil. It must not be changed.
	View *election.View
	// Addresses are those that this node answers for, sorted, until Until. They must not be changed.
	Addresses []netip.Addr
	Until     time.Duration
	// Isolated is as in election.Output.
	Isolated bool
	// BecameOwner and LostOwnership count addresses that this node started and stopped answering for.
	BecameOwner, LostOwnership uint64
	// Repeated counts addresses that it started to answer for after they had moved often, Late its heartbeats that were
	// sent an interval or more after they were due.
	Repeated, Late uint64
	// APIFailures counts requests for the view that failed.
	APIFailures uint64
	// KeyShared reports whether another cluster signed heartbeats with our key lately, the last one at sharedAt.
	KeyShared bool
	sharedAt  time.Duration
	// Lost counts heartbeats that arrived faster than they could be handled.
	Lost uint64
}

// New returns a Speaker; it starts nothing.
func New(c Config) *Speaker {
	if c.Record == nil {
		c.Record = func(election.Event) {}
	}
	if c.Isolated == nil {
		c.Isolated = func() {}
	}
	if c.Waiting == nil {
		c.Waiting = func() bool { return false }
	}
	if c.Transport.Counts == nil {
		c.Transport.Counts = &heartbeat.Counts{}
	}
	return &Speaker{Config: c, wake: cmp.Or(c.Signals, loop.NewWake())}
}

// Changed signals that Network or Facts may return something else now. It does not block.
func (s *Speaker) Changed() { s.wake.Signal() }

// State returns the current state.
func (s *Speaker) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.state
	state.KeyShared = state.KeyShared && s.Clock()-state.sharedAt < sharedFor
	return state
}

func (s *Speaker) note(change func(*State)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.state)
}

// Run announces until ctx ends. Then another agent of this node continues, or it hands over its addresses, which takes
// a moment.
func (s *Speaker) Run(ctx context.Context) error {
	cluster := s.cluster(ctx)
	for ctx.Err() == nil {
		network := s.Network()
		if network == "" {
			s.wake.Wait(ctx, idle)
			continue
		}
		if err := s.session(ctx, cluster, network); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to announce addresses, retrying")
			s.wake.Wait(ctx, retryAfter)
		}
	}
	return nil
}

// cluster returns the UID of the cluster, which is part of what heartbeats sign. An agent that starts without an API
// server waits: it could support no other one.
func (s *Speaker) cluster(ctx context.Context) string {
	for failures := 0; ctx.Err() == nil; failures++ {
		uid, err := s.Cluster(ctx)
		if err == nil {
			return uid
		}
		if failures == 0 {
			klog.FromContext(ctx).Error(err, "Failed to read the UID of the cluster, retrying")
		}
		loop.Sleep(ctx, loop.Backoff(retryAfter, idle, failures))
	}
	return ""
}

var (
	// errNetworkChanged ends a session whose network has changed.
	errNetworkChanged = errors.New("the public network has changed")
	// errRestart ends a session that was silent because of a later agent of its name, which is gone.
	errRestart = errors.New("the later agent of the same name has gone")
)

// session announces until ctx ends and the addresses are handed over, the network changes, or it must start again.
func (s *Speaker) session(ctx context.Context, cluster, network string) error {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	started := time.Now()
	boot := uint64(max(started.UnixMicro(), 1))
	current := &session{Speaker: s, network: network, inbox: make(chan election.Input, inbox)}
	transport := s.Transport
	transport.Node = s.Node
	transport.Boot = boot
	transport.Receive = current.receive
	transport.ReplaySuspect = current.replaySuspect
	transport.Foreign = current.foreign
	transport.Scope = heartbeat.ScopeOf(cluster, network)
	current.transport = heartbeat.New(transport)
	current.store = s.NewStore(network)
	current.election = s.NewElection(election.Config{
		Node: s.Node, Boot: boot, First: uint64(max(started.Unix(), 1)), Seed: boot,
		Rebalance: s.Rebalance, MaxFormat: heartbeat.Version,
	})
	s.note(func(state *State) { state.Running = true })
	defer s.stop()
	klog.FromContext(ctx).Info("Announcing addresses of Services", "network", network)

	group, groupCtx := errgroup.WithContext(inner)
	group.Go(func() error { return current.transport.Run(groupCtx) })
	group.Go(func() error { return s.WatchKeys(groupCtx) })
	group.Go(func() error { return s.Responder.Run(groupCtx) })
	group.Go(func() error { return current.store.Watch(groupCtx, current.handleWatch) })
	group.Go(func() error {
		defer cancel()
		return current.run(ctx, groupCtx)
	})
	err := group.Wait()
	current.requests.Wait()
	if err != nil && !errors.Is(err, errNetworkChanged) && !errors.Is(err, errRestart) {
		return fmt.Errorf("announce on network %s: %w", network, err)
	}
	return nil
}

// stop withdraws all grants: the node answers for nothing between two sessions.
func (s *Speaker) stop() {
	s.Responder.Grant(nil)
	s.note(func(state *State) {
		state.Running = false
		state.View = nil
		state.Addresses = nil
		state.Until = 0
		state.Isolated = false
	})
}

//go:build linux

package speaker

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/election"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/heartbeat"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/store"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/packet"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/responder"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
)

const network, otherNetwork = "60473c2509268bc77fd06d29", "60473c2509268bc77fd06d30"

var address = netip.MustParseAddr("203.0.113.3")

// harness is a Speaker without a wire: the only node of a cluster, with the real election, a store and a key.
type harness struct {
	*testing.T
	*Speaker
	stores map[string]*memoryStore // by network
	begun  time.Time
	end    context.CancelFunc
	ended  chan error

	mu      sync.Mutex
	table   *responder.Table
	network string
	facts   election.Facts
	events  []election.EventKind
}

// Grant implements Responder.
func (h *harness) Grant(t *responder.Table) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.table = t
}

// Run implements Responder.
func (h *harness) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (h *harness) clock() time.Duration { return time.Hour + time.Since(h.begun) }

// answering returns the addresses that the responder would answer for now.
func (h *harness) answering() []netip.Addr {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(h.table.Addresses()),
		func(a netip.Addr) bool { return !h.table.Holds(a, h.clock()) })
}

func (h *harness) set(change func()) {
	h.mu.Lock()
	change()
	h.mu.Unlock()
	h.Changed()
}

// wait lets time pass until all goroutines are blocked again.
func wait(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// testKeys are the keys of an agent that has read the Secret.
func testKeys() *heartbeat.Keys {
	keys := heartbeat.NewKeys()
	keys.Set(contract.FormatAnnouncerKey(contract.AnnouncerKey{1}), nil)
	return keys
}

// memoryStore keeps the view as the API server does: a write must name the version that it replaces.
type memoryStore struct {
	mu      sync.Mutex
	version int
	view    string
}

func (m *memoryStore) document() store.Document {
	if m.version == 0 {
		return store.Document{}
	}
	return store.Document{Version: strconv.Itoa(m.version), View: m.view}
}

func (m *memoryStore) Read(ctx context.Context) (store.Document, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.document(), ctx.Err()
}

func (m *memoryStore) Write(ctx context.Context, d store.Document) (store.Document, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d.Version != m.document().Version {
		return store.Document{}, store.ErrConflict
	}
	m.version, m.view = m.version+1, d.View
	return m.document(), ctx.Err()
}

// Watch reports nothing: a watch may be late for any time.
func (m *memoryStore) Watch(ctx context.Context, _ func(store.Document)) error {
	<-ctx.Done()
	return nil
}

// start starts a Speaker. It stops with the test.
func start(t *testing.T, change ...func(*harness, *Config)) *harness {
	t.Helper()
	s := &harness{
		T: t, stores: map[string]*memoryStore{network: {}, otherNetwork: {}}, network: network,
		begun: time.Now(), ended: make(chan error, 1),
	}
	s.facts = election.Facts{Link: true, Candidate: true, Known: true, Wanted: map[netip.Addr]bool{address: true}}
	c := Config{
		Node:        "node-a",
		NewElection: func(c election.Config) Election { return election.New(c) },
		NewStore:    func(id string) Store { return s.stores[id] },
		Transport: heartbeat.Config{
			Interface: func() string { return "none" }, Source: func() netip.Addr { return netip.Addr{} },
			Keys: testKeys(),
			Open: func(string) (*packet.Port, error) { return nil, errors.New("there is no wire") },
		},
		WatchKeys: func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		},
		Responder: s,
		Network: func() string {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.network
		},
		Facts: func() election.Facts {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.facts
		},
		List: func(context.Context) (map[netip.Addr]bool, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return maps.Clone(s.facts.Wanted), nil
		},
		Cluster:    func(context.Context) (string, error) { return "cluster-a", nil },
		AskGateway: func(context.Context) bool { return true },
		Examine:    func(context.Context, map[string][]netip.Addr) election.Examined { return nil },
		Record: func(e election.Event) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.events = append(s.events, e.Kind)
		},
		Clock: s.clock,
	}
	for _, each := range change {
		each(s, &c)
	}
	s.Speaker = New(c)
	var ctx context.Context
	ctx, s.end = context.WithCancel(testlog.Context(t))
	go func() { s.ended <- s.Speaker.Run(ctx) }()
	t.Cleanup(func() {
		s.end()
		if err := <-s.ended; err != nil {
			t.Errorf("Run returned %v after its context ended", err)
		}
		if got := s.answering(); len(got) > 0 {
			t.Errorf("after it stopped it answers for %s", got)
		}
	})
	return s
}

// TestSingleNode: the only node of a cluster answers for what is wanted, as long as it is wanted, without a gap.
func TestSingleNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		wait(15 * time.Second)
		for range 300 {
			wait(31 * time.Millisecond)
			if got := s.answering(); !slices.Equal(got, []netip.Addr{address}) || !s.answers(address) {
				t.Fatalf("after %s it answers for %s", time.Since(s.begun), got)
			}
		}
		state := s.State()
		if !state.Running || state.Problem != "" || state.View == nil || state.View.Owners[address].Node != "node-a" ||
			state.BecameOwner != 1 {
			t.Errorf("its state is %+v", state)
		}
		stored, err := s.stores[network].Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if view, err := election.ParseView(stored.View); err != nil || view.Number != state.View.Number {
			t.Errorf("stored is %q (%v), known the view %d", stored.View, err, state.View.Number)
		}
		s.set(func() { s.facts.Wanted = map[netip.Addr]bool{} })
		wait(5 * time.Second)
		if got := s.answering(); len(got) > 0 || s.answers(address) || s.State().LostOwnership != 1 {
			t.Errorf("it answers for %s, which is no longer wanted; %+v", got, s.State())
		}
	})
}

// TestReplaced: an agent beside which another one stands by ends without a hand-over: it sends one more heartbeat, lets
// the other one continue at once, answers until its lease has expired, and writes nothing.
func TestReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var released atomic.Int32
		s := start(t, func(_ *harness, c *Config) {
			c.Waiting = func() bool { return true }
			c.Release = func() { released.Add(1) }
		})
		wait(15 * time.Second)
		before, err := s.stores[network].Read(t.Context())
		if err != nil || len(s.answering()) != 1 {
			t.Fatalf("it answers for %s, %v", s.answering(), err)
		}
		s.end()
		wait(time.Millisecond)
		if released.Load() != 1 || len(s.answering()) != 1 {
			t.Errorf("at its end it released its turn %d times and answers for %s", released.Load(), s.answering())
		}
		wait(time.Second)
		if len(s.ended) != 1 || len(s.answering()) != 0 {
			t.Errorf("a second later it has not ended (%d), and answers for %s", len(s.ended), s.answering())
		}
		if after, err := s.stores[network].Read(t.Context()); err != nil || after != before {
			t.Errorf("%+v became %+v (%v)", before, after, err)
		}
		if slices.Contains(s.events, election.LostOwnership) || slices.Contains(s.events, election.LeaseLost) {
			t.Errorf("it recorded %v", s.events)
		}
	})
}

// TestQuietAPI: while nothing happens, nothing is written.
func TestQuietAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		wait(15 * time.Second)
		before, err := s.stores[network].Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		wait(time.Minute)
		if after, err := s.stores[network].Read(t.Context()); err != nil || after != before {
			t.Errorf("in a minute in which nothing happened %+v became %+v (%v)", before, after, err)
		}
	})
}

// TestWithoutKey: a node that cannot sign announces nothing and reports why; when the key appears it announces.
func TestWithoutKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := heartbeat.NewKeys()
		s := start(t, func(_ *harness, c *Config) { c.Transport.Keys = keys })
		wait(20 * time.Second)
		if state := s.State(); len(s.answering()) > 0 || state.Problem == "" {
			t.Errorf("without a key it answers for %s and reports %q", s.answering(), state.Problem)
		}
		keys.Set(contract.FormatAnnouncerKey(contract.AnnouncerKey{1}), nil)
		s.Changed()
		wait(20 * time.Second)
		if state := s.State(); len(s.answering()) != 1 || state.Problem != "" {
			t.Errorf("with a key it answers for %s and reports %q", s.answering(), state.Problem)
		}
	})
}

// TestSharedKey: a heartbeat that another cluster signed with our key shows in the state until none has come for
// minutes.
func TestSharedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		wait(15 * time.Second)
		if s.State().KeyShared {
			t.Error("it reports a shared key before it heard one")
		}
		current := &session{Speaker: s.Speaker, inbox: make(chan election.Input, 1)}
		current.foreign("node-x")
		wait(sharedFor - time.Second)
		if !s.State().KeyShared {
			t.Error("it does not report a shared key")
		}
		wait(2 * time.Second)
		if s.State().KeyShared {
			t.Error("it reports a shared key that it has not heard for minutes")
		}
	})
}

// TestAnotherNetwork: what was announced on one network is not announced on the next, nor while there is none.
func TestAnotherNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		wait(15 * time.Second)
		s.set(func() { s.network = "" })
		wait(time.Second)
		if got := s.answering(); len(got) > 0 || s.State().Running {
			t.Errorf("without a network it answers for %s", got)
		}
		s.set(func() {
			s.network = otherNetwork
			s.facts.Wanted = map[netip.Addr]bool{netip.MustParseAddr("198.51.100.3"): true}
		})
		wait(20 * time.Second)
		if got := s.answering(); !slices.Equal(got, []netip.Addr{netip.MustParseAddr("198.51.100.3")}) {
			t.Errorf("on the other network it answers for %s", got)
		}
	})
}

// duplicated is an election that hears, while the test wants it to, a later agent of its own name before each input.
type duplicated struct {
	Election
	config election.Config
	by     func() bool
	times  uint64
}

func (d *duplicated) Step(now time.Duration, in election.Input) election.Output {
	if d.by() {
		d.times++
		d.Election.Step(now, election.Heard{Heartbeat: &election.Heartbeat{Node: d.config.Node, Boot: d.config.Boot + 1,
			Sequence: d.times}})
	}
	return d.Election.Step(now, in)
}

// TestLaterAgent: beside a later agent of its name it is silent. When that is gone it answers again, as a new run,
// because other nodes ignore earlier runs.
func TestLaterAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var there atomic.Bool
		var boots []uint64
		s := start(t, func(_ *harness, c *Config) {
			c.NewElection = func(c election.Config) Election {
				boots = append(boots, c.Boot)
				return &duplicated{Election: election.New(c), config: c, by: there.Load}
			}
		})
		wait(15 * time.Second)
		there.Store(true)
		wait(5 * time.Second)
		if got := s.answering(); len(got) > 0 || len(boots) != 1 {
			t.Errorf("beside a later agent it answers for %s in run %d, want silence in the first", got, len(boots))
		}
		there.Store(false)
		wait(15 * time.Second)
		got := s.answering()
		if !slices.Equal(got, []netip.Addr{address}) || len(boots) != 2 || boots[1] <= boots[0] {
			t.Errorf("after it is gone it answers for %s in the runs %d, want a second, later one", got, boots)
		}
	})
}

// TestBrokenWatch: errors of netlink, of the subscription and of each look at the interface, restart the watch, not the
// session: it stays the same run, writes nothing, and answers all the time.
func TestBrokenWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		watched := 0
		s := start(t, func(h *harness, c *Config) {
			c.NewElection = func(c election.Config) Election {
				runs++
				return election.New(c)
			}
			wire := responder.New(responder.Config{
				Interface: func() string { return "bond0.100" },
				Open:      func(string) (*packet.Port, error) { return nil, packet.ErrUnreadable },
				Watch: func(context.Context, func()) error {
					watched++
					time.Sleep(7 * time.Second)
					return errors.New("receive changes of the network: no buffer space available")
				},
			})
			c.Responder = grants{wire, h}
		})
		wait(15 * time.Second)
		before, err := s.stores[network].Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 600 {
			wait(100 * time.Millisecond)
			if !s.answers(address) {
				t.Fatalf("after %s it does not answer", time.Since(s.begun))
			}
		}
		after, err := s.stores[network].Read(t.Context())
		if err != nil || after != before || runs != 1 || watched < 3 {
			t.Errorf("%d runs, %d watches; %+v became %+v (%v)", runs, watched, before, after, err)
		}
	})
}

// grants is a Responder whose grants the harness sees, too.
type grants struct {
	*responder.Responder
	seen *harness
}

func (g grants) Grant(t *responder.Table) {
	g.seen.Grant(t)
	g.Responder.Grant(t)
}

// unresponsive is a store that never answers.
type unresponsive struct {
	mu     sync.Mutex
	asked  int
	waited time.Duration
}

func (u *unresponsive) Read(ctx context.Context) (store.Document, error) {
	begun := time.Now()
	<-ctx.Done()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.asked++
	u.waited = max(u.waited, time.Since(begun))
	return store.Document{}, ctx.Err()
}

func (u *unresponsive) Write(ctx context.Context, _ store.Document) (store.Document, error) {
	return u.Read(ctx)
}

func (u *unresponsive) Watch(ctx context.Context, _ func(store.Document)) error {
	<-ctx.Done()
	return nil
}

// TestUnresponsiveAPI: an API server that does not answer is asked with growing timeouts up to a bound; without it no
// node starts to answer.
func TestUnresponsiveAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &unresponsive{}
		s := start(t, func(_ *harness, c *Config) { c.NewStore = func(string) Store { return store } })
		wait(time.Minute)
		store.mu.Lock()
		asked, waited := store.asked, store.waited
		store.mu.Unlock()
		if asked < 10 || asked > 200 || waited != maxTimeout {
			t.Errorf("in a minute it was asked %d times, and waited for up to %s; want 10 to 200 times and up to %s",
				asked, waited, maxTimeout)
		}
		if got := s.answering(); len(got) > 0 {
			t.Errorf("it answers for %s and has never seen a view", got)
		}
		if failures := s.State().APIFailures; failures != uint64(asked) {
			t.Errorf("%d failures are counted, want %d", failures, asked)
		}
	})
}

// TestDeadMajority: of three members two are silent, and what is known of them is that their kubelets renew no Lease.
// The third one asks until they count as off, and takes over.
func TestDeadMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := &election.View{Number: 7, Members: []string{"node-a", "node-b", "node-c"}, Changed: 5, Joined: "node-c",
			Owners: map[netip.Addr]election.Owner{address: {Node: "node-b", Epoch: 6}}}
		encoded, err := view.Encode()
		if err != nil {
			t.Fatal(err)
		}
		var asked atomic.Int64
		s := start(t, func(s *harness, c *Config) {
			s.stores[network] = &memoryStore{version: 1, view: encoded}
			c.Examine = func(_ context.Context, members map[string][]netip.Addr) election.Examined {
				asked.Add(1)
				if len(members) != 2 || !slices.Equal(members["node-b"], []netip.Addr{address}) {
					t.Errorf("it asks about %v, want node-b with its address and node-c", members)
				}
				return election.Examined{"node-b": {Renewal: "1"}, "node-c": {Renewal: "1"}}
			}
		})
		wait(40 * time.Second)
		if got := s.answering(); len(got) > 0 {
			t.Errorf("after 40 s it answers for %s, want nothing: the Leases may have been renewed just before", got)
		}
		wait(20 * time.Second)
		if !s.answers(address) || asked.Load() < 5 {
			t.Errorf("it does not answer after a minute in which it asked %d times", asked.Load())
		}
	})
}

// TestEnd: a node without a successor stops at once, and stopping it twice stops it once.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		wait(15 * time.Second)
		begun := time.Now()
		s.end()
		err := <-s.ended
		s.ended <- err
		if took := time.Since(begun); err != nil || took > handOverTimeout {
			t.Errorf("it took %s to end (%v), want at most %s", took, err, handOverTimeout)
		}
	})
}

// answers reports whether the node answers for an address now.
func (h *harness) answers(a netip.Addr) bool {
	state := h.State()
	return h.clock() < state.Until && slices.Contains(state.Addresses, a)
}

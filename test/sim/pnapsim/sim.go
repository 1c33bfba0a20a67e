// Package pnapsim is a stateful simulator of the phoenixNAP API: token endpoint, servers, IP blocks, public and private
// networks, BGP peer groups, tags, locations and quotas over HTTP, with the real service's state machines on a model
// clock, with faults on demand, and with a judge that reports clients which leak money, touch what is not theirs or
// believe what is not so.
//
// Where documentation and observation say how the real service behaves, the simulator does the same;
// where they are silent, Switches offer each answer. Every exchange is checked against the OpenAPI
// documents of the SDK modules (Specs).
package pnapsim

import (
	"cmp"
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Sim is one simulated service with all its accounts. Its methods may be called from any goroutine.
type Sim struct {
	cfg      Config
	clock    *Clock
	latency  Latency
	switches Switches

	mu       sync.Mutex
	now      time.Time // model time of what is being done
	random   *rand.Rand
	seq      int
	events   []event // by time; those of one time in the order in which they were scheduled
	accounts map[string]*account
	clients  map[string]*client
	tokens   map[string]*token
	pool     pool
	stock    map[string]int // servers sold, by location
	faults   []*fault
	log      requestLog
	judge    judge
	feed     feed
}

// New makes an empty simulation; it starts nothing. It panics when cfg.Switches holds a value that the
// switch does not have (see Switches).
func New(cfg Config) *Sim {
	switches, err := cfg.Switches.withDefaults()
	if err != nil {
		panic(err)
	}
	if cfg.Clock == nil {
		cfg.Clock = NewManualClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	}
	latency := DefaultLatency()
	if cfg.Latency != nil {
		latency = *cfg.Latency
	}
	cfg.TokenLifetime = cmp.Or(cfg.TokenLifetime, 15*time.Minute)
	cfg.ServerStock = cmp.Or(cfg.ServerStock, 100)
	s := &Sim{cfg: cfg, clock: cfg.Clock, latency: latency, switches: switches, now: cfg.Clock.Now()}
	s.random = rand.New(rand.NewPCG(cfg.RandomSeed, 0x706e6170))
	s.feed.bell = make(chan struct{})
	s.clear()
	return s
}

// clear forgets every account and everything that was going on.
func (s *Sim) clear() {
	s.events = nil
	s.accounts = map[string]*account{}
	s.clients = map[string]*client{}
	s.tokens = map[string]*token{}
	s.pool = pool{ranges: defaultPools(), freed: map[netip.Prefix]time.Time{}}
	s.stock = map[string]int{}
	s.faults = nil
	s.log = requestLog{counters: map[string]map[int]int{}}
	s.judge = judge{memories: map[string]*memory{}, published: map[string]publication{}}
}

// enter locks the simulation and lets everything happen that is due; leave must be called.
func (s *Sim) enter() (leave func()) {
	s.mu.Lock()
	s.settle()
	return s.leave
}

func (s *Sim) leave() {
	s.refreshFeed()
	s.mu.Unlock()
}

// settle fires the due events in their order, each at its own model time.
func (s *Sim) settle() {
	now := s.clock.Now()
	for len(s.events) > 0 && !s.events[0].at.After(now) {
		e := s.events[0]
		s.events = slices.Delete(s.events, 0, 1)
		s.at(e.at)
		e.fire()
		s.assertInvariants()
		s.refreshFeed()
	}
	s.at(now)
}

// at moves the model time of what is being done; it never goes back.
func (s *Sim) at(now time.Time) {
	if now.After(s.now) {
		s.now = now
	}
}

func (s *Sim) after(d Duration, fire func()) { s.schedule(s.now.Add(time.Duration(d)), fire) }

func (s *Sim) schedule(at time.Time, fire func()) {
	i := slices.IndexFunc(s.events, func(e event) bool { return e.at.After(at) })
	if i < 0 {
		i = len(s.events)
	}
	s.events = slices.Insert(s.events, i, event{at: at, fire: fire})
	s.feed.ring()
}

// clientTime is the model time that passes while d passes for clients.
func (s *Sim) clientTime(d time.Duration) time.Duration {
	return time.Duration(float64(d) * s.clock.Scale())
}

// make numbers objects in the order in which they are made.
func (s *Sim) make(id string) made {
	s.seq++
	return made{seq: s.seq, id: id}
}

// newID makes an ID in the API's form, 24 hexadecimal digits.
func (s *Sim) newID() string { return s.randomHex(12) }

func (s *Sim) randomHex(n int) string {
	raw := make([]byte, n)
	for i := range raw {
		raw[i] = byte(s.random.Uint32())
	}
	return hex.EncodeToString(raw)
}

func (s *Sim) first31() bool { return s.switches.First31IsGateway == "on" }

// Clock is the model clock of the simulation.
func (s *Sim) Clock() *Clock { return s.clock }

// Advance makes the model time leap and lets everything happen that is due.
func (s *Sim) Advance(d time.Duration) {
	s.clock.Advance(d)
	defer s.enter()()
}

// Restart is a restart of the service: all tokens and armed faults are gone; without keepState the
// accounts are gone too.
func (s *Sim) Restart(keepState bool) {
	defer s.enter()()
	if !keepState {
		s.clear()
		return
	}
	s.tokens = map[string]*token{}
	s.faults = nil
}

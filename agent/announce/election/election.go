package election

import (
	"math/rand/v2"
	"net/netip"
	"time"
)

// Config is what a Core is made of.
type Config struct {
	// Node is the name of the Node.
	Node string
	// Boot tells this life of the agent apart from the ones before and is greater than theirs.
	Boot uint64
	// First is the number of a view that is made from nothing; it must be greater than that of any view that was deleted.
	// Seconds since 1970 will do: views change less than once a second in the long run.
	First uint64
	// Seed makes the jitter of heartbeats; nodes should have different ones.
	Seed uint64
	// Interval is the time between two heartbeats; 0 means StandardInterval. A slower one makes all that follows from silence
	// slower in proportion. All nodes must have the same: one of another is not to be heard.
	Interval time.Duration
}

// StandardInterval is the usual time between two heartbeats.
const StandardInterval = 100 * time.Millisecond

// Election is what one node knows. It belongs to one goroutine.
type Election struct {
	Config
	id     ID
	rules  rules
	random *rand.Rand

	// now is the time of the step, begun that of the first, stepped that of the last, and resumed when the process went on
	// after it had stood still.
	now, begun, stepped, resumed time.Duration

	facts     Facts
	goneIDs   map[ID]bool
	gatewayAt time.Duration
	peers     map[ID]*peer
	// duplicateAt is when a later agent of the same name was last heard.
	duplicateAt time.Duration

	// view is the newest that is known, version that of its object, members and addresses are taken from it.
	view      *View
	version   string
	members   []ID
	addresses []netip.Addr
	// seen is the highest number that is known to exist.
	seen  uint64
	marks []mark

	owned     map[netip.Addr]*ownership
	draining  map[netip.Addr]draining
	releases  map[netip.Addr]release
	waiting   int // owned that do not answer
	granted   []netip.Addr
	stale     bool // granted is
	lease     time.Duration
	leaseLost bool

	api      apiState
	holdDown holdDown
	pending  map[string]time.Duration

	sequence uint64
	sent     [32]sending
	beatAt   time.Duration // the last
	nextBeat time.Duration
	urgent   bool // the next heartbeat is due at once
	changed  bool // a look at what is to be changed is due at once

	events  []Event
	times   []time.Duration
	numbers []uint64
}

// sending is when a heartbeat was sent.
type sending struct {
	sequence uint32
	at       time.Duration
}

// New returns a core that knows nothing yet.
func New(config Config) *Election {
	return &Election{
		Config: config, id: IDOf(config.Node), rules: standardRules().paced(config.Interval),
		random: rand.New(rand.NewPCG(config.Seed, config.Boot)), //nolint:gosec // jitter is no secret
		begun:  never, resumed: never, gatewayAt: never, duplicateAt: never, lease: never, leaseLost: true, beatAt: never,
		peers: map[ID]*peer{}, owned: map[netip.Addr]*ownership{}, draining: map[netip.Addr]draining{}, releases: map[netip.Addr]release{},
		pending: map[string]time.Duration{}, holdDown: holdDown{strikeAt: never, joinAt: never, removedAt: never}, api: apiState{askedAt: never},
		// Any start will do that differs from that of the life before, and leaves room for Unheard and Refused.
		sequence: config.Boot*0x9e3779b97f4a7c15>>33 | 2,
	}
}

// Step takes an input and says what is to be done.
func (c *Election) Step(now time.Duration, in Input) Output {
	c.pass(now)
	ticked := false
	switch in := in.(type) {
	case Tick:
		ticked = true
	case Heard:
		c.hear(in.Heartbeat)
	case Read:
		c.takeRead(in)
	case Wrote:
		c.takeWrote(in)
	case Gateway:
		c.gatewayAt = now
	case Facts:
		c.takeFacts(in)
	}
	c.noteSilent()
	c.acknowledge()
	c.renew()
	c.begin()
	var out Output
	if ticked || c.changed {
		c.changed = false
		c.forget()
		c.decide(&out)
	}
	c.ask(&out)
	out.Grant = c.grant()
	out.Send = c.heartbeat()
	out.Events, c.events = c.events, nil
	out.Done = c.done()
	out.Restart = c.duplicateAt != never && !c.deposed() && !c.facts.Leaving
	out.Next = c.next()
	return out
}

// pass notes the time. Whoever stood still cannot say that others were silent meanwhile.
func (c *Election) pass(now time.Duration) {
	if c.begun == never {
		c.begun, c.stepped, c.nextBeat = now, now, now
		if c.rules.startUpDelay {
			c.resumed = now
		}
		c.holdDown.until = now + c.rules.holdDown
	}
	c.now = max(now, c.stepped)
	if c.now-c.stepped >= c.rules.suspectTimeout {
		c.resumed = c.now
	}
	c.stepped = c.now
}

func (c *Election) takeFacts(f Facts) {
	c.holdDown.observe(f.Link && f.Candidate, c.now, c.rules)
	c.facts = f
	c.goneIDs = nil
	for name := range f.Gone {
		if c.goneIDs == nil {
			c.goneIDs = map[ID]bool{}
		}
		c.goneIDs[IDOf(name)] = true
	}
	c.urgent, c.changed = true, true
}

func (c *Election) record(kind EventKind, node string) { c.recordAddress(kind, netip.Addr{}, node) }

func (c *Election) recordAddress(kind EventKind, address netip.Addr, node string) {
	c.events = append(c.events, Event{Kind: kind, Address: address, Node: node})
}

// done tells a node that is leaving that nobody waits for it any more.
func (c *Election) done() bool {
	if !c.facts.Leaving {
		return false
	}
	if c.view == nil || !c.facts.Link {
		return true
	}
	if len(c.owned) > 0 || c.view.has(c.Node) {
		return len(c.draining) == 0 && !c.company()
	}
	return len(c.draining) == 0
}

// company tells whether another member is heard that could take over from this node.
func (c *Election) company() bool {
	for _, id := range c.members {
		if p := c.peers[id]; c.heard(p) && !p.last.Flags.Has(Leaving) {
			return true
		}
	}
	return false
}

// next is when the next tick is due.
func (c *Election) next() time.Duration {
	at := c.nextBeat
	if c.urgent {
		at = min(at, c.beatAt+urgentGap)
	}
	for id, p := range c.peers {
		last := max(p.supportedAt, c.resumed)
		if due := last + c.rules.suspectTimeout; due > c.now && due < at && c.view != nil && !c.gone(id) {
			at = due
		}
	}
	for _, k := range c.draining {
		at = min(at, k.until)
	}
	if len(c.marks) > 0 && c.waiting > 0 {
		if due := c.marks[len(c.marks)-1].at + c.rules.suspectTimeout; due > c.now {
			at = min(at, due)
		}
	}
	if due := c.api.due; due > c.now {
		at = min(at, due)
	}
	return max(at, c.now+time.Millisecond)
}

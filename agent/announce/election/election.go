package election

import (
	"math/rand/v2"
	"net/netip"
	"time"
)

// Config configures an Election.
type Config struct {
	// Node is the name of the Node.
	Node string
	// Boot identifies this run of the agent and is greater than that of all earlier runs.
	Boot uint64
	// First is the number of a view that is made from nothing; it must be greater than that of any view that was
	// deleted. Seconds since 1970 are enough: views change less than once a second in the long run.
	First uint64
	// Seed seeds the jitter of heartbeats; nodes should have different ones.
	Seed uint64
	// Interval is the time between two heartbeats; 0 means StandardInterval. All timeouts grow in proportion to it.
	// All nodes must have the same interval; heartbeats with another one are ignored.
	Interval time.Duration
}

// StandardInterval is the usual time between two heartbeats.
const StandardInterval = 100 * time.Millisecond

// Election is the state of one node. It belongs to one goroutine.
type Election struct {
	Config
	id     ID
	rules  rules
	random *rand.Rand

	// now is the time of this step, begun of the first, stepped of the previous one, resumed of one after a standstill.
	now, begun, stepped, resumed time.Duration

	facts     Facts
	offIDs    map[ID]bool
	gatewayAt time.Duration
	peers     map[ID]*peer
	// duplicateAt is when a later agent of the same name last sent a heartbeat.
	duplicateAt time.Duration

	// view is the newest known view and version that of its object; members and addresses are taken from it.
	view      *View
	version   string
	members   []ID
	addresses []netip.Addr
	// seen is the highest number of a view that is known to exist.
	seen  uint64
	marks []mark

	owned     map[netip.Addr]*ownership
	draining  map[netip.Addr]draining
	releases  map[netip.Addr]release
	waiting   int // owned that do not answer
	answered  []netip.Addr
	stale     bool // answered must be computed again
	lease     time.Duration
	leaseLost bool

	api      apiState
	holdDown holdDown
	pending  map[string]time.Duration

	sequence uint64
	sent     [32]sending
	beatAt   time.Duration // when the last heartbeat was sent
	nextBeat time.Duration
	urgent   bool // send the next heartbeat at once
	changed  bool // check at once what must change

	events  []Event
	times   []time.Duration
	numbers []uint64
}

// sending records when a heartbeat was sent.
type sending struct {
	sequence uint32
	at       time.Duration
}

// New returns an Election that knows nothing yet.
func New(config Config) *Election {
	return &Election{
		Config: config, id: IDOf(config.Node), rules: standardRules().withInterval(config.Interval),
		random: rand.New(rand.NewPCG(config.Seed, config.Boot)),
		begun:  never, resumed: never, gatewayAt: never, duplicateAt: never, lease: never, leaseLost: true,
		beatAt: never,
		peers:  map[ID]*peer{}, owned: map[netip.Addr]*ownership{}, draining: map[netip.Addr]draining{},
		releases: map[netip.Addr]release{}, pending: map[string]time.Duration{}, api: apiState{askedAt: never},
		holdDown: holdDown{joinAt: never},
		// Any start works that differs from that of the previous run and leaves room for Unheard and Refused.
		sequence: config.Boot*0x9e3779b97f4a7c15>>33 | 2,
	}
}

// Step takes an input and returns what to do.
func (c *Election) Step(now time.Duration, in Input) Output {
	c.advance(now)
	ticked := false
	switch in := in.(type) {
	case Tick:
		ticked = true
	case Heard:
		c.handleHeartbeat(in.Heartbeat)
	case Read:
		c.handleRead(in)
	case Wrote:
		c.handleWrote(in)
	case Gateway:
		c.gatewayAt = now
	case Facts:
		c.setFacts(in)
	}
	c.updateSilent()
	c.acknowledge()
	c.renew()
	c.takeOver()
	var out Output
	if ticked || c.changed {
		c.changed = false
		c.prunePeers()
		c.decide(&out)
	}
	c.request(&out)
	out.Grant = c.grant()
	out.Send = c.heartbeat()
	out.Events, c.events = c.events, nil
	out.Done = c.done()
	out.Restart = c.duplicateAt != never && !c.superseded() && !c.facts.Leaving
	out.Next = c.next()
	return out
}

// advance sets the time. A process that stood still cannot know that others were silent meanwhile.
func (c *Election) advance(now time.Duration) {
	if c.begun == never {
		c.begun = now
		c.stepped = now
		c.nextBeat = now
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

func (c *Election) setFacts(f Facts) {
	c.holdDown.observe(f.Link && f.Candidate, c.now, c.rules)
	c.facts = f
	c.offIDs = nil
	for name := range f.Gone {
		if c.offIDs == nil {
			c.offIDs = map[ID]bool{}
		}
		c.offIDs[IDOf(name)] = true
	}
	c.urgent = true
	c.changed = true
}

func (c *Election) record(kind EventKind, address netip.Addr, node string) {
	c.events = append(c.events, Event{Kind: kind, Address: address, Node: node})
}

// done reports whether the agent of a node that is leaving may end: no other node waits for it.
func (c *Election) done() bool {
	if !c.facts.Leaving {
		return false
	}
	if c.view == nil || !c.facts.Link {
		return true
	}
	if len(c.owned) > 0 || c.view.has(c.Node) {
		return len(c.draining) == 0 && !c.hasSuccessor()
	}
	return len(c.draining) == 0
}

// hasSuccessor reports whether another member is alive that could take over from this node.
func (c *Election) hasSuccessor() bool {
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
		if due := last + c.rules.suspectTimeout; due > c.now && due < at && c.view != nil && !c.off(id) {
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

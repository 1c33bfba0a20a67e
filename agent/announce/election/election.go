package election

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
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
	// Rebalance is the minimum time between a move of an address and one that only makes the loads more even; zero for
	// none of these.
	Rebalance time.Duration
	// MaxFormat is the newest version of the format of heartbeats that this agent understands; zero for the first.
	MaxFormat uint8
}

// Election is the state of one node. It belongs to one goroutine.
type Election struct {
	Config
	id     ID
	rules  rules
	random *rand.Rand

	// now is the time of this step, begun of the first, stepped of the previous one, resumed of one after a standstill.
	now, begun, stepped, resumed time.Duration

	facts     Facts
	gatewayAt time.Duration
	peers     map[ID]*peer
	// foreignAt is when a heartbeat of another cluster was last reported.
	foreignAt time.Duration
	// duplicateAt is when a later agent of the same name last sent a heartbeat.
	duplicateAt time.Duration

	// view is the newest known view and version that of its object; members and addresses are taken from it. The
	// addresses are the same since the view with the number addressesSince.
	view           *View
	version        string
	members        []ID
	addresses      []netip.Addr
	addressesSince uint64
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

	api          apiState
	budget       budget
	lapse        lapse
	listing      listing
	examinations examinations
	balance      balance
	moves        map[netip.Addr]*failures
	holdDown     holdDown
	pending      map[string]time.Duration

	sequence uint64
	sent     [32]sending
	beatAt   time.Duration // when the last heartbeat was sent
	nextBeat time.Duration
	urgent   bool // send the next heartbeat at once
	// isIsolated is as in Output.
	isIsolated bool
	changed    bool // check at once what must change
	ended      bool // the last heartbeat was sent: another agent of this node continues

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
	rules := standardRules()
	rules.rebalance = config.Rebalance
	return &Election{
		Config: config, id: IDOf(config.Node), rules: rules,
		random: rand.New(rand.NewPCG(config.Seed, config.Boot)),
		begun:  never, resumed: never, gatewayAt: never, duplicateAt: never, foreignAt: never, lease: never,
		leaseLost: true, beatAt: never,
		peers: map[ID]*peer{}, owned: map[netip.Addr]*ownership{}, draining: map[netip.Addr]draining{},
		releases: map[netip.Addr]release{}, pending: map[string]time.Duration{}, moves: map[netip.Addr]*failures{},
		api:      apiState{askedAt: never, requestedAt: never, knownAt: never},
		budget:   budget{paidAt: never, reportedAt: never},
		holdDown: holdDown{joinAt: never}, listing: listing{asOf: never},
		lapse:        lapse{at: never, reachedAt: never},
		examinations: examinations{askedAt: never, members: map[ID]examination{}},
		// Any start works that differs from that of the previous run and leaves room for Unheard and Refused.
		sequence: config.Boot*0x9e3779b97f4a7c15>>33 | 2,
	}
}

// Step takes an input and returns what to do.
func (e *Election) Step(now time.Duration, in Input) Output {
	e.advance(now)
	ticked := false
	switch in := in.(type) {
	case Tick:
		ticked = true
	case Heard:
		e.handleHeartbeat(in.Heartbeat)
	case ReplaySuspect:
		e.handleReplaySuspect(in.Node)
	case Foreign:
		e.handleForeign(in.Node)
	case Read:
		e.handleRead(in)
	case Wrote:
		e.handleWrote(in)
	case Listed:
		e.handleListed(in)
	case Examined:
		e.handleExamined(in)
	case Gateway:
		e.gatewayAt = now
	case Facts:
		e.setFacts(in)
	}
	e.updateSilent()
	e.acknowledge()
	e.renew()
	e.takeOver()
	var out Output
	if ticked || e.changed {
		e.changed = false
		e.prunePeers()
		e.decide(&out)
		e.isIsolated = e.isolated()
	}
	e.request(&out)
	out.Grant = e.grant()
	out.Send = e.heartbeat()
	e.ended = e.facts.Replaced
	out.Events, e.events = e.events, nil
	out.Done = e.done()
	out.Isolated = e.isIsolated
	out.Restart = e.duplicateAt != never && !e.superseded() && !e.facts.Leaving
	out.Next = e.next()
	return out
}

// advance sets the time. A process that stood still cannot know that others were silent meanwhile.
func (e *Election) advance(now time.Duration) {
	if e.begun == never {
		e.begun = now
		e.stepped = now
		e.nextBeat = now
		if e.rules.startUpDelay {
			e.resumed = now
		}
		e.holdDown.until = now + e.rules.holdDown
	}
	e.now = max(now, e.stepped)
	if e.now-e.stepped >= e.rules.suspectTimeout {
		e.resumed = e.now
	}
	e.stepped = e.now
}

func (e *Election) setFacts(f Facts) {
	if e.facts.Standby && !f.Standby {
		e.begin()
	}
	e.holdDown.observe(f.Link && f.Candidate, e.now, e.rules)
	if !sameKeys(f.Wanted, e.facts.Wanted) {
		e.listing.inVain = 0
		e.listing.after = min(e.listing.after, e.listing.requested+e.rules.listAgain)
	}
	e.stale = e.stale || !maps.Equal(f.Outside, e.facts.Outside)
	e.facts = f
	e.urgent = true
	e.changed = true
}

// begin ends the standby: the earlier agent of this node has sent its last heartbeat. It may still be supported, and it
// has promised what this one does not know, as if this one had started now.
func (e *Election) begin() {
	e.begun = e.now
	// The others acknowledge that heartbeat first: so the earlier agent answers for longer, nearly until this one does.
	e.nextBeat = e.now + e.rules.interval
	e.beatAt = e.nextBeat - urgentGap
	e.marks = nil
	e.api.readWanted = true
	for _, o := range e.owned {
		o.continued = true
	}
}

// foreignEvery is the minimum time between two reports that another cluster has the same key.
const foreignEvery = time.Hour

func (e *Election) handleForeign(node string) {
	if e.now-e.foreignAt >= foreignEvery {
		e.foreignAt = e.now
		e.record(OtherCluster, netip.Addr{}, node)
	}
}

// quiet reports whether another agent of this node, or of its name, speaks for it.
func (e *Election) quiet() bool { return e.superseded() || e.facts.Standby || e.ended }

func (e *Election) record(kind EventKind, address netip.Addr, node string) {
	e.events = append(e.events, Event{Kind: kind, Address: address, Node: node})
}

// done reports whether an agent that ends may: no other node waits for it, or its lease has expired.
func (e *Election) done() bool {
	switch {
	case e.facts.Replaced:
		return e.ended && e.lease <= e.now && len(e.draining) == 0
	case !e.facts.Leaving:
		return false
	case e.view == nil || !e.facts.Link || e.facts.Standby:
		return true
	}
	member := len(e.owned) > 0 || e.view.has(e.Node)
	return len(e.draining) == 0 && (!member || !e.hasSuccessor())
}

// hasSuccessor reports whether another member is alive that could take over from this node.
func (e *Election) hasSuccessor() bool {
	return slices.ContainsFunc(e.members, func(id ID) bool {
		p := e.peers[id]
		return e.heard(p) && !p.last.Flags.Has(Leaving)
	})
}

// next is when the next tick is due.
func (e *Election) next() time.Duration {
	at := min(e.nextBeat, e.now+e.rules.interval) // a longer pause would be a standstill
	if e.urgent {
		at = min(at, e.beatAt+urgentGap)
	}
	if due := e.begun + e.rules.suspectTimeout; due > e.now {
		at = min(at, due)
	}
	for id, p := range e.peers {
		last := max(p.supportedAt, e.resumed)
		if due := last + e.rules.suspectTimeout; due > e.now && due < at && e.view != nil && !e.off(id) {
			at = due
		}
	}
	for _, d := range e.draining {
		at = min(at, d.until)
	}
	if len(e.marks) > 0 && e.waiting > 0 {
		if due := e.marks[len(e.marks)-1].at + e.rules.suspectTimeout; due > e.now {
			at = min(at, due)
		}
	}
	if due := e.api.due; due > e.now {
		at = min(at, due)
	}
	return max(at, e.now+time.Millisecond)
}

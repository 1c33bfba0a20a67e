package vip

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/arp"
)

const (
	// freshness is how long an announcement of an address counts: kube-vip sends one every 3 s.
	freshness = 10 * time.Second
	// askAgain is the time between probes of an address without changes, plus up to askMore: what only a probe shows
	// must be known within 30 s, including a second probe and the time between.
	askAgain = 14 * time.Second
	askMore  = 6 * time.Second
	// askSilent is that for an address that no machine answers for, which every node probes, unless it involves the
	// node or is announced. Up to as much again is added.
	askSilent = 30 * time.Second
	// askRetry is when to probe again after a probe that could not be sent.
	askRetry = 5 * time.Second
	// askAnyway is when a node probes although others keep probing in its place.
	askAnyway = 30 * time.Minute
	// scatter spreads the probes of those nodes that are not involved with an address that has changed.
	scatter = 3 * time.Second
	// repeated is how soon the same machine asks again if it got no reply: arp.Prober 300 ms later, kernels 1 s.
	repeated = 2 * time.Second
	// maxClaimants bounds the memory for an address that many machines claim.
	maxClaimants = 8
)

// Scheduler remembers what was received about the watched addresses and decides when to probe them. It is safe for
// concurrent use.
//
// An address is probed by its holder, and by one other node of the network, every 14 to 20 s: a node that receives
// another node's probe postpones its own (as RFC 2236 suppresses reports). So the number of probes on the wire grows
// with the number of addresses and not with that of nodes: about addresses/8 in a second, and addresses × nodes/1800
// for the probe that each node sends every half an hour in any case. Whoever gets no reply repeats the request: that
// shows the others that they have to probe, too. Involved nodes probe a change at once, and the others within 3 s. An
// address that no machine answers for is probed by every node: addresses × nodes/45.
type Scheduler struct {
	// news is called when something is heard that calls for a question.
	news func()

	mu        sync.Mutex
	addresses map[netip.Addr]*schedule
}

// schedule is what was received about one address.
type schedule struct {
	// involved reports that this node holds the address or should hold it.
	involved bool
	// answer is that to our last probe, sent at askedAt; zero when there was none yet.
	answer  arp.Answer
	askedAt time.Time
	// heard are the other machines that announced the address since, with the time at which they did last.
	heard map[string]time.Time
	// others are the announcements of other machines, also before that question; own are those of this one.
	others, own rhythm
	// prober is the other machine that probed the address last, at proberAt. doubted reports that one got no reply
	// since our last probe.
	prober   string
	proberAt time.Time
	doubted  bool
	// changedAt is when there was news last of who announces the address.
	changedAt time.Time
	// next is when to ask.
	next time.Time
}

// rhythm is that of periodic announcements.
type rhythm struct {
	// last is when there was one; quiet that the next was missed already.
	last  time.Time
	quiet bool
}

// note takes an announcement. It reports whether they had stopped.
func (r *rhythm) note(now time.Time) (resumed bool) {
	resumed = r.quiet
	r.last = now
	r.quiet = false
	return resumed
}

// stopped reports, once, that announcements have stopped.
func (r *rhythm) stopped(now time.Time) bool {
	if r.quiet || r.last.IsZero() || now.Sub(r.last) < freshness {
		return false
	}
	r.quiet = true
	return true
}

// fresh reports whether there are announcements.
func (r rhythm) fresh(now time.Time) bool { return !r.last.IsZero() && now.Sub(r.last) < freshness }

// missed is when the next will be missed; the zero Time when none is waited for.
func (r rhythm) missed() time.Time {
	if r.quiet || r.last.IsZero() {
		return time.Time{}
	}
	return r.last.Add(freshness)
}

// NewScheduler returns a scheduler that has received nothing. news must not block.
func NewScheduler(news func()) *Scheduler {
	return &Scheduler{news: news, addresses: map[netip.Addr]*schedule{}}
}

// Watch sets the addresses to follow; involved reports for each whether it involves this node.
func (s *Scheduler) Watch(involved map[netip.Addr]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.addresses, func(a netip.Addr, _ *schedule) bool { _, watched := involved[a]; return !watched })
	for a, here := range involved {
		if s.addresses[a] == nil {
			s.addresses[a] = &schedule{heard: map[string]time.Time{}}
		}
		s.addresses[a].involved = here
	}
}

// Hear takes a packet.
func (s *Scheduler) Hear(h arp.Heard) {
	s.mu.Lock()
	news := s.addresses[h.Address].claim(h)
	if h.Asks() && !h.Own && s.addresses[h.Target].asked(h.MAC, h.At) {
		news = true
	}
	s.mu.Unlock()
	if news {
		s.news()
	}
}

// asked notes that another machine probes the address, which is healthy as far as is known: one machine replied. So our
// own probe can wait, unless the request is repeated: then it got no reply, and asked reports that it is time for ours.
// What a machine asks that claims the address proves nothing: it gets no reply from itself.
func (s *schedule) asked(prober string, now time.Time) (soon bool) {
	if s == nil || !s.answer.Replied || len(s.answer.MACs) != 1 || s.claims(prober) {
		return false
	}
	unanswered := s.prober == prober && now.Sub(s.proberAt) < repeated
	s.prober = prober
	s.proberAt = now
	switch next := now.Add(s.pause(now)); {
	case s.due(now), s.doubted:
	case unanswered:
		s.doubted = true
		if now.Sub(s.askedAt) >= freshness {
			s.soon(now)
			return true
		}
	case next.Before(s.askedAt.Add(askAnyway)):
		s.next = next
	}
	return false
}

// claims reports whether a machine claimed the address.
func (s *schedule) claims(mac string) bool {
	_, heard := s.heard[mac]
	return heard || slices.Contains(s.answer.MACs, mac)
}

// claim remembers which machine announced the address. It reports whether that is new.
func (s *schedule) claim(p arp.Heard) bool {
	switch {
	case s == nil:
		return false
	case p.Own && p.Target != p.Address: // a reply of this machine's kernel, which is not an announcement
		return false
	case p.Own:
		resumed := s.own.note(p.At)
		if resumed {
			s.changedAt = p.At
		}
		return resumed
	case s.others.note(p.At):
		s.changedAt = p.At
	}
	_, heard := s.heard[p.MAC]
	if !heard && len(s.heard) >= maxClaimants {
		delete(s.heard, slices.MinFunc(slices.Collect(maps.Keys(s.heard)),
			func(a, b string) int { return s.heard[a].Compare(s.heard[b]) }))
	}
	s.heard[p.MAC] = p.At
	if heard || slices.Contains(s.answer.MACs, p.MAC) {
		if most := p.At.Add(askAgain + askMore); s.next.After(most) {
			s.next = p.At.Add(s.pause(p.At)) // it was not announced before
		}
		return false
	}
	s.changedAt = p.At
	s.soon(p.At)
	return true
}

// soon schedules a probe: at once where the node is involved.
func (s *schedule) soon(now time.Time) {
	next := now
	if !s.involved {
		next = now.Add(rand.N(scatter))
	}
	if s.next.IsZero() || next.Before(s.next) {
		s.next = next
	}
}

func (s *schedule) due(now time.Time) bool { return !now.Before(s.next) }

// Due returns the addresses to probe now, in their order.
func (s *Scheduler) Due(now time.Time) []netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	var due []netip.Addr
	for a, h := range s.addresses {
		if h.others.stopped(now) {
			// It was announced and is not any more: its announcer may be gone.
			h.changedAt = now
			h.soon(now)
		}
		if h.own.stopped(now) {
			h.changedAt = now
		}
		if h.due(now) {
			due = append(due, a)
		}
	}
	slices.SortFunc(due, netip.Addr.Compare)
	return due
}

// Next is when an address is next due for a probe, or its announcement missed; the zero Time when none is watched.
func (s *Scheduler) Next(now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	var first time.Time
	for _, h := range s.addresses {
		next := h.next
		for _, missed := range []time.Time{h.others.missed(), h.own.missed()} {
			if !missed.IsZero() && missed.Before(next) {
				next = missed
			}
		}
		if first.IsZero() || next.Before(first) {
			first = next
		}
	}
	if !first.IsZero() && first.Before(now) {
		return now
	}
	return first
}

// update calls change with the schedule of an address, if it is watched.
func (s *Scheduler) update(a netip.Addr, change func(*schedule)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if watched := s.addresses[a]; watched != nil {
		change(watched)
	}
}

// Ask schedules a probe of an address as soon as possible.
func (s *Scheduler) Ask(a netip.Addr) {
	s.update(a, func(h *schedule) { h.next = time.Time{} })
}

// Answered takes the answer to a probe that was sent at a time. What was received before does not count any more.
func (s *Scheduler) Answered(a netip.Addr, answer arp.Answer, at time.Time) {
	s.update(a, func(h *schedule) {
		h.answer = answer
		h.askedAt = at
		h.next = at.Add(h.pause(at))
		h.doubted = false
		maps.DeleteFunc(h.heard, func(_ string, heard time.Time) bool { return heard.Before(at) })
	})
}

// Unasked notes that the probe could not be sent.
func (s *Scheduler) Unasked(a netip.Addr, at time.Time) {
	s.update(a, func(h *schedule) { h.next = at.Add(askRetry) })
}

// Proven is when there was last evidence that a machine has the address: a reply to our probe, or an announcement.
func (s *Scheduler) Proven(a netip.Addr) (at time.Time) {
	s.update(a, func(h *schedule) {
		at = h.others.last
		if h.answer.Replied && h.askedAt.After(at) {
			at = h.askedAt
		}
	})
	return at
}

// Record notes on an observation what was received, and returns when the set of announcing machines changed last.
func (s *Scheduler) Record(o *Observation, now time.Time) (changedAt time.Time) {
	s.update(o.Address, func(h *schedule) {
		macs := slices.AppendSeq(slices.Clone(h.answer.MACs), maps.Keys(h.heard))
		slices.Sort(macs)
		o.MACs = slices.Compact(macs)
		o.Replied = h.answer.Replied
		o.Asked = h.askedAt
		o.Announced = h.others.fresh(now)
		changedAt = h.changedAt
	})
	return changedAt
}

// pause is the time until the next probe if nothing changes.
func (s *schedule) pause(now time.Time) time.Duration {
	if s.involved || s.answer.Replied || s.others.fresh(now) {
		return askAgain + rand.N(askMore)
	}
	return askSilent + rand.N(askSilent)
}

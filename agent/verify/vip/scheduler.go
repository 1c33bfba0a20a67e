package vip

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/wire/arp"
)

const (
	// freshness is how long a packet that announces an address speaks for it: kube-vip sends one every 3 s.
	freshness = 10 * time.Second
	// askAgain is the time between questions for an address of which there is no news, and up to askMore besides: what shows
	// only when somebody asks has to be known within 30 s, a second question and what comes between included.
	askAgain = 14 * time.Second
	askMore  = 6 * time.Second
	// askUnannounced is that for an address that nobody announces again and again, with which this node has nothing to do:
	// every node asks for it. Up to as much again is added.
	askUnannounced = 30 * time.Second
	// askRetry is when to ask again after a question that could not be put.
	askRetry = 5 * time.Second
	// askAnyway is when a node asks though others keep asking in its place.
	askAnyway = 30 * time.Minute
	// scatter spreads the questions of those nodes that have nothing to do with an address of which there is news.
	scatter = 3 * time.Second
	// maxClaimants bounds what is remembered of an address that a flood of machines claims.
	maxClaimants = 8
)

// Scheduler remembers what was heard of the watched addresses and says when to ask for one. It is safe for concurrent use.
//
// An address that is announced again and again (kube-vip does every 3 s) is asked for by its holder, and by one other node of
// the network, every 14 to 20 s: whoever hears another ask lets its own question wait. So the questions on the wire grow with
// the number of addresses and not with that of nodes: about addresses/8 in a second, and addresses × nodes/1800 for the
// question that each node puts in half an hour whatever it hears. News is asked for at once, by nodes that have to do with
// the address, and within 3 s by the others. An address that is not announced again, whose kernel alone answers, is asked
// for by every node: addresses × nodes/45.
type Scheduler struct {
	// toRecord is called when something is heard that calls for a question.
	news func()

	mu        sync.Mutex
	addresses map[netip.Addr]*schedule
}

// schedule is what was heard of one address.
type schedule struct {
	// involved tells that this node holds the address or ought to.
	involved bool
	// answer is that to the last question of ours, put at askedAt; zero when there was none yet.
	answer  arp.Answer
	askedAt time.Time
	// heard are the other machines that announced the address since, with the time at which they did last.
	heard map[string]time.Time
	// others are the announcements of other machines, also before that question; own are those of this one.
	others, own rhythm
	// changedAt is when there was news last of who announces the address.
	changedAt time.Time
	// next is when to ask.
	next time.Time
}

// rhythm is that of announcements that are repeated.
type rhythm struct {
	// last is when there was one; quiet that the next was missed already.
	last  time.Time
	quiet bool
}

// note takes an announcement. It tells whether they had ceased.
func (r *rhythm) note(now time.Time) (resumed bool) {
	resumed = r.quiet
	r.last, r.quiet = now, false
	return resumed
}

// stopped tells, once, that announcements have ceased.
func (r *rhythm) stopped(now time.Time) bool {
	if r.quiet || r.last.IsZero() || now.Sub(r.last) < freshness {
		return false
	}
	r.quiet = true
	return true
}

// fresh tells whether there are announcements.
func (r rhythm) fresh(now time.Time) bool { return !r.last.IsZero() && now.Sub(r.last) < freshness }

// missed is when the next will be missed; the zero Time when none is waited for.
func (r rhythm) missed() time.Time {
	if r.quiet || r.last.IsZero() {
		return time.Time{}
	}
	return r.last.Add(freshness)
}

// NewScheduler returns an ear that has heard nothing. news must not block.
func NewScheduler(news func()) *Scheduler {
	return &Scheduler{news: news, addresses: map[netip.Addr]*schedule{}}
}

// Watch sets the addresses to be remembered; involved tells of each whether this node has to do with it.
func (e *Scheduler) Watch(involved map[netip.Addr]bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.addresses, func(a netip.Addr, _ *schedule) bool { _, watched := involved[a]; return !watched })
	for a, is := range involved {
		if e.addresses[a] == nil {
			e.addresses[a] = &schedule{heard: map[string]time.Time{}}
		}
		e.addresses[a].involved = is
	}
}

// Hear takes a packet.
func (e *Scheduler) Hear(h arp.Heard) {
	e.mu.Lock()
	if h.Asks() && !h.Own {
		e.addresses[h.Target].postpone(h.MAC, h.At)
	}
	news := e.addresses[h.Address].claim(h)
	e.mu.Unlock()
	if news {
		e.news()
	}
}

// postpone lets our question wait, because another node asks. It does so only while all is well as far as is known: one
// machine replied and goes on announcing the address. What that machine asks itself says nothing of its own answers.
func (h *schedule) postpone(asker string, now time.Time) {
	if h == nil || h.due(now) || !h.answer.Replied || len(h.answer.MACs) != 1 || h.answer.MACs[0] == asker || !h.others.fresh(now) {
		return
	}
	if next := now.Add(h.pause(now)); next.Before(h.askedAt.Add(askAnyway)) {
		h.next = next
	}
}

// claim remembers who announced the address. It tells whether that is news.
func (h *schedule) claim(p arp.Heard) bool {
	switch {
	case h == nil:
		return false
	case p.Own:
		return h.announced(p)
	case h.others.note(p.At):
		h.changedAt = p.At
	}
	_, heard := h.heard[p.MAC]
	if !heard && len(h.heard) >= maxClaimants {
		delete(h.heard, h.oldest())
	}
	h.heard[p.MAC] = p.At
	if heard || slices.Contains(h.answer.MACs, p.MAC) {
		if most := p.At.Add(askAgain + askMore); h.next.After(most) {
			h.next = p.At.Add(h.pause(p.At)) // it was not announced before
		}
		return false
	}
	h.changedAt = p.At
	h.soon(p.At)
	return true
}

// announced takes what this machine sent: announcements, and replies of its kernel, which say nothing of the announcer.
func (h *schedule) announced(p arp.Heard) (news bool) {
	if p.Target != p.Address {
		return false
	}
	if news = h.own.note(p.At); news {
		h.changedAt = p.At
	}
	return news
}

// oldest is the machine that was heard longest ago.
func (h *schedule) oldest() (mac string) {
	for m, at := range h.heard {
		if mac == "" || at.Before(h.heard[mac]) {
			mac = m
		}
	}
	return mac
}

// soon has the address asked for: at once where the node has to do with it.
func (h *schedule) soon(now time.Time) {
	next := now
	if !h.involved {
		next = now.Add(rand.N(scatter))
	}
	if h.next.IsZero() || next.Before(h.next) {
		h.next = next
	}
}

func (h *schedule) due(now time.Time) bool { return !now.Before(h.next) }

// Due returns the addresses to be asked for now, in their order.
func (e *Scheduler) Due(now time.Time) []netip.Addr {
	e.mu.Lock()
	defer e.mu.Unlock()
	var due []netip.Addr
	for a, h := range e.addresses {
		if h.others.stopped(now) {
			// It was announced and is not any more: whoever did may be gone.
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

// Next is when an address is to be asked for, or missed, next; the zero Time when none is watched.
func (e *Scheduler) Next(now time.Time) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	var first time.Time
	for _, h := range e.addresses {
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

// Ask has an address asked for at the next opportunity.
func (e *Scheduler) Ask(a netip.Addr) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if h := e.addresses[a]; h != nil {
		h.next = time.Time{}
	}
}

// Answered takes the answer to a question that was put at a time. What was heard before is history.
func (e *Scheduler) Answered(a netip.Addr, answer arp.Answer, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.addresses[a]
	if h == nil {
		return
	}
	h.answer, h.askedAt, h.next = answer, at, at.Add(h.pause(at))
	maps.DeleteFunc(h.heard, func(_ string, heard time.Time) bool { return heard.Before(at) })
}

// Proven is when there was evidence last that somebody has the address: a reply to a question of ours, or an announcement.
func (e *Scheduler) Proven(a netip.Addr) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.addresses[a]
	if h == nil {
		return time.Time{}
	}
	if h.answer.Replied && h.askedAt.After(h.others.last) {
		return h.askedAt
	}
	return h.others.last
}

// Unasked notes that the question could not be put.
func (e *Scheduler) Unasked(a netip.Addr, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if h := e.addresses[a]; h != nil {
		h.next = at.Add(askRetry)
	}
}

// Record notes on an observation what was heard of its address. It returns when there was news last of who announces it, this
// machine included.
func (e *Scheduler) Record(o *Observation, now time.Time) (changedAt time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.addresses[o.Address]
	if h == nil {
		return time.Time{}
	}
	macs := slices.AppendSeq(slices.Clone(h.answer.MACs), maps.Keys(h.heard))
	slices.Sort(macs)
	o.MACs, o.Replied, o.Asked, o.Announced = slices.Compact(macs), h.answer.Replied, h.askedAt, h.others.fresh(now)
	return h.changedAt
}

// pause is the time until the address is asked for if there is no news.
func (h *schedule) pause(now time.Time) time.Duration {
	if h.involved || h.others.fresh(now) {
		return askAgain + rand.N(askMore)
	}
	return askUnannounced + rand.N(askUnannounced)
}

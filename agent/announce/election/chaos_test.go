package election

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// A walk starts a world of one to seven nodes, injects random faults for some seconds, heals it and checks that it
// recovers. Two answers for one address end it at any instant.
type walk struct{ *world }

// fault is a kind of fault: it injects one near a node, undoes it after some time, and returns what it is.
type fault func(m *machine, d time.Duration) string

func newWalk(seed uint64, r rules) *walk {
	if seed%2 == 1 { // addresses move for even loads, sixty times as often as is usual
		r.rebalance = time.Second
		r.calm = 500 * time.Millisecond
	}
	w := newWorld(seed, 0, 0, r)
	nodes := 1 + w.random.IntN(7)
	addresses := 1 + w.random.IntN(4)
	if w.chance(0.4) {
		nodes = 2 + w.random.IntN(2)
	}
	w = newWorld(seed, nodes, addresses, r)
	w.clockBack = 0.15
	w.formats = w.chance(0.25)
	for _, m := range w.nodes {
		m.facts.HasGateway = !w.chance(0.1)
		m.facts.Witness = m.index > 0 && len(w.nodes) > 2 && w.chance(0.1)
		m.facts.Candidate = !m.facts.Witness
	}
	w.kinds = []fault{
		w.crash, w.crash, w.freeze, w.freeze, w.cutPair, w.cutPair, w.cutNode, w.split, w.split, w.lose, w.slow,
		w.loseAPI, w.loseAPI, w.loseAPIForAll, w.slowAPI, w.unready,
		w.leave, w.updateOne, w.updateOne, w.unfit, w.outside, w.outdate, w.outdate, w.dropService, w.dropService,
		w.tamper, w.loseGateway, w.linkDown,
	}
	return &walk{w}
}

// play runs the walk and returns what is wrong.
func (w *walk) play() string {
	for _, m := range w.nodes {
		w.after(w.between(0, time.Second), m.start)
	}
	w.run(w.between(time.Second, 4*time.Second))
	w.faults = 3 + w.random.IntN(14)
	span := w.between(500*time.Millisecond, 6*time.Second)
	for range w.faults {
		w.after(w.between(0, span), w.disturb)
	}
	w.run(span + w.between(0, 3*time.Second))
	w.heal()
	if broken := w.recovers(); broken != "" {
		return broken
	}
	return w.stabilizes()
}

// randomNode returns a node.
func (w *world) randomNode() *machine { return w.nodes[w.random.IntN(len(w.nodes))] }

// faultDuration is how long a fault lasts: mostly about as long as the timeouts of the rules.
func (w *world) faultDuration() time.Duration {
	if w.chance(0.3) {
		return w.between(time.Second, 6*time.Second)
	}
	return w.between(20*time.Millisecond, 800*time.Millisecond)
}

// disturb injects one fault and often undoes it later.
func (w *world) disturb() {
	m := w.randomNode()
	d := w.faultDuration()
	what := w.kinds[w.random.IntN(len(w.kinds))](m, d)
	w.note("fault: %s %s for %s", what, m.name, d)
}

func (w *world) crash(m *machine, d time.Duration) string {
	m.stop()
	if w.chance(0.6) {
		w.after(d, func() {
			if !w.healed {
				m.start()
			}
		})
	}
	return "crash"
}

func (w *world) freeze(m *machine, d time.Duration) string {
	m.pause()
	w.after(d, m.resume)
	return "pause"
}

func (w *world) cutPair(m *machine, d time.Duration) string {
	other := w.randomNode()
	both := w.chance(0.5)
	m.deaf[other.index] = true
	if both {
		other.deaf[m.index] = true
	}
	w.after(d, func() {
		m.deaf[other.index] = false
		if both {
			other.deaf[m.index] = false
		}
	})
	return "no way from " + other.name + " to"
}

func (w *world) cutNode(m *machine, d time.Duration) string {
	receive := w.chance(0.7)
	send := w.chance(0.7)
	gateway := w.chance(0.7)
	cut := func(is bool) {
		if receive {
			w.deafen(m, is)
		}
		if send {
			w.mute(m, is)
		}
		m.noGateway = is && gateway
	}
	cut(true)
	w.after(d, func() { cut(false) })
	return "cut"
}

// split parts the VLAN in two; the gateway may be on both sides, as with a pair of routers.
func (w *world) split(_ *machine, d time.Duration) string {
	side := make([]bool, len(w.nodes))
	for i := range side {
		side[i] = w.chance(0.5)
	}
	set := func(cut bool) {
		for _, a := range w.nodes {
			for _, b := range w.nodes {
				if side[a.index] != side[b.index] {
					a.deaf[b.index] = cut
				}
			}
		}
	}
	set(true)
	w.after(d, func() { set(false) })
	return fmt.Sprintf("split %v", side)
}

func (w *world) lose(_ *machine, d time.Duration) string {
	w.loss = w.random.Float64() * 0.6
	w.after(d, func() { w.loss = 0 })
	return fmt.Sprintf("loss %.2f", w.loss)
}

func (w *world) slow(_ *machine, d time.Duration) string {
	w.delay = w.between(time.Millisecond, 400*time.Millisecond)
	w.after(d, func() { w.delay = time.Millisecond })
	return "delay " + w.delay.String()
}

func (w *world) loseAPI(m *machine, d time.Duration) string {
	m.noAPI = true
	w.after(d, func() {
		m.noAPI = false
		w.relist(m)
	})
	return "no API for"
}

func (w *world) loseAPIForAll(_ *machine, d time.Duration) string {
	w.apiDown = true
	w.after(d, w.restoreAPI)
	return "no API for all"
}

func (w *world) restoreAPI() {
	w.apiDown = false
	for _, m := range w.nodes {
		w.relist(m)
	}
}

func (w *world) slowAPI(_ *machine, d time.Duration) string {
	w.apiDelay = w.between(time.Millisecond, 500*time.Millisecond)
	w.apiLate = w.random.Float64() * 0.5
	w.after(d, func() {
		w.apiDelay = 10 * time.Millisecond
		w.apiLate = 0
	})
	return "slow API " + w.apiDelay.String()
}

func (w *world) unready(m *machine, d time.Duration) string {
	w.set(m, d, func(f *Facts, is bool) { f.Candidate = !is && !f.Witness })
	return "unready"
}

func (w *world) linkDown(m *machine, d time.Duration) string {
	w.isolate(m, true)
	w.after(d, func() { w.isolate(m, false) })
	w.set(m, d, func(f *Facts, is bool) { f.Link = !is })
	return "link down"
}

// set changes the facts of a node for a time.
func (w *world) set(m *machine, d time.Duration, change func(f *Facts, is bool)) {
	update := func(is bool) {
		change(&m.facts, is)
		if m.alive {
			m.sendFacts()
		}
	}
	update(true)
	w.after(d, func() { update(false) })
}

func (w *world) leave(m *machine, d time.Duration) string {
	if m.alive {
		m.facts.Leaving = true
		m.sendFacts()
		w.after(d, func() {
			if w.healed {
				return
			}
			m.facts.Leaving = false
			m.stop()
			m.start()
		})
	}
	return "leaving"
}

// updateOne replaces the agent of a node by another one, which starts beside it. A DaemonSet never has more than two.
func (w *world) updateOne(m *machine, d time.Duration) string {
	beside := slices.ContainsFunc(w.nodes, func(other *machine) bool { return other != m && other.index == m.index })
	if !m.alive || m.facts.Leaving || beside {
		return "nothing"
	}
	w.update(m, d)
	return "update"
}

func (w *world) unfit(m *machine, d time.Duration) string {
	a := address(w.random.IntN(w.addresses))
	w.set(m, d, func(f *Facts, is bool) {
		f.Wanted = map[netip.Addr]bool{}
		if is {
			f.Wanted[a] = false
		}
	})
	return "no endpoint of " + a.String()
}

// outside is a node that does not know the block of an address.
func (w *world) outside(m *machine, d time.Duration) string {
	a := address(w.random.IntN(w.addresses))
	w.set(m, d, func(f *Facts, is bool) {
		f.Wanted = map[netip.Addr]bool{}
		f.Outside = map[netip.Addr]bool{}
		if is {
			f.Wanted[a] = false
			f.Outside[a] = true
		}
	})
	return "no block of " + a.String()
}

// outdate is a node whose list of Services stays as it is, or lacks one, whatever happens to them.
func (w *world) outdate(m *machine, d time.Duration) string {
	m.outdated = maps.Clone(w.wanted)
	if w.chance(0.5) {
		delete(m.outdated, address(w.random.IntN(w.addresses)))
	}
	m.sendFacts()
	w.after(d, func() {
		m.outdated = nil
		m.sendFacts()
	})
	return "an outdated list of Services"
}

// dropService deletes a Service and creates it again later.
func (w *world) dropService(_ *machine, d time.Duration) string {
	a := address(w.random.IntN(w.addresses))
	if !w.wanted[a] {
		return "nothing"
	}
	update := func() {
		for _, m := range w.nodes {
			w.after(w.between(0, 300*time.Millisecond), func() {
				if m.alive {
					m.sendFacts()
				}
			})
		}
	}
	delete(w.wanted, a)
	update()
	w.after(d, func() {
		w.wanted[a] = true
		update()
	})
	return "without the Service " + a.String()
}

// tamper is a person who deletes or destroys the view, or restores an old one. All nodes must learn of it at once:
// deleting the view of nodes that cannot be reached deletes what they depend on.
func (w *world) tamper(_ *machine, _ time.Duration) string {
	whole := !w.apiDown && w.loss == 0 && w.delay == time.Millisecond && w.apiLate == 0
	for _, m := range w.nodes {
		whole = whole && m.alive && !m.paused && !m.noAPI && m.facts.Link && !slices.Contains(m.deaf, true)
	}
	if !whole || w.object.view == nil {
		return "nothing"
	}
	o := object{true, w.object.version + 1, nil}
	switch w.random.IntN(3) {
	case 0:
		o.exists = false
	case 1:
		old := *w.object.view
		old.Number--
		if old.validate() == nil { // ParseView rejects a view that contradicts itself
			o.view = &old
		}
	}
	w.store(o)
	return "a person changed the view near"
}

func (w *world) loseGateway(m *machine, d time.Duration) string {
	m.noGateway = true
	w.after(d, func() { m.noGateway = false })
	return "no gateway for"
}

// heal ends all faults but two: a dead node stays dead, and a leaving node continues to leave. What was scheduled to
// end later ends again, which changes nothing.
func (w *world) heal() {
	w.loss = 0
	w.delay = time.Millisecond
	w.apiDelay = 10 * time.Millisecond
	w.apiLate = 0
	for _, m := range w.nodes {
		if m.outdated != nil { // it learns what was deleted before that is created again
			m.outdated = nil
			m.sendFacts()
		}
	}
	for i := range w.addresses {
		w.wanted[address(i)] = true
	}
	for _, m := range w.nodes {
		w.deafen(m, false)
		m.noGateway = false
		m.noAPI = false
		m.facts.Candidate = !m.facts.Witness
		m.facts.Link = true
		m.facts.Wanted = nil
		m.facts.Outside = nil
		m.resume()
		if m.alive && !m.facts.Leaving {
			m.sendFacts()
		}
	}
	w.restoreAPI()
	w.finishUpdates()
	w.healed = true
	w.note("healed")
}

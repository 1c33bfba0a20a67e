package election

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// A world is a VLAN, an API server and some nodes in virtual time, driven by a seed. Each node is a real Election;
// everything around it is simulated. A node's clock has an offset and runs up to a hundredth too fast or slow.
type world struct {
	random *rand.Rand
	now    time.Duration
	queue  events
	order  uint64
	rules  rules
	nodes  []*machine
	object object
	wanted map[netip.Addr]bool
	// addresses is the maximum number of addresses.
	addresses int

	// apiDown is for all nodes; apiDelay is the maximum delay in one direction; apiLate is the probability that a
	// request is carried out long after it timed out.
	apiDown  bool
	apiDelay time.Duration
	apiLate  float64
	// lateAt is when the last of them was carried out.
	lateAt time.Duration
	// loss is the probability that a frame is lost, delay the maximum time that it takes.
	loss  float64
	delay time.Duration

	// clockBack is the probability that the wall clock of a machine was set back when its agent starts.
	clockBack float64

	// formats: at each start, an agent understands the first version of the format, or the second one as well.
	formats bool

	// kinds are the faults of a walk.
	kinds []fault
	// declared are the Nodes that someone has declared off.
	declared map[string]bool
	// renewals counts those of the Leases of the Nodes; zero until keepLeases.
	renewals map[string]int

	violation string
	overlap   time.Duration // the longest time that two nodes answered
	writes    int
	evened    int // writes that only made the loads more even
	asked     int // probes of the gateway
	moves     map[netip.Addr]int
	faults    int
	cutOff    *machine // whose answers reach no node
	healed    bool     // no fault lasts, and a dead node stays dead
	log       []string
	keepLog   bool
}

// wallClock is what a clock that was never set back shows at least.
const wallClock = 1 << 40

// machine is a server with an agent.
type machine struct {
	w     *world
	index int
	name  string
	core  *Election
	facts Facts
	boot  uint64
	// maxFormat is the newest version of the format that its agent understands; zero for the first.
	maxFormat uint8
	offset    time.Duration
	rate      float64

	alive, paused, noGateway, noAPI bool
	suspended                       bool                // nothing waits for it while it stands still
	noKubelet                       bool                // its kubelet does not renew the Lease of the Node
	isolated                        bool                // its agent renews its own Lease as often as a kubelet does
	sends                           bool                // it has sent a heartbeat since it was started
	gone                            bool                // another agent of the node has replaced it
	waiting                         []Input             // inputs that came while the process stood still
	tick                            uint64              // the event that is the newest tick
	keys                            []int               // of which the first signs; none is one that all have
	deaf                            []bool              // frames of these are lost on the way to it
	examined                        map[string]int      // how often it has asked about each member
	grant                           Grant               // in the time of its own clock
	runs                            map[string]run      // of others: an earlier one must prove that it is alive
	outdated                        map[netip.Addr]bool // what it knows of the Services, while its list lags
	blind                           map[netip.Addr]bool // addresses of Services that it never finds
}

// run is the newest run of a node that another one heard, and when.
type run struct {
	boot uint64
	at   time.Duration
}

type scheduled struct {
	at    time.Duration
	order uint64
	do    func()
}

// events is a heap: the first is the next to happen.
type events []scheduled

func (e events) before(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}

func (e *events) push(h scheduled) {
	*e = append(*e, h)
	all := *e
	for i := len(all) - 1; i > 0 && all.before(i, (i-1)/2); i = (i - 1) / 2 {
		all[i], all[(i-1)/2] = all[(i-1)/2], all[i]
	}
}

func (e *events) pop() scheduled {
	all := *e
	first := all[0]
	last := len(all) - 1
	all[0] = all[last]
	all[last] = scheduled{}
	all = all[:last]
	*e = all
	for i := 0; 2*i+1 < last; {
		least := 2*i + 1
		if least+1 < last && all.before(least+1, least) {
			least++
		}
		if !all.before(least, i) {
			break
		}
		all[i], all[least] = all[least], all[i]
		i = least
	}
	return first
}

// newWorld returns a world with nodes that are not started yet.
func newWorld(seed uint64, nodes, addresses int, r rules) *world {
	w := &world{random: rand.New(rand.NewPCG(seed, 1)), rules: r, delay: time.Millisecond,
		apiDelay:  10 * time.Millisecond,
		addresses: addresses, wanted: map[netip.Addr]bool{}, moves: map[netip.Addr]int{}, declared: map[string]bool{}}
	for i := range nodes {
		w.nodes = append(w.nodes, &machine{w: w, index: i, name: fmt.Sprintf("node-%c", 'a'+i),
			deaf:   make([]bool, nodes),
			offset: time.Duration(w.random.Int64N(int64(time.Hour))), rate: 0.99 + w.random.Float64()*0.02,
			facts: Facts{Link: true, Candidate: true, HasGateway: true, Known: true}})
	}
	for i := range addresses {
		w.wanted[address(i)] = true
	}
	return w
}

func address(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{203, 0, byte(i / 200), byte(10 + i%200)})
}

// after schedules a function.
func (w *world) after(d time.Duration, do func()) uint64 {
	w.order++
	w.queue.push(scheduled{w.now + max(d, 0), w.order, do})
	return w.order
}

// run lets time pass, and stops at once when a rule is violated.
func (w *world) run(d time.Duration) {
	end := w.now + d
	for len(w.queue) > 0 && w.queue[0].at <= end && w.violation == "" {
		next := w.queue.pop()
		w.now = next.at
		next.do()
	}
	w.now = max(w.now, end)
}

func (w *world) note(format string, args ...any) {
	if w.keepLog {
		w.log = append(w.log, fmt.Sprintf("%9.4f ", w.now.Seconds())+fmt.Sprintf(format, args...))
	}
}

func (w *world) between(least, most time.Duration) time.Duration {
	return least + time.Duration(w.random.Int64N(int64(most-least)+1))
}

func (w *world) chance(p float64) bool { return p > 0 && w.random.Float64() < p }

// start starts an agent.
func (m *machine) start() {
	if m.alive || m.gone {
		return
	}
	delete(m.w.declared, m.name) // before a server is switched on
	m.boot = m.w.order + 1
	m.alive = true
	m.paused = false
	m.suspended = false
	m.waiting = nil
	m.grant = Grant{Until: never}
	m.runs = map[string]run{}
	m.sends = false
	if m.w.formats {
		m.maxFormat = uint8(1 + m.w.random.IntN(2))
	}
	c := Config{Node: m.name, Boot: wallClock + m.boot, First: 1000 + uint64(m.w.now/time.Second),
		Seed: m.w.random.Uint64(), MaxFormat: m.maxFormat}
	if m.w.chance(m.w.clockBack) {
		c.Boot = 1 + m.w.random.Uint64N(wallClock)
		c.First = 1 + m.w.random.Uint64N(1<<31)
		m.w.note("the clock of %s was set back", m.name)
	}
	m.core = New(c)
	m.core.rules = m.w.rules
	m.facts.Leaving = false
	m.facts.Replaced = false
	m.sendFacts()
}

// stop ends an agent at once. One that is replaced never starts again.
func (m *machine) stop() {
	m.alive = false
	m.core = nil
	m.grant = Grant{Until: never}
	if m.facts.Replaced {
		m.w.remove(m)
	}
}

// pause suspends the process; inputs for it wait.
func (m *machine) pause() { m.paused = m.alive }

func (m *machine) resume() {
	if !m.paused {
		return
	}
	m.paused = false
	m.suspended = false
	m.w.checkOverlap(m)
	waiting := m.waiting
	m.waiting = nil
	for _, in := range waiting {
		m.step(in)
	}
	m.step(Tick{})
}

// sendFacts gives the node its facts.
func (m *machine) sendFacts() {
	f := m.facts
	f.Wanted = map[netip.Addr]bool{}
	known := m.w.wanted
	if m.outdated != nil {
		known = m.outdated
	}
	for a, fits := range known {
		own, found := m.facts.Wanted[a]
		f.Wanted[a] = fits && (own || !found)
	}
	m.step(f)
}

// clock is what the node's clock shows.
func (m *machine) clock() time.Duration {
	return m.offset + time.Duration(float64(m.w.now)*m.rate)
}

// step gives an input to the Election and does what it requests.
func (m *machine) step(in Input) {
	if !m.alive {
		return
	}
	if m.paused {
		if _, tick := in.(Tick); !tick && (!m.suspended || !isSent(in)) {
			m.waiting = append(m.waiting, in)
		}
		return
	}
	out := m.core.Step(m.clock(), in)
	m.grant = out.Grant
	m.isolated = out.Isolated
	m.w.checkOverlap(m)
	m.w.checkOutside(m)
	if m.w.keepLog {
		for _, e := range out.Events {
			m.w.note("%s: %s %v %s", m.name, e.Kind, e.Address, e.Node)
		}
	}
	if out.Send != nil {
		if !m.sends { // see heartbeat.replayWindow
			m.sends = true
			m.runs = map[string]run{}
		}
		m.w.broadcast(m, out.Send)
	}
	if out.AskGateway {
		m.w.asked++
	}
	if out.AskGateway && !m.noGateway {
		m.w.later(m, m.w.between(0, 2*m.w.delay), Gateway{})
	}
	switch {
	case out.Read:
		m.w.read(m)
	case out.Write != nil:
		m.w.write(m, out.Write)
	case out.List:
		m.w.list(m)
	}
	if out.Examine != nil {
		if m.examined == nil {
			m.examined = map[string]int{}
		}
		for name := range out.Examine {
			m.examined[name]++
		}
		m.w.examine(m, out.Examine)
	}
	if out.Done && (m.facts.Leaving || m.facts.Replaced) {
		m.w.note("%s ends", m.name)
		m.stop()
		return
	}
	if out.Restart {
		m.w.note("%s restarts", m.name)
		m.stop()
		m.start()
		return
	}
	tick := m.w.order + 1
	m.tick = tick
	wait := time.Duration(float64(out.Next-m.clock())/m.rate) + 1
	m.w.after(wait, func() {
		if m.tick == tick {
			m.step(Tick{})
		}
	})
}

// answers reports whether a machine would answer for an address now.
func (m *machine) answers(a netip.Addr) bool {
	if !m.alive || m.paused || m.clock() >= m.grant.Until {
		return false
	}
	_, found := slices.BinarySearchFunc(m.grant.Addresses, a, netip.Addr.Compare)
	return found
}

// later gives an input to the agent that runs now, not to a later one.
func (w *world) later(m *machine, d time.Duration, in Input) {
	boot := m.boot
	w.after(d, func() {
		if m.boot == boot {
			m.step(in)
		}
	})
}

// broadcast carries a heartbeat to the others.
func (w *world) broadcast(from *machine, h *Heartbeat) {
	for _, to := range w.nodes {
		if to.index == from.index || !to.alive || to.deaf[from.index] || !to.verifies(from) || w.chance(w.loss) {
			continue
		}
		if h.Format > max(to.maxFormat, firstFormat) {
			continue
		}
		if to.hearsRun(h) {
			w.later(to, w.between(w.delay/10, w.delay), Heard{h})
		} else {
			w.later(to, w.between(w.delay/10, w.delay), ReplaySuspect{h.Node})
		}
	}
}

// hearsRun reports whether a machine accepts a heartbeat: of an earlier run than it knows only with the proof that it
// is new, and when the later one is silent.
func (m *machine) hearsRun(h *Heartbeat) bool {
	known := m.runs[h.Node]
	_, proven := m.core.recent(h)
	if h.Boot < known.boot && (!proven || m.clock()-known.at < m.w.rules.suspectTimeout) {
		return false
	}
	m.runs[h.Node] = run{h.Boot, m.clock()}
	return true
}

// verifies reports whether a machine has the key by which another one signs.
func (m *machine) verifies(from *machine) bool {
	return len(from.keys) == 0 && len(m.keys) == 0 ||
		len(from.keys) > 0 && slices.Contains(m.keys, from.keys[0])
}

// checkOverlap checks whether another machine answers for an address of a machine.
func (w *world) checkOverlap(m *machine) {
	if len(m.grant.Addresses) == 0 || !m.answers(m.grant.Addresses[0]) {
		return
	}
	for _, other := range w.nodes {
		// Two agents of one machine answer with the same hardware address.
		if other.index == m.index || len(other.grant.Addresses) == 0 || !other.answers(other.grant.Addresses[0]) {
			continue
		}
		for _, a := range m.grant.Addresses {
			if other.answers(a) {
				w.reportOverlap(m, other, a)
				return
			}
		}
	}
}

// checkOutside checks that a machine answers for no address in a block that it does not know.
func (w *world) checkOutside(m *machine) {
	for a := range m.core.facts.Outside {
		if m.core.facts.Outside[a] && m.answers(a) && w.violation == "" {
			w.violation = fmt.Sprintf("at %s %s answers for %s, which is in no block that it knows", w.now, m.name, a)
			w.note("%s", w.violation)
		}
	}
}

func (w *world) reportOverlap(m, other *machine, a netip.Addr) {
	mine := m.grant.Until - m.clock()
	others := other.grant.Until - other.clock()
	w.overlap = max(w.overlap, min(mine, others))
	if w.violation == "" {
		w.violation = fmt.Sprintf("at %s %s and %s both answer for %s", w.now, m.name, other.name, a)
		w.note("%s", w.violation)
	}
}

// count counts a write and the addresses that change their owner.
func (w *world) count(before, after *View) {
	w.writes++
	if before == nil {
		return
	}
	if evens(before, after) {
		w.evened++
	}
	for a, o := range after.Owners {
		if was := before.Owners[a]; was.Node != "" && was.Node != o.Node {
			w.moves[a]++
		}
	}
}

// evens reports whether a view differs from the one before only by one address, which went to a node that had at least
// two fewer.
func evens(before, after *View) bool {
	loads := map[string]int{}
	for _, o := range before.Owners {
		loads[o.Node]++
	}
	moved := 0
	even := slices.Equal(before.Members, after.Members) && len(before.Owners) == len(after.Owners)
	for a, o := range after.Owners {
		if was := before.Owners[a].Node; was != o.Node {
			moved++
			even = even && was != "" && loads[was] >= loads[o.Node]+2
		}
	}
	return even && moved == 1
}

func describe(v *View) string {
	lines := []string{fmt.Sprintf("view %d of %s", v.Number, strings.Join(v.Members, ","))}
	for _, a := range v.addresses() {
		o := v.Owners[a]
		lines = append(lines, fmt.Sprintf("%s→%s(%d<%s)", a, o.Node, o.Epoch, strings.Join(o.Before, ",")))
	}
	return strings.Join(lines, " ")
}

// unanswered lists the wanted addresses for which no reachable node answers.
func (w *world) unanswered() []netip.Addr {
	var silent []netip.Addr
	for a := range w.wanted {
		if !slices.ContainsFunc(w.nodes, func(m *machine) bool { return m != w.cutOff && m.answers(a) }) {
			silent = append(silent, a)
		}
	}
	slices.SortFunc(silent, func(a, b netip.Addr) int { return cmp.Compare(a.String(), b.String()) })
	return silent
}

//go:build linux

package heartbeat

import (
	"bytes"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/election"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

var (
	from    = addressOf([6]byte{2, 0, 0, 0, 0, 1}, netip.MustParseAddr("192.0.2.2"))
	compare = cmp.Options{cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()}
)

// keyOf makes a key that is the same for the same number.
func keyOf(n byte) string {
	return contract.FormatAnnouncerKey(contract.AnnouncerKey(bytes.Repeat([]byte{n}, contract.AnnouncerKeyLength)))
}

func ringOf(t testing.TB, numbers ...byte) *Ring {
	t.Helper()
	var content strings.Builder
	for _, n := range numbers {
		content.WriteString(keyOf(n))
	}
	ring, err := ParseKeys(content.String())
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

func addresses(r *rand.Rand, most int) []netip.Addr {
	var all []netip.Addr
	for range r.IntN(most + 1) {
		all = append(all, netip.AddrFrom4([4]byte{203, byte(r.IntN(256)), byte(r.IntN(256)), byte(r.IntN(256))}))
	}
	return all
}

// randomHeartbeat makes a heartbeat, sometimes one that takes several frames.
func randomHeartbeat(r *rand.Rand) *election.Heartbeat {
	h := &election.Heartbeat{
		Node: strings.Repeat("n", 1+r.IntN(maxName)), Boot: r.Uint64N(maxBoot), Sequence: 1 + r.Uint64N(1<<40),
		Number: r.Uint64N(election.MaxNumber), Seen: r.Uint64N(election.MaxNumber),
		Flags: election.Flags(r.Uint32()) & election.AllFlags, Format: Version, MaxFormat: uint8(1 + r.IntN(16)),
		Wants: addresses(r, election.MaxListed), Released: addresses(r, election.MaxListed),
		Unfit: make([]byte, r.IntN(100)),
	}
	for i := range r.IntN(maxAcks + 1) {
		h.Acks = append(h.Acks, election.Ack{Node: election.ID(i)*7 + election.ID(r.IntN(7)), Sequence: r.Uint32()})
	}
	return h
}

// framesOf are the frames in which a heartbeat is sent.
func framesOf(h *election.Heartbeat, ring *Ring) (frames [][]byte) {
	body := appendBody(nil, h)
	space := maxBody(h.Node)
	parts := slices.Collect(slices.Chunk(body, space))
	for i, piece := range parts {
		frames = append(frames, part{node: h.Node, boot: h.Boot, sequence: h.Sequence, index: i, parts: len(parts),
			body: piece}.appendFrame(nil, ring, from))
	}
	return frames
}

// newTestReceiver returns a receiver that knows one key.
func newTestReceiver(t testing.TB) *receiver {
	t.Helper()
	keys := NewKeys()
	keys.Set(keyOf(1), nil)
	return newReceiver(&Transport{Config: Config{Node: "self", Boot: 7, Keys: keys}})
}

func TestRoundTrip(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	ring := ringOf(t, 1)
	several := 0
	for i := range 100 {
		e := newTestReceiver(t)
		want := randomHeartbeat(r)
		frames := framesOf(want, ring)
		r.Shuffle(len(frames), func(i, j int) { frames[i], frames[j] = frames[j], frames[i] })
		if len(frames) > 1 {
			several++
		}
		for at, frame := range frames {
			if len(frame) > ethernetLength+maxFrame {
				t.Fatalf("seed %d, heartbeat %d: a frame of %d bytes", seed, i, len(frame))
			}
			got, drop := e.take(append(frame, make([]byte, r.IntN(20))...), time.Now()) // Ethernet pads
			last := at == len(frames)-1
			if drop != Taken || (got != nil) != last {
				t.Fatalf("seed %d, heartbeat %d, frame %d of %d: %s, %+v", seed, i, at+1, len(frames), drop, got)
			}
			if diff := cmp.Diff(want, got, compare); last && diff != "" {
				t.Fatalf("seed %d, heartbeat %d (-want +got):\n%s", seed, i, diff)
			}
		}
		if got, drop := e.take(frames[0], time.Now()); got != nil || drop != Replayed {
			t.Fatalf("seed %d, heartbeat %d, received again: %s, %+v", seed, i, drop, got)
		}
	}
	if several == 0 {
		t.Errorf("seed %d: no heartbeat took several frames", seed)
	}
}

// TestLostPart: a heartbeat with a lost part is dropped, and those after it are received.
func TestLostPart(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 1))
	e := newTestReceiver(t)
	h := randomHeartbeat(r)
	for len(framesOf(h, ringOf(t, 1))) < 3 {
		h = randomHeartbeat(r)
	}
	h.Sequence = 1
	for _, frame := range framesOf(h, ringOf(t, 1))[1:] {
		if got, drop := e.take(frame, time.Now()); got != nil || drop != Taken {
			t.Fatalf("%s, %+v", drop, got)
		}
	}
	h.Sequence = 2
	var got *election.Heartbeat
	for _, frame := range framesOf(h, ringOf(t, 1)) {
		got, _ = e.take(frame, time.Now())
	}
	if diff := cmp.Diff(h, got, compare); diff != "" {
		t.Errorf("the next (-want +got):\n%s", diff)
	}
}

// TestPartsOutOfOrder: parts of two heartbeats may overtake each other. Only the newest is received, whole, whatever
// else arrives between its parts, and none is made of parts of both.
func TestPartsOutOfOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 2))
	older := randomHeartbeat(r)
	for len(framesOf(older, ringOf(t, 1))) < 3 {
		older = randomHeartbeat(r)
	}
	newer := *older
	older.Sequence = 4
	newer.Sequence = 5
	newer.Number++
	a := framesOf(older, ringOf(t, 1))
	b := framesOf(&newer, ringOf(t, 1))
	last := len(a) - 1
	for name, frames := range map[string][][]byte{
		"the older one's first before":   slices.Concat(a[:1], b),
		"the older one's last between":   slices.Concat(a[:last], b[:last], a[last:], b[last:]),
		"all of the older one between":   slices.Concat(b[:1], a, b[1:]),
		"half of each, the other halves": slices.Concat(a[:1], b[1:], a[1:], b[:1]),
		"parts twice":                    slices.Concat(b[:last], b[:last], b[last:]),
	} {
		e := newTestReceiver(t)
		for i, frame := range frames {
			got, drop := e.take(slices.Clone(frame), time.Now())
			if whole := i == len(frames)-1; drop != Taken || (got != nil) != whole {
				t.Fatalf("%s, frame %d of %d: %s, %+v", name, i+1, len(frames), drop, got)
			}
			if got != nil {
				if diff := cmp.Diff(&newer, got, compare); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
			}
		}
	}
}

// TestOwn: frames that a switch sends back are dropped; those of another agent with our name are not.
func TestOwn(t *testing.T) {
	for boot, want := range map[uint64]Drop{7: Own, 8: Taken, 6: Taken} {
		frames := framesOf(&election.Heartbeat{Node: "self", Boot: boot, Sequence: 2}, ringOf(t, 1))
		got, drop := newTestReceiver(t).take(frames[0], time.Now())
		if drop != want || (got != nil) != (want == Taken) {
			t.Errorf("run %d: %s, %+v; want %s", boot, drop, got, want)
		}
	}
}

// TestHeaders: the checksums follow the RFCs: the sum over what they cover, themselves included, is all ones.
func TestHeaders(t *testing.T) {
	for _, source := range []address{from, addressOf([6]byte{2}, netip.Addr{})} {
		frame := part{node: "n", parts: 1, body: []byte("odd")}.appendFrame(nil, ringOf(t, 1), source)
		ip := frame[ethernetLength:]
		if got := sum(ip[:ipv4Length], 0); got != 0xffff {
			t.Errorf("the IPv4 header sums up to %#x", got)
		}
		if got := sum(ip[ipv4Length:], pseudoHeader(ip, len(ip)-ipv4Length)); got != 0xffff {
			t.Errorf("UDP sums up to %#x", got)
		}
		if got := netip.AddrFrom4([4]byte(ip[12:16])); got != netip.AddrFrom4(source.ip) {
			t.Errorf("it comes from %s, want %v", got, source.ip)
		}
	}
}

func TestRefused(t *testing.T) {
	h := &election.Heartbeat{Node: "node-a", Boot: 5, Sequence: 1, Acks: []election.Ack{{Node: 1, Sequence: 2},
		{Node: 3}}, Wants: []netip.Addr{netip.MustParseAddr("203.0.113.3")}}
	good := framesOf(h, ringOf(t, 1))[0]
	const atBody = atName + len("node-a")
	highest := [8]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	resign := func(change func(p []byte) []byte) []byte {
		p := change(bytes.Clone(good[headersLength : len(good)-tagLength]))
		frame := append(bytes.Clone(good[:headersLength]), append(p, ringOf(t, 1).keys[0].tag(p)...)...)
		putHeaders(frame, from)
		return frame
	}
	set := func(at int, to ...byte) []byte {
		return resign(func(p []byte) []byte { copy(p[at:], to); return p })
	}
	flip := func(at int) []byte {
		frame := bytes.Clone(good)
		frame[at] ^= 0x40
		return frame
	}
	for name, tc := range map[string]struct {
		frame []byte
		want  Drop
	}{
		"as it is":                  {good, Taken},
		"another cluster":           {framesOf(h, ringOf(t, 2))[0], OtherKey},
		"during a change of keys":   {framesOf(h, ringOf(t, 1, 2))[0], Taken},
		"a flipped bit":             {flip(headersLength + atSequence), Forged},
		"another signature":         {flip(len(good) - 1), Forged},
		"another key's name":        {flip(headersLength + atKey), OtherKey},
		"a later version":           {set(atVersion, Version+1), OtherVersion},
		"something else":            {set(0, 'X'), Malformed},
		"nothing":                   {nil, Malformed},
		"to another port":           {flip(ethernetLength + ipv4Length + 3), Malformed},
		"a fragment":                {flip(ethernetLength + 7), Malformed},
		"no name":                   {set(atNameSize, 0), Malformed},
		"a name beyond its end":     {set(atNameSize, 200), Malformed},
		"no part":                   {set(atParts, 0), Malformed},
		"a part too many":           {set(atPart, 1), Malformed},
		"too many parts":            {set(atParts, maxParts+1), Malformed},
		"cut":                       {resign(func(p []byte) []byte { return p[:len(p)-1] }), Malformed},
		"more than announced":       {resign(func(p []byte) []byte { return append(p, 0) }), Malformed},
		"a list beyond its end":     {set(atBody+18, 0, 99), Malformed},
		"the highest run":           {set(atBoot, highest[:]...), Implausible},
		"the first run too late":    {set(atBoot, 1, 0, 0, 0, 0, 0, 0, 1), Implausible},
		"the last run":              {set(atBoot, 1, 0, 0, 0, 0, 0, 0, 0), Taken},
		"the highest sequence":      {set(atSequence, highest[:]...), Implausible},
		"the last sequence":         {set(atSequence, 0, 1, 0, 0, 0, 0, 0, 0), Taken},
		"the first sequence beyond": {set(atSequence, 0, 1, 0, 0, 0, 0, 0, 1), Implausible},
		"the highest view":          {set(atBody, highest[:]...), Implausible},
		"the highest seen":          {set(atBody+8, highest[:]...), Implausible},
		"the last view":             {set(atBody, 0, 0x1f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), Taken},
		"the first seen beyond":     {set(atBody+8, 0, 0x20, 0, 0, 0, 0, 0, 0), Implausible},
		"acknowledged out of order": {set(atBody+20, 9), Malformed},
	} {
		if _, drop := newTestReceiver(t).take(tc.frame, time.Now()); drop != tc.want {
			t.Errorf("%s: %s, want %s", name, drop, tc.want)
		}
	}
}

func TestReplayWindow(t *testing.T) {
	now := time.Now()
	var g replayWindow
	for i, step := range []struct {
		node           string
		boot, sequence uint64
		after          time.Duration
		want           bool
	}{
		{"a", 10, 5, 0, true},
		{"a", 10, 5, 0, false},
		{"a", 10, 4, 0, false},
		{"b", 9, 1, 0, true},
		{"a", 10, 6, 0, true},
		{"a", 11, 1, 0, true},
		{"a", 10, 7, 0, false},
		{"a", 10, 8, forgetAfter - 1, false},
		{"a", 10, 8, forgetAfter, true},
		{"a", 10, 8, 2 * forgetAfter, false},
	} {
		if _, got := g.admit(part{node: step.node, boot: step.boot, sequence: step.sequence, parts: 1},
			now.Add(step.after)); (got == Taken) != step.want {
			t.Errorf("step %d, %+v: %s", i, step, got)
		}
	}
}

// conversation is a receiver that sent heartbeats, and takes those of node-a.
type conversation struct {
	*receiver
	t              *testing.T
	now            time.Time
	sent           uint64
	replaySuspects int
}

func converse(t *testing.T) *conversation {
	c := &conversation{receiver: newTestReceiver(t), t: t, now: time.Now(), sent: 1<<40 | 100}
	c.replay.id = election.IDOf("self")
	c.replay.sent = func() uint64 { return c.sent }
	c.replay.quiet = 300 * time.Millisecond
	c.transport.ReplaySuspect = func(string) { c.replaySuspects++ }
	return c
}

// expect takes a heartbeat of node-a, which reports ours of some numbers ago, and checks whether it is taken.
func (c *conversation) expect(boot, sequence, ago uint64, want Drop) []byte {
	c.t.Helper()
	h := &election.Heartbeat{Node: "node-a", Boot: boot, Sequence: sequence,
		Acks: []election.Ack{{Node: c.replay.id, Sequence: uint32(c.sent - ago)}}}
	frame := framesOf(h, ringOf(c.t, 1))[0]
	c.again(frame, want)
	return frame
}

func (c *conversation) again(frame []byte, want Drop) {
	c.t.Helper()
	if got, drop := c.take(slices.Clone(frame), c.now); drop != want || (got != nil) != (want == Taken) {
		c.t.Errorf("%s, %+v; want %s", drop, got, want)
	}
}

func (c *conversation) pass(d time.Duration) {
	c.now = c.now.Add(d)
	c.sent++
}

// TestFarAhead: a heartbeat with a sequence number that is far ahead drops only those that do not prove that they are
// newer, and one that was recorded is not taken again.
func TestFarAhead(t *testing.T) {
	c := converse(t)
	old := c.expect(10, 5, 0, Taken)
	c.expect(10, maxSequence, 0, Taken)
	c.expect(10, 6, 0, Replayed)
	c.pass(100 * time.Millisecond)
	next := c.expect(10, 7, 0, Taken)
	c.expect(10, 6, 0, Replayed)
	c.again(old, Replayed)
	c.again(next, Replayed)
	c.expect(10, 8, recent, Taken)
}

// TestClockSetBack: an agent whose machine's clock was set back before it restarted is taken as soon as its earlier run
// is silent and it reports a heartbeat of ours. The earlier run is not taken again, nor are recorded heartbeats.
func TestClockSetBack(t *testing.T) {
	c := converse(t)
	earlier := c.expect(10, 5, 0, Taken)
	c.pass(100 * time.Millisecond)
	c.expect(3, 1, 0, Replayed) // another machine with the same name would be silenced by the later run
	c.pass(300 * time.Millisecond)
	c.expect(3, 2, 5, Replayed)
	if c.replaySuspects != 2 {
		t.Errorf("%d replay suspects, want 2", c.replaySuspects)
	}
	c.pass(100 * time.Millisecond)
	c.expect(3, 3, 0, Taken)
	c.again(earlier, Replayed)
	c.expect(3, 4, 0, Taken)
	c.expect(10, 5, 0, Replayed)
	c.pass(100 * time.Millisecond)
	c.expect(10, 6, 0, Taken) // it did not end: the later one counts
}

// TestStandbyForgets: an agent that has sent nothing yet could not have been acknowledged. When it begins, a node whose
// clock was set back needs no proof from it.
func TestStandbyForgets(t *testing.T) {
	c := converse(t)
	sent := c.sent
	c.sent = 0
	c.expect(10, 5, 0, Taken)
	c.pass(time.Second)
	c.sent = 0
	c.expect(3, 1, 0, Replayed)
	c.sent = sent
	c.expect(3, 2, recent, Taken)
	c.expect(3, 1, recent, Replayed)
	c.expect(2, 1, recent, Replayed)
}

// TestProofNeedsAKnownNumber: what reports a heartbeat that was not sent, or not lately, proves nothing.
func TestProofNeedsAKnownNumber(t *testing.T) {
	c := converse(t)
	c.expect(10, 5, 1, Taken)
	c.pass(time.Second)
	c.expect(9, 1, math.MaxUint32, Replayed)
	c.expect(9, 1, recent, Replayed)
	c.expect(9, 1, 2, Replayed)
	c.expect(9, 1, 0, Taken)
}

// TestScopes: a heartbeat that another cluster, or the agents of another network, signed with the same key is dropped,
// counted by itself, and reported once a minute at most.
func TestScopes(t *testing.T) {
	own := ScopeOf("cluster-a", "network-a")
	var reported []string
	for name, tc := range map[string]struct {
		scope Scope
		want  Drop
	}{
		"this cluster":    {own, Taken},
		"another cluster": {ScopeOf("cluster-b", "network-a"), OtherCluster},
		"another network": {ScopeOf("cluster-a", "network-b"), OtherCluster},
		"none":            {Scope{}, OtherCluster},
	} {
		e := newTestReceiver(t)
		e.transport.Scope = own
		e.transport.Foreign = func(node string) { reported = append(reported, node) }
		ring := ringOf(t, 1)
		ring.scope = tc.scope
		now := time.Now()
		for i := range uint64(3) {
			h := &election.Heartbeat{Node: "node-x", Boot: 1, Sequence: i + 1}
			if _, drop := e.take(framesOf(h, ring)[0], now); drop != tc.want {
				t.Errorf("%s: %s, want %s", name, drop, tc.want)
			} else if drop == OtherCluster {
				e.reportForeign(now)
			}
		}
		if n := len(reported); n > 1 || n == 1 && (tc.want == Taken || reported[0] != "node-x") {
			t.Errorf("%s: reported %q", name, reported)
		}
		reported = nil
	}
}

// FuzzTake: reading any frame returns; a valid heartbeat is the same when it is encoded again.
func FuzzTake(f *testing.F) {
	h := &election.Heartbeat{Node: "node-a", Boot: 5, Sequence: 1, Acks: []election.Ack{{Node: 1, Sequence: 2}},
		Wants: []netip.Addr{netip.MustParseAddr("203.0.113.3")}}
	good := framesOf(h, ringOf(f, 1))[0]
	f.Add(good, false)
	f.Add(good[:60], true)
	f.Add(framesOf(&election.Heartbeat{Node: "node-a", Boot: math.MaxUint64, Sequence: 1}, ringOf(f, 1))[0], false)
	f.Add(framesOf(&election.Heartbeat{Node: "node-a", Sequence: math.MaxUint64}, ringOf(f, 1))[0], false)
	f.Add(framesOf(&election.Heartbeat{Node: "node-a", Number: math.MaxUint64, Seen: 1 << 53}, ringOf(f, 1))[0], false)
	f.Add([]byte{}, true)
	ring := ringOf(f, 1)
	names := interner{}
	f.Fuzz(func(t *testing.T, frame []byte, sign bool) {
		payload, ok := payloadOf(frame)
		if !ok {
			return
		}
		if sign && len(payload) >= atName+tagLength {
			signed := payload[:len(payload)-tagLength]
			copy(signed[atKey:], ring.keys[0].id[:])
			copy(payload[len(signed):], ring.keys[0].tag(signed))
		}
		p, drop := parsePart(payload, ring, &names)
		if drop == Taken && (p.boot > maxBoot || p.sequence > maxSequence) {
			t.Errorf("took run %d, sequence %d", p.boot, p.sequence)
		}
		var got, again election.Heartbeat
		if drop != Taken || !parseBody(p.body, &got) {
			return
		}
		if !parseBody(appendBody(nil, &got), &again) || !cmp.Equal(got, again, compare) {
			t.Errorf("%+v became %+v", got, again)
		}
	})
}

// large is a heartbeat in a cluster of a hundred nodes.
func large() *election.Heartbeat {
	h := &election.Heartbeat{Node: "worker-17.example.com", Sequence: 1, Unfit: make([]byte, 63)}
	for i := range 99 {
		h.Acks = append(h.Acks, election.Ack{Node: election.ID(i), Sequence: 9})
	}
	return h
}

// TestFewAllocations: sending a heartbeat allocates nothing, receiving one only what its receiver keeps.
func TestFewAllocations(t *testing.T) {
	h := large()
	ring := ringOf(t, 1)
	e := newTestReceiver(t)
	var body, frame []byte
	send := func() {
		h.Sequence++
		body = appendBody(body[:0], h)
		frame = part{node: h.Node, boot: h.Boot, sequence: h.Sequence, parts: 1, body: body}.appendFrame(frame[:0],
			ring, from)
	}
	send()
	if n := testing.AllocsPerRun(200, send); n > 0 {
		t.Errorf("%v allocations to send a heartbeat, want none", n)
	}
	now := time.Now()
	if n := testing.AllocsPerRun(200, func() {
		send()
		if _, drop := e.take(frame, now); drop != Taken {
			t.Fatal(drop)
		}
	}); n > 10 {
		t.Errorf("%v allocations to receive a heartbeat, want at most 10", n)
	}
}

// BenchmarkHeartbeat sends and receives one of a hundred nodes.
func BenchmarkHeartbeat(b *testing.B) {
	h := large()
	ring := ringOf(b, 1)
	e := newTestReceiver(b)
	var body, frame []byte
	b.ReportAllocs()
	for b.Loop() {
		h.Sequence++
		body = appendBody(body[:0], h)
		frame = part{node: h.Node, boot: h.Boot, sequence: h.Sequence, parts: 1, body: body}.appendFrame(frame[:0],
			ring, from)
		if _, drop := e.take(frame, time.Now()); drop != Taken {
			b.Fatal(drop)
		}
	}
}

// TestSharedKeyIsReplaced follows AnnouncerKeyShared: once one of the clusters has a key of its own, whichever it is,
// the other one is not reported any more, and the heartbeats of the own cluster are taken.
func TestSharedKeyIsReplaced(t *testing.T) {
	own := ScopeOf("cluster-a", "network-a")
	for name, keys := range map[string]struct{ ours, theirs byte }{"ours": {2, 1}, "theirs": {1, 2}} {
		var reported []string
		now := time.Now()
		e := newTestReceiver(t)
		e.transport.Scope = own
		e.transport.Foreign = func(node string) { reported = append(reported, node) }
		hear := func(scope Scope, key byte, sequence uint64) Drop {
			ring := ringOf(t, key)
			ring.scope = scope
			now = now.Add(reportEvery)
			_, drop := e.take(framesOf(&election.Heartbeat{Node: "node-x", Boot: 1, Sequence: sequence}, ring)[0], now)
			if drop == OtherCluster {
				e.reportForeign(now)
			}
			return drop
		}
		if drop := hear(ScopeOf("cluster-b", "network-a"), 1, 1); drop != OtherCluster || len(reported) != 1 {
			t.Fatalf("a shared key: %s, reported %q", drop, reported)
		}
		e.transport.Keys.Set(keyOf(keys.ours), nil)
		for i := range uint64(10) {
			drop := hear(ScopeOf("cluster-b", "network-a"), keys.theirs, 2+i)
			if drop != OtherKey || len(reported) != 1 {
				t.Errorf("%s was replaced: %s, reported %q", name, drop, reported)
			}
		}
		if drop := hear(own, keys.ours, 20); drop != Taken {
			t.Errorf("%s was replaced, and a heartbeat of the cluster is not taken: %s", name, drop)
		}
	}
}

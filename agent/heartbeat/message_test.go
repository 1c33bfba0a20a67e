package heartbeat

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
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

func some(r *rand.Rand) Message {
	m := Message{
		Node: strings.Repeat("n", 1+r.IntN(mostName)), Boot: r.Uint64(), Sequence: r.Uint64(), View: r.Uint64(), Flags: uint8(r.Uint32()), //nolint:gosec // any
		Heard: Bitmap(nil, r.IntN(mostMembers+1), func(int) bool { return r.IntN(2) == 0 }),
	}
	for range r.IntN(m.room() + 1) {
		m.Addresses = append(m.Addresses, netip.AddrFrom4([4]byte{203, byte(r.IntN(256)), byte(r.IntN(256)), byte(r.IntN(256))}))
	}
	return m
}

func TestRoundTrip(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	ring := ringOf(t, 1)
	var names interner
	var got Message // used again, as the ear does
	for i := range 200 {
		want := some(r)
		frame := want.appendFrame(nil, ring, from, want.Sequence, want.Addresses)
		if len(frame) > ethernetLength+mostFrame {
			t.Fatalf("seed %d, message %d: a frame of %d bytes", seed, i, len(frame))
		}
		payload, ok := payloadOf(append(frame, make([]byte, r.IntN(20))...)) // Ethernet pads
		if !ok {
			t.Fatalf("seed %d, message %d: no payload", seed, i)
		}
		if drop := parse(payload, ring, &names, &got); drop != Taken {
			t.Fatalf("seed %d, message %d: %s", seed, i, drop)
		}
		if diff := cmp.Diff(want, got, compare); diff != "" {
			t.Fatalf("seed %d, message %d (-want +got):\n%s", seed, i, diff)
		}
	}
}

// TestHeaders: the checksums are those that the RFCs define: the sum over what they cover, themselves included, is all ones.
func TestHeaders(t *testing.T) {
	m := Message{Node: "n", Addresses: []netip.Addr{netip.MustParseAddr("203.0.113.3")}}
	for _, source := range []address{from, addressOf([6]byte{2}, netip.Addr{})} {
		frame := m.appendFrame(nil, ringOf(t, 1), source, 1, m.Addresses)
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
	m := Message{Node: "node-a", Boot: 5, Sequence: 1, Heard: []byte{3}, Addresses: []netip.Addr{netip.MustParseAddr("203.0.113.3")}}
	good := m.appendFrame(nil, ringOf(t, 1), from, 1, m.Addresses)[headersLength:]
	resign := func(change func(p []byte) []byte) []byte {
		p := change(bytes.Clone(good[:len(good)-tagLength]))
		return append(p, ringOf(t, 1).keys[0].tag(p)...)
	}
	for name, tc := range map[string]struct {
		payload []byte
		ring    *Ring
		want    Drop
	}{
		"as it is":              {payload: good, want: Taken},
		"during a change":       {payload: good, ring: ringOf(t, 2, 1), want: Taken},
		"another cluster":       {payload: good, ring: ringOf(t, 2), want: OtherKey},
		"a flipped bit":         {payload: append(bytes.Clone(good[:atView]), append([]byte{good[atView] ^ 1}, good[atView+1:]...)...), want: Forged},
		"another signature":     {payload: append(bytes.Clone(good[:len(good)-1]), good[len(good)-1]^0x80), want: Forged},
		"a later version":       {payload: resign(func(p []byte) []byte { p[atVersion]++; return p }), want: OtherVersion},
		"something else":        {payload: []byte("who is there?"), want: Malformed},
		"nothing":               {payload: nil, want: Malformed},
		"no name":               {payload: resign(func(p []byte) []byte { return append(p[:atNameSize], 0, 0, 0, 0) }), want: Malformed},
		"cut":                   {payload: resign(func(p []byte) []byte { return p[:len(p)-1] }), want: Malformed},
		"more than it says":     {payload: resign(func(p []byte) []byte { return append(p, 0) }), want: Malformed},
		"a name beyond its end": {payload: resign(func(p []byte) []byte { p[atNameSize] = 255; return p }), want: Malformed},
	} {
		ring := tc.ring
		if ring == nil {
			ring = ringOf(t, 1)
		}
		var names interner
		if got := parse(tc.payload, ring, &names, &Message{}); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

func TestGuard(t *testing.T) {
	now := time.Now()
	var g guard
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
		{"a", 10, 8, forget - 1, false},
		{"a", 10, 8, forget, true},
		{"a", 10, 8, 2 * forget, false},
	} {
		if got := g.admit(&Message{Node: step.node, Boot: step.boot, Sequence: step.sequence}, now.Add(step.after)); got != step.want {
			t.Errorf("step %d, %+v: admitted %t", i, step, got)
		}
	}
}

func TestBitmap(t *testing.T) {
	bitmap := Bitmap([]byte{0xff, 0xff, 0xff}, 11, func(i int) bool { return i%3 == 0 })
	if len(bitmap) != 2 {
		t.Fatalf("%d bytes for 11 members", len(bitmap))
	}
	for i := -1; i < 30; i++ {
		if got, want := Has(bitmap, i), i >= 0 && i < 11 && i%3 == 0; got != want {
			t.Errorf("member %d: %t, want %t", i, got, want)
		}
	}
}

// FuzzTake: whatever is on the wire, reading it returns; what is taken was signed, and says the same when it is said again.
func FuzzTake(f *testing.F) {
	m := Message{Node: "node-a", Boot: 5, Heard: []byte{3}, Addresses: []netip.Addr{netip.MustParseAddr("203.0.113.3")}}
	good := m.appendFrame(nil, ringOf(f, 1), from, 1, m.Addresses)
	f.Add(good, false)
	f.Add(good[:60], true)
	f.Add([]byte{}, true)
	f.Fuzz(func(t *testing.T, frame []byte, sign bool) {
		ring := ringOf(t, 1)
		payload, ok := payloadOf(frame)
		if !ok {
			return
		}
		if sign && len(payload) >= atName+tagLength {
			body := payload[:len(payload)-tagLength]
			copy(body[atKey:], ring.keys[0].id[:])
			copy(payload[len(body):], ring.keys[0].tag(body))
		}
		var names interner
		var got, again Message
		if parse(payload, ring, &names, &got) != Taken {
			return
		}
		if len(got.Addresses) > got.room() {
			return // more than we would put into a frame
		}
		repeated, _ := payloadOf(got.appendFrame(nil, ring, from, got.Sequence, got.Addresses))
		if drop := parse(repeated, ring, &names, &again); drop != Taken || !cmp.Equal(got, again, compare) {
			t.Errorf("%+v became %+v (%s)", got, again, drop)
		}
	})
}

// TestFewAllocations: after the first few a heartbeat costs no garbage, neither to say nor to hear.
func TestFewAllocations(t *testing.T) {
	m := some(rand.New(rand.NewPCG(1, 1)))
	ring, buffer := ringOf(t, 1), []byte(nil)
	var names interner
	var got Message
	round := func() {
		buffer = m.appendFrame(buffer[:0], ring, from, 1, m.Addresses)
		payload, _ := payloadOf(buffer)
		if drop := parse(payload, ring, &names, &got); drop != Taken {
			t.Fatal(drop)
		}
	}
	round()
	if n := testing.AllocsPerRun(200, round); n > 0 {
		t.Errorf("%v allocations a heartbeat, want none", n)
	}
}

// BenchmarkHeartbeat says and hears one of a hundred members and fifty addresses.
func BenchmarkHeartbeat(b *testing.B) {
	m := Message{Node: "worker-17.example.com", Heard: make([]byte, 13), Addresses: make([]netip.Addr, 50)}
	for i := range m.Addresses {
		m.Addresses[i] = netip.AddrFrom4([4]byte{203, 0, 113, byte(i)})
	}
	ring, buffer := ringOf(b, 1), []byte(nil)
	var names interner
	var got Message
	b.ReportAllocs()
	for b.Loop() {
		buffer = m.appendFrame(buffer[:0], ring, from, 1, m.Addresses)
		payload, _ := payloadOf(buffer)
		if drop := parse(payload, ring, &names, &got); drop != Taken {
			b.Fatal(drop)
		}
	}
}

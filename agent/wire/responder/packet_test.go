//go:build linux

package responder

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
)

var (
	ownMAC       = MAC{2, 0, 0, 0, 0, 1}
	requesterMAC = MAC{2, 0, 0, 0, 0, 9}
	held         = netip.MustParseAddr("203.0.113.3")
	other        = netip.MustParseAddr("203.0.113.4")
	requester    = netip.MustParseAddr("203.0.113.1")
	unknown      = netip.AddrFrom4([4]byte{})
)

// packetOf encodes a frame with another library.
func packetOf(t testing.TB, destination MAC, op arp.Operation, from MAC, fromIP netip.Addr, to MAC,
	toIP netip.Addr) []byte {
	t.Helper()
	p, err := arp.NewPacket(op, net.HardwareAddr(from[:]), fromIP, net.HardwareAddr(to[:]), toIP)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := p.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	f := ethernet.Frame{Destination: net.HardwareAddr(destination[:]), Source: net.HardwareAddr(from[:]),
		EtherType: ethernet.EtherTypeARP, Payload: payload}
	raw, err := f.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func request(t testing.TB) []byte {
	return packetOf(t, broadcast, arp.OperationRequest, requesterMAC, requester, MAC{}, held)
}

// read decodes a frame with another library.
func read(t testing.TB, raw []byte) (ethernet.Frame, arp.Packet) {
	t.Helper()
	var f ethernet.Frame
	if err := f.UnmarshalBinary(raw); err != nil {
		t.Fatal(err)
	}
	var p arp.Packet
	if err := p.UnmarshalBinary(f.Payload); err != nil {
		t.Fatal(err)
	}
	return f, p
}

func TestAnswer(t *testing.T) {
	const now = time.Hour
	good := NewTable(now+time.Second, held)
	change := func(at int, to ...byte) []byte {
		raw := request(t)
		copy(raw[at:], to)
		return raw
	}
	for name, tc := range map[string]struct {
		in   []byte
		held *Table
		at   time.Duration
		want Result
	}{
		"to all":     {in: request(t), held: good, want: Answered},
		"only to us": {in: change(atDestination, ownMAC[:]...), held: good, want: Answered},
		"a probe": {in: packetOf(t, broadcast, arp.OperationRequest, requesterMAC, unknown, MAC{}, held),
			held: good, want: Answered},
		"by a virtual router": {in: change(atSource, 0, 0, 0x5e, 0, 1, 7), held: good, want: Answered},
		"at the last moment":  {in: request(t), held: good, at: time.Second - 1, want: Answered},
		"too late":            {in: request(t), held: good, at: time.Second, want: Expired},
		"another address": {in: packetOf(t, broadcast, arp.OperationRequest, requesterMAC, requester, MAC{},
			other), held: good, want: NotHeld},
		"nothing held": {in: request(t), held: NewTable(now + time.Second), want: NotHeld},
		"no table":     {in: request(t), want: NotHeld},
		"a reply": {in: packetOf(t, ownMAC, arp.OperationReply, requesterMAC, requester, ownMAC, held),
			held: good, want: NotRequest},
		"a reverse request": {in: change(atOperation, 0, 3), held: good, want: NotRequest},
		"our own": {in: packetOf(t, broadcast, arp.OperationRequest, ownMAC, requester, MAC{}, held),
			held: good, want: Own},
		"our own, forged":    {in: change(atSource, ownMAC[:]...), held: good, want: Own},
		"to another machine": {in: change(atDestination, 2, 0, 0, 0, 0, 7), held: good, want: NotForUs},
		"to a group":         {in: change(atDestination, 1, 0, 0x5e, 0, 0, 1), held: good, want: NotForUs},
		"an announcement": {in: packetOf(t, broadcast, arp.OperationRequest, requesterMAC, held, MAC{}, held),
			held: good, want: Claim},
		"cut":                  {in: request(t)[:frameLength-1], held: good, want: Malformed},
		"empty":                {held: good, want: Malformed},
		"without a sender":     {in: change(atSenderHardware, 0, 0, 0, 0, 0, 0), held: good, want: Malformed},
		"by a group":           {in: change(atSenderHardware, 0xff), held: good, want: Malformed},
		"another ethertype":    {in: change(atEtherType, 0x08, 0x00), held: good, want: Malformed},
		"another hardware":     {in: change(atHardware, 0, 6), held: good, want: Malformed},
		"another protocol":     {in: change(atProtocol, 0x86, 0xdd), held: good, want: Malformed},
		"addresses too long":   {in: change(atLengths, 8), held: good, want: Malformed},
		"protocol length of 6": {in: change(atLengths, 6, 16), held: good, want: Malformed},
	} {
		t.Run(name, func(t *testing.T) {
			var out frame
			if got := answer(tc.in, ownMAC, tc.held, now+tc.at, &out); got != tc.want {
				t.Fatalf("%s, want %s", got, tc.want)
			}
			if (out != frame{}) != (tc.want == Answered) {
				t.Errorf("%s, and % x was written", tc.want, out)
			}
		})
	}
}

// TestReply: other libraries can read what we write.
func TestReply(t *testing.T) {
	for _, from := range []netip.Addr{requester, unknown} {
		in := packetOf(t, broadcast, arp.OperationRequest, requesterMAC, from, MAC{}, held)
		copy(in[atSource:], []byte{2, 0, 0, 0, 0, 8})
		var out frame
		if got := answer(in, ownMAC, NewTable(time.Minute, held), 0, &out); got != Answered {
			t.Fatal(got)
		}
		f, p := read(t, out[:])
		want := packetOf(t, requesterMAC, arp.OperationReply, ownMAC, held, requesterMAC, from)
		if diff := cmp.Diff(want[:frameLength], out[:]); diff != "" {
			t.Errorf("reply %v %+v (-want +got):\n%s", f.Destination, p, diff)
		}
	}
}

// TestAnnouncements: a request with an empty target hardware address (RFC 5227) and a reply that names its sender
// twice.
func TestAnnouncements(t *testing.T) {
	var request, reply frame
	announceRequest(&request, ownMAC, held)
	announceReply(&reply, ownMAC, held)
	if want := packetOf(t, broadcast, arp.OperationRequest, ownMAC, held, MAC{},
		held); !slices.Equal(want[:frameLength], request[:]) {
		t.Errorf("request % x, want % x", request, want)
	}
	if want := packetOf(t, broadcast, arp.OperationReply, ownMAC, held, ownMAC, held); !slices.Equal(want[:frameLength],
		reply[:]) {
		t.Errorf("reply % x, want % x", reply, want)
	}
}

// FuzzAnswer: for every input, only a request for a held address is answered, and the answer contains no hardware
// address of another machine.
func FuzzAnswer(f *testing.F) {
	f.Add(request(f))
	f.Add(packetOf(f, ownMAC, arp.OperationReply, requesterMAC, requester, ownMAC, held))
	f.Add([]byte{})
	table := NewTable(time.Hour, held, other)
	f.Fuzz(func(t *testing.T, raw []byte) {
		var out frame
		before := slices.Clone(raw)
		result := answer(raw, ownMAC, table, 0, &out)
		if !slices.Equal(before, raw) {
			t.Fatal("the received frame was changed")
		}
		if result != Answered {
			if out != (frame{}) {
				t.Fatalf("%s, and % x was written", result, out)
			}
			return
		}
		_, asked := read(t, raw[:frameLength])
		to, got := read(t, out[:])
		switch {
		case asked.Operation != arp.OperationRequest || got.Operation != arp.OperationReply:
			t.Fatalf("%v was answered by %v", asked, got)
		case got.SenderIP != asked.TargetIP || got.TargetIP != asked.SenderIP:
			t.Fatalf("%v was answered by %v", asked, got)
		case got.SenderIP != held && got.SenderIP != other:
			t.Fatalf("%s is answered for", got.SenderIP)
		case MAC(got.SenderHardwareAddr) != ownMAC || MAC(to.Source) != ownMAC || MAC(to.Destination) == broadcast:
			t.Fatalf("% x was answered by % x", raw, out)
		}
	})
}

// TestAnswerAllocatesNothing holds for every result: a flood causes no garbage.
func TestAnswerAllocatesNothing(t *testing.T) {
	table := NewTable(Now()+time.Hour, held)
	frames := [][]byte{
		request(t), request(t)[:20], packetOf(t, ownMAC, arp.OperationReply, requesterMAC, requester, ownMAC, held),
		packetOf(t, broadcast, arp.OperationRequest, requesterMAC, requester, MAC{}, other),
	}
	var out frame
	if n := testing.AllocsPerRun(1000, func() {
		for _, f := range frames {
			answer(f, ownMAC, table, Now(), &out)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// BenchmarkAnswer measures the decision among five hundred addresses, including the clock.
func BenchmarkAnswer(b *testing.B) {
	addresses := make([]netip.Addr, 500)
	for i := range addresses {
		addresses[i] = netip.AddrFrom4([4]byte{203, 0, byte(113 + i/256), byte(i)})
	}
	table := NewTable(Now()+time.Hour, addresses...)
	in := request(b)
	var out frame
	b.ReportAllocs()
	for b.Loop() {
		if answer(in, ownMAC, table, Now(), &out) != Answered {
			b.Fatal("no answer")
		}
	}
}

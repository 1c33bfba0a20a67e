package arp

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/arp"
)

// A request of 02:00:00:00:00:01 (192.0.2.2) for 192.0.2.1, byte by byte as in RFC 826.
var goldenRequest = []byte{
	0, 1, 8, 0, 6, 4, 0, 1,
	2, 0, 0, 0, 0, 1, 192, 0, 2, 2,
	0, 0, 0, 0, 0, 0, 192, 0, 2, 1,
}

func TestRequest(t *testing.T) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	got, err := request(mac, netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.1"))
	if err != nil || !bytes.Equal(got, goldenRequest) {
		t.Errorf("request is % x (%v), want % x", got, err, goldenRequest)
	}
	probe, err := request(mac, netip.IPv4Unspecified(), netip.MustParseAddr("192.0.2.1"))
	if err != nil || !bytes.Equal(probe[14:18], []byte{0, 0, 0, 0}) {
		t.Errorf("sender address of a probe is % x (%v), want zeros", probe[14:18], err)
	}
}

func TestRequestRefusesWhatARPCannotSay(t *testing.T) {
	if _, err := request(net.HardwareAddr{2, 0, 0, 0, 0, 1}, netip.MustParseAddr("2001:db8::1"),
		netip.MustParseAddr("192.0.2.1")); err == nil {
		t.Error("an IPv6 sender was accepted")
	}
}

func edited(edit func([]byte)) []byte {
	b := bytes.Clone(goldenRequest)
	edit(b)
	return b
}

func TestParse(t *testing.T) {
	sender := Announcement{Address: netip.MustParseAddr("192.0.2.2"), MAC: "02:00:00:00:00:01",
		Target: netip.MustParseAddr("192.0.2.1")}
	reply := sender
	reply.Reply = true
	for name, tc := range map[string]struct {
		payload []byte
		want    Announcement
		drop    Drop
	}{
		"request":                    {goldenRequest, sender, Kept},
		"reply":                      {edited(func(b []byte) { b[7] = 2 }), reply, Kept},
		"padded as on Ethernet":      {append(bytes.Clone(goldenRequest), make([]byte, 18)...), sender, Kept},
		"empty":                      {nil, Announcement{}, Malformed},
		"short":                      {goldenRequest[:27], Announcement{}, Malformed},
		"other lengths, and no more": {edited(func(b []byte) { b[4] = 0 })[:6], Announcement{}, NotEthernet},
		"other hardware":             {edited(func(b []byte) { b[1] = 6 }), Announcement{}, NotEthernet},
		"other protocol":             {edited(func(b []byte) { b[2] = 0x86 }), Announcement{}, NotEthernet},
		"hardware length zero":       {edited(func(b []byte) { b[4] = 0 }), Announcement{}, NotEthernet},
		"protocol length sixteen":    {edited(func(b []byte) { b[5] = 16 }), Announcement{}, NotEthernet},
		"reverse request":            {edited(func(b []byte) { b[7] = 3 }), Announcement{}, NotAddressed},
		"probe": {edited(func(b []byte) { copy(b[14:18], []byte{0, 0, 0, 0}) }), Announcement{},
			Probe},
		"sender without an address": {edited(func(b []byte) { copy(b[8:14], make([]byte, 6)) }), Announcement{},
			BadSender},
		"sender is broadcast": {edited(func(b []byte) { copy(b[8:14], bytes.Repeat([]byte{0xff}, 6)) }), Announcement{},
			BadSender},
	} {
		t.Run(name, func(t *testing.T) {
			got, drop := Parse(tc.payload)
			if drop != tc.drop || !cmp.Equal(got, tc.want, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })) {
				t.Errorf("Parse is %+v, dropped %q; want %+v, %q", got, drop, tc.want, tc.drop)
			}
		})
	}
}

// FuzzParse: Parse returns for every input, and what it accepts can be encoded again.
func FuzzParse(f *testing.F) {
	f.Add(goldenRequest)
	f.Add(goldenRequest[:8])
	f.Add(edited(func(b []byte) {
		b[4] = 255
		b[5] = 255
	}))
	f.Add(edited(func(b []byte) { b[5] = 0 }))
	f.Fuzz(func(t *testing.T, payload []byte) {
		claim, drop := Parse(payload)
		if drop != Kept {
			if claim != (Announcement{}) {
				t.Errorf("dropped (%s), but returned %+v", drop, claim)
			}
			return
		}
		mac, err := net.ParseMAC(claim.MAC)
		if err != nil || !claim.Address.Is4() {
			t.Fatalf("kept %+v: %v", claim, err)
		}
		again, err := request(mac, claim.Address, claim.Target)
		if err != nil {
			t.Fatal(err)
		}
		if claim.Reply {
			again[7] = byte(arp.OperationReply)
		}
		if second, drop := Parse(again); drop != Kept || second != claim {
			t.Errorf("encoded again: %+v (%s), want %+v", second, drop, claim)
		}
	})
}

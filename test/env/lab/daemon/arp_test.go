//go:build linux

package daemon

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/wire"
)

var (
	alice = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	vip   = netip.MustParseAddr("203.0.113.10")
	other = netip.MustParseAddr("203.0.113.1")
	none  = netip.IPv4Unspecified()
)

func frame(t testing.TB, op arp.Operation, sender, target netip.Addr) []byte {
	t.Helper()
	p, err := arp.NewPacket(op, alice, sender, ethernet.Broadcast, target)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := p.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	f := ethernet.Frame{Destination: ethernet.Broadcast, Source: alice, EtherType: ethernet.EtherTypeARP,
		Payload: payload}
	data, err := f.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestParse(t *testing.T) {
	for name, tc := range map[string]struct {
		frame []byte
		want  wire.Claim
		claim bool
	}{
		"request": {frame(t, arp.OperationRequest, vip, other), wire.Claim{IP: vip, MAC: alice.String()},
			true},
		"reply": {frame(t, arp.OperationReply, vip, other),
			wire.Claim{IP: vip, MAC: alice.String(), Reply: true}, true},
		"announcement": {frame(t, arp.OperationRequest, vip, vip),
			wire.Claim{IP: vip, MAC: alice.String(), Gratuitous: true}, true},
		"announcement, reply": {frame(t, arp.OperationReply, vip, vip),
			wire.Claim{IP: vip, MAC: alice.String(), Reply: true, Gratuitous: true}, true},
		"probe claims nothing": {frame: frame(t, arp.OperationRequest, none, vip)},
		"cut short":            {frame: frame(t, arp.OperationRequest, vip, other)[:30]},
		"nothing":              {},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := parse(tc.frame)
			if ok != tc.claim {
				t.Fatalf("parse returned %v, want %v", ok, tc.claim)
			}
			if diff := cmp.Diff(tc.want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Errorf("claim differs (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(frame(f, arp.OperationRequest, vip, other))
	f.Add(frame(f, arp.OperationReply, vip, vip)[:41])
	f.Fuzz(func(t *testing.T, data []byte) {
		if c, ok := parse(data); ok && (!c.IP.Is4() || c.IP.IsUnspecified() || c.MAC == "") {
			t.Errorf("parse(%x) claims %+v", data, c)
		}
	})
}

func TestRecordIsBoundedAndKeepsTheNewest(t *testing.T) {
	var r claimRecord
	begin := time.Unix(1_000_000_000, 0)
	for i := range recordLimit + 10 {
		r.add(wire.Claim{At: begin.Add(time.Duration(i))})
	}
	all := r.Since(begin)
	if len(all) > recordLimit || !all[len(all)-1].At.Equal(begin.Add(recordLimit+9)) {
		t.Errorf("%d claims are kept, the newest of %v", len(all), all[len(all)-1].At)
	}
	if got := r.Since(begin.Add(recordLimit)); len(got) != 10 {
		t.Errorf("%d claims since a time, want 10", len(got))
	}
}

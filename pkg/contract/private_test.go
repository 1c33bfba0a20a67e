package contract

import (
	"net/netip"
	"testing"
)

func TestIsPrivate(t *testing.T) {
	for address, want := range map[string]bool{
		"10.0.0.1": true, "10.255.255.255": true, "11.0.0.0": false, "172.16.0.0": true, "172.31.255.255": true,
		"172.32.0.0": false, "192.168.255.255": true, "192.169.0.0": false, "127.0.0.1": false, "169.254.1.1": false, "0.0.0.0": false,
		"::1": false, "100.64.0.0": true,
		"100.127.255.255": true, "100.63.255.255": false, "100.128.0.0": false, "203.0.113.1": false,
		"::ffff:10.0.0.1": true, "::ffff:203.0.113.1": false, "fd00::1": true, "fe80::1": false, "2001:db8::1": false,
	} {
		if got := IsPrivate(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: private %v, want %v", address, got, want)
		}
	}
	if IsPrivate(netip.Addr{}) {
		t.Error("the zero address is private")
	}
}

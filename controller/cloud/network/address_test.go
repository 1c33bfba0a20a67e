package network_test

import (
	"net/netip"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
)

func TestAddressesOfABlock(t *testing.T) {
	for _, test := range []struct {
		cidr, gateway string
		hosts         int
	}{
		{"203.0.113.8/29", "203.0.113.9", 5},
		{"203.0.113.16/28", "203.0.113.17", 13},
		{"203.0.113.4/30", "203.0.113.5", 1},
		{"203.0.113.2/31", "203.0.113.2", 1},
		{"203.0.113.2/32", "", 0},
		{"203.0.113.13/29", "203.0.113.9", 5},
		{"255.255.255.248/29", "255.255.255.249", 5},
		{"2001:db8::/64", "2001:db8::1", -1},
		{"", "", 0},
	} {
		t.Run(test.cidr, func(t *testing.T) {
			cidr := prefix(test.cidr)
			if got := network.Gateway(cidr); got != addr(test.gateway) {
				t.Errorf("gateway is %s, want %s", got, test.gateway)
			}
			if test.hosts < 0 {
				return
			}
			if got := countHosts(cidr); got != test.hosts {
				t.Errorf("%d addresses for hosts, want %d", got, test.hosts)
			}
		})
	}
}

func countHosts(cidr netip.Prefix) int {
	if !cidr.IsValid() {
		return 0
	}
	hosts := 0
	for a := cidr.Masked().Addr(); a.IsValid() && cidr.Contains(a); a = a.Next() {
		if network.IsHost(cidr, a) {
			hosts++
		}
	}
	return hosts
}

func prefix(raw string) netip.Prefix {
	if raw == "" {
		return netip.Prefix{}
	}
	return netip.MustParsePrefix(raw)
}

func addr(raw string) netip.Addr {
	if raw == "" {
		return netip.Addr{}
	}
	return netip.MustParseAddr(raw)
}

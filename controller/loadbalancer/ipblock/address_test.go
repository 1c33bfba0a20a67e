package ipblock_test

import (
	"net/netip"
	"testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
)

func TestServiceAddress(t *testing.T) {
	for _, test := range []struct {
		cidr, service string
	}{
		{"203.0.113.8/29", "203.0.113.10"},
		{"203.0.113.16/28", "203.0.113.18"},
		{"203.0.113.4/30", "203.0.113.6"},
		{"203.0.113.2/31", "203.0.113.3"},
		{"203.0.113.2/32", ""},
		{"203.0.113.13/29", "203.0.113.10"},
		{"255.255.255.248/29", "255.255.255.250"},
		{"2001:db8::/64", "2001:db8::2"},
		{"", ""},
	} {
		t.Run(test.cidr, func(t *testing.T) {
			cidr := prefix(test.cidr)
			if got := ipblock.ServiceAddress(cidr); got != addr(test.service) {
				t.Errorf("Service address is %s, want %s", got, test.service)
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

// FuzzServiceAddress: whatever the block, its Service address is a host's and not the gateway's.
func FuzzServiceAddress(f *testing.F) {
	for _, seed := range []string{"203.0.113.8/29", "0.0.0.0/0", "255.255.255.255/32", "2001:db8::/127",
		"::ffff:203.0.113.8/125"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		cidr, err := netip.ParsePrefix(raw)
		if err != nil {
			return
		}
		address := ipblock.ServiceAddress(cidr)
		if !address.IsValid() {
			return
		}
		if !cidr.Contains(address) || !network.IsHost(cidr, address) || address == network.Gateway(cidr) {
			t.Errorf("block %s gives a Service %s with gateway %s", cidr, address, network.Gateway(cidr))
		}
	})
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

package contract

import (
	"net/netip"
	"slices"
)

// PrivateNetworks are the IPv4 networks that are not routed on the Internet and that machines have addresses of: those
// of RFC 1918, and the shared address space of RFC 6598, which providers and overlay networks use alike.
func PrivateNetworks() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"),
		netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("100.64.0.0/10"),
	}
}

// IsPrivate reports whether an address is in one of the PrivateNetworks or, of IPv6, a unique local one (RFC 4193).
func IsPrivate(address netip.Addr) bool {
	address = address.Unmap()
	return address.Is6() && address.IsPrivate() ||
		slices.ContainsFunc(PrivateNetworks(), func(p netip.Prefix) bool { return p.Contains(address) })
}

package network

import (
	"net/netip"
)

// Gateway returns the address of phoenixNAP's router in a block: the first usable one, for a /29 the
// second address. For a /31 (RFC 3021) that is the first address. The zero Addr when the block is none.
func Gateway(cidr netip.Prefix) netip.Addr {
	if !cidr.IsValid() || cidr.IsSingleIP() {
		return netip.Addr{}
	}
	first := cidr.Masked().Addr()
	if isPointToPoint(cidr) {
		return first
	}
	return first.Next()
}

// IsHost reports whether a host may hold the address in the block: it is inside and neither the network
// address, nor the gateway, nor (IPv4) the broadcast address.
func IsHost(cidr netip.Prefix, address netip.Addr) bool {
	if !cidr.IsValid() || !cidr.Contains(address) || address == Gateway(cidr) {
		return false
	}
	if isPointToPoint(cidr) {
		return true
	}
	if address == cidr.Masked().Addr() {
		return false
	}
	return !address.Is4() || cidr.Contains(address.Next())
}

func isPointToPoint(cidr netip.Prefix) bool {
	return cidr.Bits() == cidr.Addr().BitLen()-1
}

package ipblock

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
)

// ServiceAddress returns the address that a Service gets in a block of its own: the one behind the
// gateway, for a /29 the third. The zero Addr when the block has no such address.
func ServiceAddress(cidr netip.Prefix) netip.Addr {
	gateway := network.Gateway(cidr)
	if !gateway.IsValid() {
		return netip.Addr{}
	}
	if address := gateway.Next(); network.IsHost(cidr, address) {
		return address
	}
	return netip.Addr{}
}

// serviceAddressIn chooses the address of a Service in its block: the one that the user asked for, else
// the one that is already published, else the first that no member of the network holds. The zero Addr when a
// requested address cannot be had in this block or the block has none left.
func serviceAddressIn(cidr netip.Prefix, desired Request, published netip.Addr,
	public network.Network) netip.Addr {
	switch {
	case desired.Requested.IsValid() && desired.Requested != published:
		if network.IsHost(cidr, desired.Requested) && !public.Holds(desired.Requested) {
			return desired.Requested
		}
		return netip.Addr{}
	case network.IsHost(cidr, published):
		return published
	}
	for address := ServiceAddress(cidr); address.IsValid() && network.IsHost(cidr, address); address = address.Next() {
		if !public.Holds(address) {
			return address
		}
	}
	return netip.Addr{}
}

// Size is the prefix length of an IPv4 block, in bits: 29 for a /29. The zero Size is none.
type Size int

// LargestSize is the largest that can be bought, with 13 addresses for Services.
const LargestSize Size = 28

// BlockSizes are the sizes that can be bought and have an address for a Service. A /31 has one too, but
// the API sells it only for servers.
func BlockSizes() []string { return []string{"/28", "/29", "/30"} }

// ParseSize reads a size as it is written in options and annotations, such as "/29".
func ParseSize(raw string) (Size, error) {
	if !slices.Contains(BlockSizes(), raw) {
		return 0, fmt.Errorf("block size %q is not one of /28, /29 and /30", raw)
	}
	bits, err := strconv.Atoi(raw[1:])
	return Size(bits), err
}

// String is the size as the API writes it, such as "/29".
func (s Size) String() string { return "/" + strconv.Itoa(int(s)) }

// SizeOf is the size of a block.
func SizeOf(cidr netip.Prefix) Size {
	if !cidr.IsValid() {
		return 0
	}
	return Size(cidr.Bits())
}

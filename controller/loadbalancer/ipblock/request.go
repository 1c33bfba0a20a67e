package ipblock

import (
	"cmp"
	"net/netip"
)

// Request is what is asked for of a block and its addresses, as far as it can be known without the account.
type Request struct {
	// Size of the block to buy, and in words where it can be set; 0 when any will do.
	Size       Size
	SizeSource string
	// SizeDemanded is true when the Service itself asks for the size. An option only says what to buy: a
	// change of it does not disturb blocks that are there.
	SizeDemanded bool
	// Replace allows a new block, and with it a new address, in the place of a published one that is gone.
	Replace bool
	// Requested is the address that the Service is to get, and in words where it was asked for, such as
	// spec.loadBalancerIP, which is meant when that is empty; the zero Addr when any will do.
	Requested       netip.Addr
	RequestedSource string
	// Location in which to buy, and in words where it was or can be set; empty when none is configured.
	Location, LocationSource string
}

func (r Request) requestedSource() string { return cmp.Or(r.RequestedSource, "spec.loadBalancerIP") }

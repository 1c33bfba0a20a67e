package plan

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Size is the prefix length of an IPv4 block, in bits: 29 for a /29. The zero Size is none.
type Size int

// The sizes that can be bought: from 13 addresses for Services down to one.
const (
	LargestSize  Size = 28
	SmallestSize Size = 30
)

// ParseSize reads a size as it is written in options and annotations, such as "/29".
func ParseSize(raw string) (Size, error) {
	bits, found := strings.CutPrefix(raw, "/")
	n, err := strconv.Atoi(bits)
	size := Size(n)
	if !found || err != nil || size.String() != raw || size < LargestSize || size > SmallestSize {
		return 0, fmt.Errorf("block size %q is not one of /28, /29 and /30", raw)
	}
	return size, nil
}

// String is the size as the API writes it, such as "/29".
func (s Size) String() string { return "/" + strconv.Itoa(int(s)) }

// Hosts is how many addresses of a block of that size hosts may hold: network, gateway and broadcast
// address are not among them.
func (s Size) Hosts() int {
	if s <= 0 || s > 31 {
		return 0
	}
	if s == 31 {
		return 1
	}
	return 1<<(32-int(s)) - 3
}

// SizeOf is the size of a block.
func SizeOf(cidr netip.Prefix) Size {
	if !cidr.IsValid() {
		return 0
	}
	return Size(cidr.Bits())
}

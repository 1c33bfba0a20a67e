package returnpath

import (
	"fmt"
	"math/bits"
	"strconv"
)

// Bits are the bits of packet mark and connection mark that distinguish the gateways. With n bits, 2^n-1 gateways
// have a value of their own.
type Bits uint32

// DefaultBits do not collide with kube-proxy (0xc000), Calico (0xffff0000), Cilium (0x0f00 and above 16; its low byte
// is used only by meshes of clusters) and CNI's portmap plugin (0x2000), whose packets the kernel routes by whatever
// rule matches their mark. Four bits are enough for the ten blocks that a phoenixNAP network may hold.
const DefaultBits Bits = 0xf0

// kubeProxy are the bits with which kube-proxy and the kubelet mark packets to be masqueraded or dropped
// (--iptables-masquerade-bit, default 14; KUBE-FIREWALL, 15).
const kubeProxy Bits = 0xc000

// ParseBits reads a mask such as "0xf0".
func ParseBits(s string) (Bits, error) {
	n, err := strconv.ParseUint(s, 0, 32)
	if err != nil {
		return 0, fmt.Errorf("mark bits %q: want a mask such as %s", s, DefaultBits)
	}
	b := Bits(n)
	switch {
	case b == 0:
		return 0, fmt.Errorf("mark bits %q: want at least one bit, such as %s", s, DefaultBits)
	case b&kubeProxy != 0:
		return 0, fmt.Errorf("mark bits %q: %s belong to kube-proxy; choose others, such as %s", s, kubeProxy,
			DefaultBits)
	}
	return b, nil
}

// String writes the mask as a hexadecimal number.
func (b Bits) String() string { return fmt.Sprintf("%#x", uint32(b)) }

// Count is how many gateways have a value of their own.
func (b Bits) Count() int { return 1<<bits.OnesCount32(uint32(b)) - 1 }

// Value is the packet mark of the gateway with that index, from 0 to Count()-1: index+1, spread over the bits of the
// mask.
func (b Bits) Value(index int) uint32 {
	var value uint32
	number := uint32(index + 1) //nolint:gosec // a small index
	for mask := uint32(b); mask != 0; mask &= mask - 1 {
		if number&1 != 0 {
			value |= mask & -mask
		}
		number >>= 1
	}
	return value
}

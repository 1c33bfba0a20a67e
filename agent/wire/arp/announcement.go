package arp

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
)

const (
	hardwareEthernet = 1 // RFC 826, ar$hrd
	macLength        = 6
)

// Announcement is the content of a received ARP packet: MAC holds Address.
type Announcement struct {
	Address netip.Addr
	MAC     string
	// Reply is set for a reply; a request claims the sender's address, too (RFC 5227, section 2.1.1).
	Reply bool
	// Target is the address that a request asks for, or the receiver of a reply. For a gratuitous packet it is
	// Address.
	Target netip.Addr
}

// Asks reports whether the packet asks for an address other than its own.
func (c Announcement) Asks() bool { return !c.Reply && c.Target != c.Address }

// Drop is the reason why a received packet is no announcement.
type Drop string

// The reasons to drop a packet.
const (
	Kept         Drop = ""
	Malformed    Drop = "malformed"
	NotEthernet  Drop = "not IPv4 over Ethernet"
	NotAddressed Drop = "neither request nor reply"
	Probe        Drop = "probe without a sender address"
	BadSender    Drop = "sender hardware address is no unicast address"
)

// Parse reads the payload of an Ethernet frame of type ARP. It returns for every input.
func Parse(payload []byte) (Announcement, Drop) {
	var p arp.Packet
	// Lengths other than Ethernet's and IPv4's are rejected before the library uses them.
	if len(payload) >= 6 && (payload[4] != macLength || payload[5] != net.IPv4len) {
		return Announcement{}, NotEthernet
	}
	if err := p.UnmarshalBinary(payload); err != nil {
		return Announcement{}, Malformed
	}
	switch {
	case p.HardwareType != hardwareEthernet, p.ProtocolType != uint16(ethernet.EtherTypeIPv4):
		return Announcement{}, NotEthernet
	case p.Operation != arp.OperationRequest && p.Operation != arp.OperationReply:
		return Announcement{}, NotAddressed
	case p.SenderIP.IsUnspecified():
		return Announcement{}, Probe
	case !unicast(p.SenderHardwareAddr):
		return Announcement{}, BadSender
	}
	return Announcement{
		Address: p.SenderIP, MAC: p.SenderHardwareAddr.String(),
		Reply: p.Operation == arp.OperationReply, Target: p.TargetIP,
	}, Kept
}

func unicast(mac net.HardwareAddr) bool {
	zero := true
	for _, b := range mac {
		zero = zero && b == 0
	}
	return !zero && mac[0]&1 == 0
}

// request encodes a broadcast request for target; a source of 0.0.0.0 makes it a probe. The target hardware address
// is zero, as RFC 5227 requires.
func request(mac net.HardwareAddr, source, target netip.Addr) ([]byte, error) {
	p, err := arp.NewPacket(arp.OperationRequest, mac, source, make(net.HardwareAddr, macLength), target)
	if err != nil {
		return nil, fmt.Errorf("encode a request for %s: %w", target, err)
	}
	return p.MarshalBinary()
}

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

// Announcement is what a received ARP packet says: MAC holds Address.
type Announcement struct {
	Address netip.Addr
	MAC     string
	// Reply tells a reply from a request; both claim the sender's address (RFC 5227, section 2.1.1).
	Reply bool
	// Target is the address that a request asks for, or the receiver of a reply. That of a gratuitous packet is Address.
	Target netip.Addr
}

// Asks tells whether the packet asks for an address, other than by announcing its own.
func (c Announcement) Asks() bool { return !c.Reply && c.Target != c.Address }

// Drop is the reason for which a received packet is no claim.
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

// Parse reads the payload of an Ethernet frame of type ARP. Whatever is on the wire, it returns.
func Parse(payload []byte) (Announcement, Drop) {
	var p arp.Packet
	// Lengths other than Ethernet's and IPv4's are refused before the library trusts them.
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
	return Announcement{Address: p.SenderIP, MAC: p.SenderHardwareAddr.String(), Reply: p.Operation == arp.OperationReply, Target: p.TargetIP}, Kept
}

func unicast(mac net.HardwareAddr) bool {
	zero := true
	for _, b := range mac {
		zero = zero && b == 0
	}
	return !zero && mac[0]&1 == 0
}

// request writes a broadcast request for target; a source of 0.0.0.0 makes it a probe. The target hardware address is
// zero, as RFC 5227 wants it.
func request(mac net.HardwareAddr, source, target netip.Addr) ([]byte, error) {
	p, err := arp.NewPacket(arp.OperationRequest, mac, source, make(net.HardwareAddr, macLength), target)
	if err != nil {
		return nil, fmt.Errorf("ask who has %s: %w", target, err)
	}
	return p.MarshalBinary()
}

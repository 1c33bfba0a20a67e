package heartbeat

import (
	"encoding/binary"
	"net/netip"
)

// Port is the UDP port of heartbeats, which IANA has not assigned. The number is that of the EtherType for local
// experiments (IEEE 802, 0x88b5).
const Port = 0x88b5

// The headers of a frame: Ethernet (IEEE 802.3), IPv4 without options (RFC 791), UDP (RFC 768).
const (
	ethernetLength = 14
	ipv4Length     = 20
	udpLength      = 8
	headersLength  = ethernetLength + ipv4Length + udpLength

	etherTypeIPv4 = 0x0800
	versionAndIHL = 4<<4 | ipv4Length/4
	dontFragment  = 0x4000
	protocolUDP   = 17
	timeToLive    = 1 // it does not leave the VLAN
)

// address is the source of a frame: the hardware address of the interface and the node's own address there, 0.0.0.0
// when it has none.
type address struct {
	mac [6]byte
	ip  [4]byte
}

func addressOf(mac [6]byte, ip netip.Addr) address {
	a := address{mac: mac}
	if ip.Is4() {
		a.ip = ip.As4()
	}
	return a
}

// putHeaders writes the headers of a frame before its payload.
func putHeaders(frame []byte, from address) {
	be := binary.BigEndian
	copy(frame, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	copy(frame[6:], from.mac[:])
	be.PutUint16(frame[12:], etherTypeIPv4)

	ip := frame[ethernetLength:]
	clear(ip[:ipv4Length])
	ip[0] = versionAndIHL
	be.PutUint16(ip[2:], uint16(len(ip))) //nolint:gosec // bounded by maxFrame
	be.PutUint16(ip[6:], dontFragment)
	ip[8] = timeToLive
	ip[9] = protocolUDP
	copy(ip[12:], from.ip[:])
	copy(ip[16:], []byte{255, 255, 255, 255})
	be.PutUint16(ip[10:], ^sum(ip[:ipv4Length], 0))

	udp := ip[ipv4Length:]
	be.PutUint16(udp, Port)
	be.PutUint16(udp[2:], Port)
	be.PutUint16(udp[4:], uint16(len(udp))) //nolint:gosec // bounded by maxFrame
	be.PutUint16(udp[6:], 0)
	checksum := ^sum(udp, pseudoHeader(ip, len(udp)))
	if checksum == 0 {
		checksum = 0xffff // 0 means none (RFC 768)
	}
	be.PutUint16(udp[6:], checksum)
}

// pseudoHeader is the part of the checksum that UDP takes from IPv4.
func pseudoHeader(ip []byte, length int) uint32 {
	return uint32(sum(ip[12:20], 0)) + protocolUDP + uint32(length) //nolint:gosec // bounded by maxFrame
}

// sum is the one's complement sum of 16-bit words (RFC 1071).
func sum(b []byte, start uint32) uint16 {
	total := start
	for ; len(b) > 1; b = b[2:] {
		total += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		total += uint32(b[0]) << 8
	}
	for total>>16 != 0 {
		total = total&0xffff + total>>16
	}
	return uint16(total)
}

// payloadOf returns the payload of a frame that is addressed as a heartbeat. Its checksums are not checked: the
// signature proves more.
func payloadOf(frame []byte) (payload []byte, ok bool) {
	be := binary.BigEndian
	if len(frame) < headersLength || be.Uint16(frame[12:]) != etherTypeIPv4 {
		return nil, false
	}
	ip := frame[ethernetLength:]
	total := int(be.Uint16(ip[2:]))
	if ip[0] != versionAndIHL || ip[9] != protocolUDP || be.Uint16(ip[6:])&^dontFragment != 0 ||
		total > len(ip) || total < ipv4Length+udpLength {
		return nil, false
	}
	udp := ip[ipv4Length:total]
	length := int(be.Uint16(udp[4:]))
	if be.Uint16(udp[2:]) != Port || length > len(udp) || length < udpLength {
		return nil, false
	}
	return udp[udpLength:length], true
}

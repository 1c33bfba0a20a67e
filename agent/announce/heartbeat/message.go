// Package heartbeat exchanges heartbeats between the agents of a cluster on the public network itself: short signed
// broadcasts, which prove what no Lease can, that the VLAN carries frames.
//
// A heartbeat is a UDP datagram in an IPv4 broadcast. A network that carries ARP carries broadcasts, and a switch
// that lets only some protocols pass lets IPv4 pass. It is written and read on a packet socket: no firewall of the
// node and no route affects it, and no port is open.
package heartbeat

import (
	"crypto/hmac"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/election"
)

// Version is the newest version of the format that this package reads and writes; heartbeats of later ones are counted
// and dropped. Each heartbeat says which version its sender understands, see maxFormatShift.
const Version = 1

const (
	// maxFrame bounds a frame without its Ethernet header, in bytes: it passes every tunnel that a provider may use.
	// A longer heartbeat is sent in several frames.
	maxFrame = 1400
	// maxName is the maximum length of the name of a Node, maxAcks the maximum number of acknowledgements, maxUnfit the
	// maximum length of the bitmap, in bytes.
	maxName  = election.MaxName
	maxAcks  = election.MaxAcks
	maxUnfit = election.MaxAddresses / 8
	// maxParts bounds the frames of one heartbeat.
	maxParts = 16
	// maxFormatShift is where the newest version that the sender understands is in the flags, less one, so that it is
	// zero in heartbeats of agents that know only the first.
	maxFormatShift = 12

	// maxBoot and maxSequence bound the numbers of a run and of a heartbeat: microseconds since 1970, until the year
	// 4253, and 200 heartbeats a second for 40,000 years.
	maxBoot     = 1 << 56
	maxSequence = 1 << 48

	magic = "PNH"
)

// The fields of a payload before the name, in bytes.
const (
	atVersion  = 3
	atKey      = 4
	atScope    = atKey + keyIDLength
	atBoot     = atScope + scopeLength
	atSequence = atBoot + 8
	atPart     = atSequence + 8
	atParts    = atPart + 1
	atNameSize = atParts + 1
	atName     = atNameSize + 1
)

// check returns an error when a heartbeat cannot be encoded.
func check(h *election.Heartbeat) error {
	switch {
	case h.Node == "" || len(h.Node) > maxName:
		return fmt.Errorf("the name %q has %d bytes: want 1 to %d", h.Node, len(h.Node), maxName)
	case len(h.Acks) > maxAcks:
		return fmt.Errorf("%d other nodes: want at most %d", len(h.Acks), maxAcks)
	case len(h.Unfit) > maxUnfit:
		return fmt.Errorf("%d addresses that it cannot serve: want at most %d", 8*len(h.Unfit), 8*maxUnfit)
	case len(h.Wants) > election.MaxListed, len(h.Released) > election.MaxListed:
		return fmt.Errorf("lists of %d and %d addresses: want at most %d", len(h.Wants), len(h.Released),
			election.MaxListed)
	default:
		return nil
	}
}

// appendBody appends the body of a heartbeat, everything but the sender.
func appendBody(b []byte, h *election.Heartbeat) []byte {
	be := binary.BigEndian
	b = be.AppendUint64(b, h.Number)
	b = be.AppendUint64(b, h.Seen)
	b = be.AppendUint16(b, uint16(h.Flags&election.AllFlags)|uint16(max(h.MaxFormat, 1)-1)<<maxFormatShift)
	b = be.AppendUint16(b, uint16(len(h.Acks))) //nolint:gosec // bounded by check
	for _, a := range h.Acks {
		b = be.AppendUint32(b, uint32(a.Node))
		b = be.AppendUint32(b, a.Sequence)
	}
	b = appendAddresses(b, h.Wants)
	b = appendAddresses(b, h.Released)
	b = be.AppendUint16(b, uint16(len(h.Unfit))) //nolint:gosec // bounded by check
	return append(b, h.Unfit...)
}

// appendAddresses appends a list of addresses. A view has no others than those of IPv4, which isolated have room.
func appendAddresses(b []byte, list []netip.Addr) []byte {
	start := len(b)
	b = append(b, 0, 0)
	n := uint16(0)
	for _, a := range list {
		if a.Is4() {
			four := a.As4()
			b = append(b, four[:]...)
			n++
		}
	}
	binary.BigEndian.PutUint16(b[start:], n)
	return b
}

// parseBody reads what appendBody wrote.
func parseBody(body []byte, h *election.Heartbeat) bool {
	r := reader{rest: body}
	h.Number = r.uint64()
	h.Seen = r.uint64()
	flags := r.uint16()
	h.Flags = election.Flags(flags) & election.AllFlags
	h.MaxFormat = uint8(flags>>maxFormatShift) + 1
	for list := r.list(8, maxAcks); len(list) > 0; list = list[8:] {
		h.Acks = append(h.Acks, election.Ack{
			Node: election.ID(binary.BigEndian.Uint32(list)), Sequence: binary.BigEndian.Uint32(list[4:]),
		})
	}
	h.Wants = r.addresses()
	h.Released = r.addresses()
	if unfit := r.list(1, maxUnfit); len(unfit) > 0 {
		h.Unfit = slices.Clone(unfit)
	}
	sorted := slices.IsSortedFunc(h.Acks, func(a, b election.Ack) int { return int(int64(a.Node) - int64(b.Node)) })
	return !r.short && len(r.rest) == 0 && sorted
}

// reader reads fields from a body. When one is missing, short is set and all following fields are zero.
type reader struct {
	rest  []byte
	short bool
}

func (r *reader) take(n int) []byte {
	if len(r.rest) < n {
		r.short = true
		r.rest = nil
		return make([]byte, n)
	}
	field := r.rest[:n]
	r.rest = r.rest[n:]
	return field
}

func (r *reader) uint16() uint16 { return binary.BigEndian.Uint16(r.take(2)) }
func (r *reader) uint64() uint64 { return binary.BigEndian.Uint64(r.take(8)) }

// list reads a list of elements of a width in bytes.
func (r *reader) list(width, most int) []byte {
	n := int(r.uint16())
	if n > most || len(r.rest) < n*width {
		r.short = true
		r.rest = nil
		return nil
	}
	return r.take(n * width)
}

func (r *reader) addresses() []netip.Addr {
	list := r.list(4, election.MaxListed)
	if len(list) == 0 {
		return nil
	}
	all := make([]netip.Addr, 0, len(list)/4)
	for ; len(list) > 0; list = list[4:] {
		all = append(all, netip.AddrFrom4([4]byte(list[:4])))
	}
	return all
}

// part is one frame of a heartbeat.
type part struct {
	node           string
	boot, sequence uint64
	index, parts   int
	body           []byte
}

// appendFrame appends the frame of a part, signed by the first key.
func (p part) appendFrame(b []byte, ring *Ring, from address) []byte {
	be := binary.BigEndian
	start := len(b)
	signer := ring.keys[0]
	b = slices.Grow(b, headersLength+maxFrame)[:start+headersLength]
	b = append(b, magic...)
	b = append(b, Version)
	b = append(b, signer.id[:]...)
	b = append(b, ring.scope[:]...)
	b = be.AppendUint64(b, p.boot)
	b = be.AppendUint64(b, p.sequence)
	b = append(b, byte(p.index), byte(p.parts)) //nolint:gosec // bounded by check
	b = append(b, byte(len(p.node)))            //nolint:gosec // bounded by check
	b = append(b, p.node...)
	b = append(b, p.body...)
	b = append(b, signer.tag(b[start+headersLength:])...)
	putHeaders(b[start:], from)
	return b
}

// maxBody is how many bytes of a body fit into one frame.
func maxBody(node string) int {
	return maxFrame - ipv4Length - udpLength - atName - len(node) - tagLength
}

// parsePart reads a payload. Nothing in it is used before the signature is verified.
func parsePart(payload []byte, ring *Ring, names *interner) (part, Drop) {
	be := binary.BigEndian
	switch {
	case len(payload) < atVersion+1 || string(payload[:len(magic)]) != magic:
		return part{}, Malformed
	case payload[atVersion] != Version:
		return part{}, OtherVersion
	case len(payload) < atName+tagLength:
		return part{}, Malformed
	}
	signed := payload[:len(payload)-tagLength]
	tag := payload[len(payload)-tagLength:]
	signer := ring.find(keyID(signed[atKey : atKey+keyIDLength]))
	if signer == nil {
		return part{}, OtherKey
	}
	if !hmac.Equal(signer.tag(signed), tag) {
		return part{}, Forged
	}
	size := int(signed[atNameSize])
	p := part{
		boot: be.Uint64(signed[atBoot:]), sequence: be.Uint64(signed[atSequence:]),
		index: int(signed[atPart]), parts: int(signed[atParts]),
	}
	if size == 0 || size > maxName || len(signed) < atName+size ||
		p.parts == 0 || p.parts > maxParts || p.index >= p.parts {
		return part{}, Malformed
	}
	p.node = names.intern(signed[atName : atName+size])
	if Scope(signed[atScope:atScope+scopeLength]) != ring.scope {
		return p, OtherCluster
	}
	if p.boot > maxBoot || p.sequence > maxSequence {
		return p, Implausible
	}
	p.body = signed[atName+size:]
	return p, Taken
}

// Port is the UDP port of heartbeats, unassigned by IANA; as an EtherType, 0x88b5 is for experiments (IEEE 802).
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

// address is the source of a frame: the hardware address of the interface and its IP, 0.0.0.0 when there is none.
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

// payloadOf returns the payload of a frame addressed as a heartbeat. The signature proves more than checksums.
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

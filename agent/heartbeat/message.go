package heartbeat

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
)

// Version is the first version of what a heartbeat says. Others are not understood, and counted.
const Version = 1

const (
	// mostFrame bounds a frame without its Ethernet header, in bytes: it passes every tunnel that a provider may use.
	mostFrame = 1400
	// mostName is the longest name of a Node (RFC 1123, as Kubernetes has it), mostMembers how many members a bitmap tells of.
	mostName    = 253
	mostMembers = 255 * 8

	magic = "PNH"
)

// The fields of a payload before the name, in bytes.
const (
	atVersion  = 3
	atKey      = 4
	atBoot     = 12
	atSequence = 20
	atView     = 28
	atFlags    = 36
	atNameSize = 37
	atName     = 38
)

// Message is what a node says of itself.
type Message struct {
	// Node is the name of the Node.
	Node string
	// Boot tells apart the lives of an agent: a later one has a greater number. Sequence counts its frames.
	Boot, Sequence uint64
	// View is the number of the newest view that the node knows.
	View uint64
	// Flags are for the announcer to give a meaning.
	Flags uint8
	// Heard is a bitmap of the members of that view whom the node has heard of late, see Bitmap.
	Heard []byte
	// Addresses are the IPv4 addresses that it answers for; a message of many is sent in several frames, each of which says
	// all the rest, too.
	Addresses []netip.Addr
}

// Bitmap notes members in a bitmap: the bit of member i is bit i%8 of byte i/8.
func Bitmap(into []byte, members int, heard func(i int) bool) []byte {
	into = slices.Grow(into[:0], (members+7)/8)[:(members+7)/8]
	clear(into)
	for i := range min(members, mostMembers) {
		if heard(i) {
			into[i/8] |= 1 << (i % 8)
		}
	}
	return into
}

// Has tells whether a bitmap notes a member.
func Has(bitmap []byte, i int) bool {
	return i >= 0 && i/8 < len(bitmap) && bitmap[i/8]&(1<<(i%8)) != 0
}

// check tells what of a message cannot be said.
func (m *Message) check() error {
	switch {
	case m.Node == "" || len(m.Node) > mostName:
		return fmt.Errorf("the name %q has %d bytes: want 1 to %d", m.Node, len(m.Node), mostName)
	case len(m.Heard) > mostMembers/8:
		return fmt.Errorf("a view has more than %d members", mostMembers)
	default:
		return nil
	}
}

// room is how many addresses go into one frame beside the rest.
func (m *Message) room() int {
	rest := ipv4Length + udpLength + atName + len(m.Node) + 1 + len(m.Heard) + 2 + tagLength
	return (mostFrame - rest) / 4
}

// appendFrame appends a frame with some of the addresses, signed by the first key.
func (m *Message) appendFrame(b []byte, ring *Ring, from address, sequence uint64, addresses []netip.Addr) []byte {
	be, start := binary.BigEndian, len(b)
	signer := ring.keys[0]
	b = slices.Grow(b, headersLength+mostFrame)[:start+headersLength]
	b = append(b, magic...)
	b = append(b, Version)
	b = append(b, signer.id[:]...)
	b = be.AppendUint64(b, m.Boot)
	b = be.AppendUint64(b, sequence)
	b = be.AppendUint64(b, m.View)
	b = append(b, m.Flags, byte(len(m.Node)))
	b = append(b, m.Node...)
	b = append(b, byte(len(m.Heard)))
	b = append(b, m.Heard...)
	b = be.AppendUint16(b, uint16(len(addresses))) //nolint:gosec // bounded by room
	for _, a := range addresses {
		four := a.As4()
		b = append(b, four[:]...)
	}
	b = append(b, signer.tag(b[start+headersLength:])...)
	putHeaders(b[start:], from)
	return b
}

// Drop is the reason for which a received frame was not taken.
type Drop uint8

// The reasons.
const (
	// Taken: it was taken.
	Taken Drop = iota
	// Malformed: no heartbeat, or one that does not say what it should.
	Malformed
	// OtherVersion: a version of the format that is not understood.
	OtherVersion
	// OtherKey: signed with a key that is not known, as another cluster on the same network does.
	OtherKey
	// Forged: it names a key that is known, but was not signed with it.
	Forged
	// Replayed: it was heard before, or is older than what was heard.
	Replayed
	// SameName: another machine, or an earlier agent of this one, uses the name of this Node.
	SameName

	drops = int(SameName) + 1
)

// String is the label of the reason in metrics.
func (d Drop) String() string {
	names := [drops]string{"taken", "malformed", "other_version", "other_key", "forged", "replayed", "same_name"}
	if int(d) >= len(names) {
		return "unknown"
	}
	return names[d]
}

// parse reads a payload into m, whose room it uses again. Nothing of it is believed before the signature was verified; the
// name is interned, so that a node that is heard ten times a second costs nothing.
func parse(payload []byte, ring *Ring, names *interner, m *Message) Drop {
	be := binary.BigEndian
	switch {
	case len(payload) < atVersion+1 || string(payload[:len(magic)]) != magic:
		return Malformed
	case payload[atVersion] != Version:
		return OtherVersion
	case len(payload) < atName+tagLength:
		return Malformed
	}
	body, tag := payload[:len(payload)-tagLength], payload[len(payload)-tagLength:]
	signer := ring.find(keyID(body[atKey : atKey+keyIDLength]))
	if signer == nil {
		return OtherKey
	}
	if !equal(signer.tag(body), tag) {
		return Forged
	}
	m.Boot, m.Sequence, m.View, m.Flags = be.Uint64(body[atBoot:]), be.Uint64(body[atSequence:]), be.Uint64(body[atView:]), body[atFlags]
	r := reader{rest: body[atNameSize:]}
	m.Node = names.intern(r.sized(1))
	m.Heard = append(m.Heard[:0], r.sized(1)...)
	m.Addresses = m.Addresses[:0]
	for list := r.sized(4); len(list) > 0; list = list[4:] {
		m.Addresses = append(m.Addresses, netip.AddrFrom4([4]byte(list[:4])))
	}
	if r.short || len(r.rest) != 0 || m.Node == "" || len(m.Node) > mostName {
		return Malformed
	}
	return Taken
}

// reader takes fields off a payload.
type reader struct {
	rest  []byte
	short bool
}

// sized takes a list of elements of a width in bytes: one byte says how many there are where the width is 1, two bytes
// elsewhere.
func (r *reader) sized(width int) []byte {
	prefix := 1
	if width > 1 {
		prefix = 2
	}
	if len(r.rest) < prefix {
		r.short = true
		return nil
	}
	n := int(r.rest[0])
	if prefix == 2 {
		n = n<<8 | int(r.rest[1])
	}
	if n *= width; len(r.rest) < prefix+n {
		r.short = true
		return nil
	}
	list := r.rest[prefix : prefix+n]
	r.rest = r.rest[prefix+n:]
	return list
}

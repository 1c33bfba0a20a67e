package heartbeat

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/election"
)

// Version is the first version of what a heartbeat says. Others are not understood, and counted.
const Version = 1

const (
	// mostFrame bounds a frame without its Ethernet header, in bytes: it passes every tunnel that a provider may use. What is
	// longer is sent in several.
	mostFrame = 1400
	// mostName is the longest name of a Node (RFC 1123, as Kubernetes has it), mostAcks how many others a node judges at
	// most, mostUnfit how long the bitmap is at most, in bytes.
	mostName  = 253
	mostAcks  = 1023
	mostUnfit = 1024
	// mostParts bounds the frames of one heartbeat.
	mostParts = 16

	magic = "PNH"
)

// The fields of a payload before the name, in bytes.
const (
	atVersion  = 3
	atKey      = 4
	atBoot     = 12
	atSequence = 20
	atPart     = 28
	atParts    = 29
	atInterval = 30
	atNameSize = 32
	atName     = 33
)

// check tells what of a heartbeat cannot be said.
func check(h *election.Heartbeat) error {
	switch {
	case h.Node == "" || len(h.Node) > mostName:
		return fmt.Errorf("the name %q has %d bytes: want 1 to %d", h.Node, len(h.Node), mostName)
	case len(h.Acks) > mostAcks:
		return fmt.Errorf("%d other nodes: want at most %d", len(h.Acks), mostAcks)
	case len(h.Unfit) > mostUnfit:
		return fmt.Errorf("%d addresses that it cannot serve: want at most %d", 8*len(h.Unfit), 8*mostUnfit)
	case len(h.Wants) > election.MostListed, len(h.Released) > election.MostListed:
		return fmt.Errorf("lists of %d and %d addresses: want at most %d", len(h.Wants), len(h.Released), election.MostListed)
	default:
		return nil
	}
}

// appendBody appends what a heartbeat says beside who says it.
func appendBody(b []byte, h *election.Heartbeat) []byte {
	be := binary.BigEndian
	b = be.AppendUint64(b, h.Number)
	b = be.AppendUint64(b, h.Seen)
	b = be.AppendUint16(b, uint16(h.Flags))
	b = be.AppendUint16(b, uint16(len(h.Acks))) //nolint:gosec // bounded by check
	for _, a := range h.Acks {
		b = be.AppendUint32(b, uint32(a.Node))
		b = be.AppendUint32(b, a.Sequence)
	}
	for _, list := range [][]netip.Addr{h.Wants, h.Released} {
		b = be.AppendUint16(b, uint16(len(list))) //nolint:gosec // bounded by check
		for _, a := range list {
			four := a.As4()
			b = append(b, four[:]...)
		}
	}
	b = be.AppendUint16(b, uint16(len(h.Unfit))) //nolint:gosec // bounded by check
	return append(b, h.Unfit...)
}

// parseBody reads what appendBody wrote.
func parseBody(body []byte, h *election.Heartbeat) bool {
	r := reader{rest: body}
	h.Number, h.Seen = r.uint64(), r.uint64()
	h.Flags = election.Flags(r.uint16())
	for list := r.list(8, mostAcks); len(list) > 0; list = list[8:] {
		h.Acks = append(h.Acks, election.Ack{Node: election.ID(binary.BigEndian.Uint32(list)), Sequence: binary.BigEndian.Uint32(list[4:])})
	}
	h.Wants, h.Released = r.addresses(), r.addresses()
	if unfit := r.list(1, mostUnfit); len(unfit) > 0 {
		h.Unfit = slices.Clone(unfit)
	}
	sorted := slices.IsSortedFunc(h.Acks, func(a, b election.Ack) int { return int(int64(a.Node) - int64(b.Node)) })
	return !r.short && len(r.rest) == 0 && sorted
}

// reader takes fields off a body. When one is missing it is short, and all that follow are zero.
type reader struct {
	rest  []byte
	short bool
}

func (r *reader) take(n int) []byte {
	if len(r.rest) < n {
		r.short, r.rest = true, nil
		return make([]byte, n)
	}
	field := r.rest[:n]
	r.rest = r.rest[n:]
	return field
}

func (r *reader) uint16() uint16 { return binary.BigEndian.Uint16(r.take(2)) }
func (r *reader) uint64() uint64 { return binary.BigEndian.Uint64(r.take(8)) }

// list takes a list of elements of a width in bytes.
func (r *reader) list(width, most int) []byte {
	n := int(r.uint16())
	if n > most || len(r.rest) < n*width {
		r.short, r.rest = true, nil
		return nil
	}
	return r.take(n * width)
}

func (r *reader) addresses() []netip.Addr {
	list := r.list(4, election.MostListed)
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
	// interval is the time between two heartbeats of the node, in milliseconds.
	interval uint16
	body     []byte
}

// appendFrame appends the frame of a part, signed by the first key.
func (p part) appendFrame(b []byte, ring *Ring, from address) []byte {
	be, start := binary.BigEndian, len(b)
	signer := ring.keys[0]
	b = slices.Grow(b, headersLength+mostFrame)[:start+headersLength]
	b = append(b, magic...)
	b = append(b, Version)
	b = append(b, signer.id[:]...)
	b = be.AppendUint64(b, p.boot)
	b = be.AppendUint64(b, p.sequence)
	b = append(b, byte(p.index), byte(p.parts)) //nolint:gosec // bounded by check
	b = be.AppendUint16(b, p.interval)
	b = append(b, byte(len(p.node))) //nolint:gosec // bounded by check
	b = append(b, p.node...)
	b = append(b, p.body...)
	b = append(b, signer.tag(b[start+headersLength:])...)
	putHeaders(b[start:], from)
	return b
}

// room is how much of a body goes into one frame.
func room(node string) int {
	return mostFrame - ipv4Length - udpLength - atName - len(node) - tagLength
}

// parsePart reads a payload. Nothing of it is believed before the signature was verified.
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
	said, tag := payload[:len(payload)-tagLength], payload[len(payload)-tagLength:]
	signer := ring.find(keyID(said[atKey : atKey+keyIDLength]))
	if signer == nil {
		return part{}, OtherKey
	}
	if !equal(signer.tag(said), tag) {
		return part{}, Forged
	}
	size := int(said[atNameSize])
	p := part{
		boot: be.Uint64(said[atBoot:]), sequence: be.Uint64(said[atSequence:]),
		index: int(said[atPart]), parts: int(said[atParts]), interval: be.Uint16(said[atInterval:]),
	}
	if size == 0 || size > mostName || len(said) < atName+size || p.parts == 0 || p.parts > mostParts || p.index >= p.parts {
		return part{}, Malformed
	}
	p.node, p.body = names.intern(said[atName:atName+size]), said[atName+size:]
	return p, Taken
}

// Package responder answers ARP requests for addresses of Services from user space: the addresses are on no
// interface, so that a process that was killed stops answering and never gives a stale answer.
package responder

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"
)

// frameLength is an Ethernet header (IEEE 802.3) and an ARP packet for IPv4 (RFC 826); Ethernet pads it to 60 bytes.
const frameLength = 14 + 28

// The fields of a frame: offsets in bytes (RFC 826; for gratuitous packets RFC 5227).
const (
	atDestination         = 0
	atSource              = 6
	atEtherType           = 12
	atHardware            = 14
	atProtocol            = 16
	atLengths             = 18
	atOperation           = 20
	atSenderHardware      = 22
	atSenderProtocol      = 28
	atTargetHardware      = 32
	atTargetProtocol      = 38
	etherTypeARP          = 0x0806
	etherTypeIPv4         = 0x0800
	hardwareEthernet      = 1
	lengthsOfIPv4         = 6<<8 | 4
	operationRequest      = 1
	operationReply        = 2
	groupBit         byte = 1 // of the first byte of a hardware address
)

// MAC is the hardware address of an Ethernet interface.
type MAC [6]byte

var broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// frame is an ARP frame to send.
type frame [frameLength]byte

// Result is what happened to a received frame.
type Result uint8

// The results. All but Answered leave the frame without an answer.
const (
	// Answered: the request asked for an address that this node holds.
	Answered Result = iota
	// Malformed: no ARP packet for IPv4 over Ethernet, or one with an invalid sender.
	Malformed
	// NotRequest: a reply, or an operation that is not in RFC 826.
	NotRequest
	// NotForUs: the frame was sent to the hardware address of another machine.
	NotForUs
	// Own: this machine sent it.
	Own
	// Claim: it announces that its sender has the address (RFC 5227, section 2.3); it asks nothing.
	Claim
	// NotHeld: this node does not hold the address.
	NotHeld
	// Expired: this node held the address, but does not know whether it still does.
	Expired

	results = int(Expired) + 1
)

// String is the label of the result in metrics.
func (r Result) String() string {
	return [results]string{"answered", "malformed", "not_request", "not_for_us", "own", "claim", "not_held",
		"expired"}[r]
}

// answer decides on a received frame and writes the reply to out. It allocates nothing and keeps nothing of in.
func answer(in []byte, own MAC, held *Table, now time.Duration, out *frame) Result {
	if result := classify(in, own); result != Answered {
		return result
	}
	target := netip.AddrFrom4([4]byte(in[atTargetProtocol : atTargetProtocol+4]))
	requesterAddress := [4]byte(in[atSenderProtocol : atSenderProtocol+4])
	switch {
	case !held.has(target):
		return NotHeld
	case requesterAddress == target.As4():
		return Claim
	case !held.valid(now):
		return Expired
	}
	// Like the kernel, answer the sender of the packet: with a virtual router (RFC 5798) the frame's differs.
	requester := MAC(in[atSenderHardware : atSenderHardware+6])
	write(out, operationReply, requester, own, target.As4(), requester, requesterAddress)
	return Answered
}

// classify reports whether a frame is a request that this machine may answer; a probe (RFC 5227, section 2.1.1) is one.
func classify(in []byte, own MAC) Result {
	if len(in) < frameLength {
		return Malformed
	}
	be := binary.BigEndian
	destination := MAC(in[atDestination : atDestination+6])
	sender := MAC(in[atSenderHardware : atSenderHardware+6])
	switch {
	case be.Uint16(in[atEtherType:]) != etherTypeARP, be.Uint16(in[atHardware:]) != hardwareEthernet,
		be.Uint16(in[atProtocol:]) != etherTypeIPv4, be.Uint16(in[atLengths:]) != lengthsOfIPv4:
		return Malformed
	case be.Uint16(in[atOperation:]) != operationRequest:
		return NotRequest
	case destination != broadcast && destination != own:
		return NotForUs
	case sender == own || MAC(in[atSource:atSource+6]) == own:
		return Own
	case sender[0]&groupBit != 0 || sender == MAC{}:
		return Malformed
	default:
		return Answered
	}
}

// announceRequest writes an announcement (RFC 5227, section 2.3): a request that each neighbour with an entry accepts.
func announceRequest(out *frame, own MAC, address netip.Addr) {
	write(out, operationRequest, broadcast, own, address.As4(), MAC{}, address.As4())
}

// announceReply writes an announcement as a reply. Its target hardware address is the sender's: Linux handles one
// with any other as a usual reply, which it ignores within a second (locktime) of the last update.
func announceReply(out *frame, own MAC, address netip.Addr) {
	write(out, operationReply, broadcast, own, address.As4(), own, address.As4())
}

// write writes a frame by which own claims an address.
func write(out *frame, operation uint16, destination, own MAC, address [4]byte, target MAC, targetAddress [4]byte) {
	be := binary.BigEndian
	copy(out[atDestination:], destination[:])
	copy(out[atSource:], own[:])
	be.PutUint16(out[atEtherType:], etherTypeARP)
	be.PutUint16(out[atHardware:], hardwareEthernet)
	be.PutUint16(out[atProtocol:], etherTypeIPv4)
	be.PutUint16(out[atLengths:], lengthsOfIPv4)
	be.PutUint16(out[atOperation:], operation)
	copy(out[atSenderHardware:], own[:])
	copy(out[atSenderProtocol:], address[:])
	copy(out[atTargetHardware:], target[:])
	copy(out[atTargetProtocol:], targetAddress[:])
}

// Table is the addresses that this node may answer for, and until when. It never changes. The zero value is empty.
type Table struct {
	addresses []netip.Addr
	until     time.Duration
}

// NewTable returns a table that is valid until a time of Now: a process that was stopped, on a machine that
// slept or whose wall clock was set, does not use it for longer. Addresses other than IPv4 are left out.
func NewTable(until time.Duration, addresses ...netip.Addr) *Table {
	t := &Table{until: until}
	for _, a := range addresses {
		if a = a.Unmap(); a.Is4() {
			t.addresses = append(t.addresses, a)
		}
	}
	slices.SortFunc(t.addresses, netip.Addr.Compare)
	t.addresses = slices.Compact(t.addresses)
	return t
}

// Addresses returns the addresses, sorted. They must not be changed.
func (t *Table) Addresses() []netip.Addr {
	if t == nil {
		return nil
	}
	return t.addresses
}

// Until is when the table expires.
func (t *Table) Until() time.Duration {
	if t == nil {
		return 0
	}
	return t.until
}

// Prolonged is the table with another expiry. Its cost does not depend on the number of addresses.
func (t *Table) Prolonged(until time.Duration) *Table {
	return &Table{addresses: t.Addresses(), until: until}
}

// has reports whether an address is in the table. It allocates nothing.
func (t *Table) has(a netip.Addr) bool {
	if t == nil {
		return false
	}
	_, found := slices.BinarySearchFunc(t.addresses, a, netip.Addr.Compare)
	return found
}

// valid reports whether the table has not expired.
func (t *Table) valid(now time.Duration) bool { return t != nil && now < t.until }

// Holds reports whether this node may answer for an address at a time of Now.
func (t *Table) Holds(a netip.Addr, now time.Duration) bool { return t.has(a) && t.valid(now) }

// repeats are the pauses after which an announcement is repeated, counted from the first. A switch port or a bond that
// has just come up loses frames, and Linux ignores a second change of an entry within a second (locktime).
var repeats = [...]time.Duration{0, 1100 * time.Millisecond, 2200 * time.Millisecond, 4 * time.Second}

// refreshMin and refreshMax bound the time between later announcements: switches forget a port after five minutes.
const (
	refreshMin = 30 * time.Second
	refreshMax = 60 * time.Second
)

// schedule holds when each address must be announced next.
type schedule struct {
	entries map[netip.Addr]*due
	random  *rand.Rand
}

type due struct {
	begun time.Time
	done  int // how many repeats were sent
	next  time.Time
}

func newSchedule(seed uint64) *schedule {
	return &schedule{entries: map[netip.Addr]*due{}, random: rand.New(rand.NewPCG(seed, seed>>32))}
}

// begin schedules the announcements of an address from now on.
func (s *schedule) begin(a netip.Addr, now time.Time) { s.entries[a] = &due{begun: now, next: now} }

// beginAll schedules the announcements of every address again.
func (s *schedule) beginAll(now time.Time) {
	for a := range s.entries {
		s.begin(a, now)
	}
}

// follow adds the new addresses of a table, and drops those that are not in it.
func (s *schedule) follow(t *Table, now time.Time) {
	maps.DeleteFunc(s.entries, func(a netip.Addr, _ *due) bool { return !t.has(a) })
	for _, a := range t.Addresses() {
		if s.entries[a] == nil {
			s.begin(a, now)
		}
	}
}

// take returns the addresses that are due, sorted, and when the next ones are.
func (s *schedule) take(now time.Time) (all []netip.Addr, next time.Time) {
	next = now.Add(refreshMax)
	for a, d := range s.entries {
		if !d.next.After(now) {
			all = append(all, a)
			s.advance(d, now)
		}
		if d.next.Before(next) {
			next = d.next
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all, next
}

func (s *schedule) advance(d *due, now time.Time) {
	d.done++
	if d.done < len(repeats) {
		d.next = d.begun.Add(repeats[d.done])
	} else {
		d.next = now.Add(refreshMin + time.Duration(s.random.Int64N(int64(refreshMax-refreshMin))))
	}
	if d.next.Before(now) {
		d.next = now
	}
}

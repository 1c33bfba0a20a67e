// Package responder answers ARP requests for addresses of Services from user space: the addresses are on no
// interface, so that a process that was killed stops answering and never gives a stale answer.
package responder

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"
)

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
	random := rand.New(rand.NewPCG(seed, seed>>32))
	return &schedule{entries: map[netip.Addr]*due{}, random: random}
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
	for a := range s.entries {
		if !t.has(a) {
			delete(s.entries, a)
		}
	}
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

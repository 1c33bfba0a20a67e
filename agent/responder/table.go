package responder

import (
	"net/netip"
	"slices"
	"time"
)

// Table is the addresses that this node may answer for, and for how long. It never changes: what is new comes as a new
// table. The zero value holds nothing.
type Table struct {
	addresses []netip.Addr
	until     time.Time
	wallUntil int64 // nanoseconds of the epoch
}

// NewTable returns a table that is good from now for a time. Addresses other than IPv4 are left out.
//
// The time is measured twice for each packet. The monotonic clock knows nothing of steps of the wall clock; it may stand
// still, though, while a virtual machine is paused, which the wall clock shows afterwards. A step of the wall clock forward
// looks alike and silences the node until the next table.
func NewTable(now time.Time, good time.Duration, addresses ...netip.Addr) *Table {
	t := &Table{until: now.Add(good), wallUntil: now.Add(good).UnixNano()}
	for _, a := range addresses {
		if a = a.Unmap(); a.Is4() {
			t.addresses = append(t.addresses, a)
		}
	}
	slices.SortFunc(t.addresses, netip.Addr.Compare)
	t.addresses = slices.Compact(t.addresses)
	return t
}

// Addresses are those of the table, sorted. They must not be changed.
func (t *Table) Addresses() []netip.Addr {
	if t == nil {
		return nil
	}
	return t.addresses
}

// has tells whether an address is in the table. It allocates nothing; a search of five hundred takes nine comparisons.
func (t *Table) has(a netip.Addr) bool {
	if t == nil {
		return false
	}
	_, found := slices.BinarySearchFunc(t.addresses, a, netip.Addr.Compare)
	return found
}

// valid tells whether the table is still good.
func (t *Table) valid(now time.Time) bool {
	return t != nil && now.Before(t.until) && now.UnixNano() < t.wallUntil
}

// Holds tells whether this node may speak for an address now.
func (t *Table) Holds(a netip.Addr, now time.Time) bool { return t.has(a) && t.valid(now) }

package responder

import (
	"net/netip"
	"slices"
	"time"
)

// Table is the addresses that this node may answer for, and until when. It never changes: a change makes a new table.
// The zero value holds nothing.
type Table struct {
	addresses []netip.Addr
	until     time.Duration
}

// NewTable returns a table that is valid until a time of boottime.Now: a process that was stopped, on a machine that
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

// has reports whether an address is in the table. It allocates nothing; a search of five hundred takes nine
// comparisons.
func (t *Table) has(a netip.Addr) bool {
	if t == nil {
		return false
	}
	_, found := slices.BinarySearchFunc(t.addresses, a, netip.Addr.Compare)
	return found
}

// valid reports whether the table has not expired.
func (t *Table) valid(now time.Duration) bool { return t != nil && now < t.until }

// Holds reports whether this node may answer for an address at a time of boottime.Now.
func (t *Table) Holds(a netip.Addr, now time.Duration) bool { return t.has(a) && t.valid(now) }

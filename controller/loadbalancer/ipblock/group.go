package ipblock

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Group is who may have an address together.
type Group struct {
	// Name is what they have in common: a key, with their namespace unless an IPBlock lets those of several share.
	Name string
	// Others are those who have the address beside its holder in Ledger.Held, in the order in which they joined.
	Others []Holder
}

// MaxGroup is how many Services can have one address. The definition of the kind has the same bound.
const MaxGroup = 24

// Holders are all who have an address, the first one first.
func (l Ledger) Holders(address netip.Addr) []Holder {
	first, held := l.Held[address]
	if !held {
		return nil
	}
	return append([]Holder{first}, l.Groups[address].Others...)
}

// SharedAs is the address that the group of the name has.
func (l Ledger) SharedAs(group string) (address netip.Addr, found bool) {
	for _, address := range slices.SortedFunc(maps.Keys(l.Groups), netip.Addr.Compare) {
		if group != "" && l.Groups[address].Name == group {
			return address, true
		}
	}
	return netip.Addr{}, false
}

// sharedFor is the address that others have whom the holder joins: those with whom it has one, or else its group.
func (l Ledger) sharedFor(ask Ask) (address netip.Addr, found bool) {
	if ask.Proven && l.Groups[ask.Published].Name != "" {
		return ask.Published, true
	}
	return l.SharedAs(ask.Group)
}

// HolderCount is how many have an address.
func (l Ledger) HolderCount() int {
	count := len(l.Held)
	for _, group := range l.Groups {
		count += len(group.Others)
	}
	return count
}

// NameGroup names the group of an address that one has; empty for none. That of an address which others have stays.
func (l Ledger) NameGroup(address netip.Addr, name string) Ledger {
	switch {
	case len(l.Groups[address].Others) > 0:
		return l
	case name != "":
		return l.WithGroup(address, Group{Name: name})
	default:
		named := l.clone()
		delete(named.Groups, address)
		return named
	}
}

// WithGroup says who may have an address together.
func (l Ledger) WithGroup(address netip.Addr, group Group) Ledger {
	with := l.clone()
	if with.Groups == nil {
		with.Groups = map[netip.Addr]Group{}
	}
	with.Groups[address] = group
	return with
}

// take takes an address from one who has it: it is free once no one has it.
func (l Ledger) take(address netip.Addr, h Holder, now time.Time) {
	group := l.Groups[address]
	switch others := slices.DeleteFunc(group.Others, h.SameName); {
	case !l.Held[address].SameName(h):
		l.Groups[address] = Group{Name: group.Name, Others: others}
	case len(others) > 0:
		l.Held[address] = others[0]
		l.Groups[address] = Group{Name: group.Name, Others: others[1:]}
	default:
		delete(l.Held, address)
		delete(l.Groups, address)
		l.Quarantined[address] = Released{Holder: h, Since: now}
	}
}

package plan

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
)

// Quarantine is how long a released address is quarantined before it is given again without a report
// that it is silent.
const Quarantine = 10 * time.Minute

// Holder holds an address of a block: a Service, or a server for the nodes' own addresses (Namespace
// empty, Name the server's ID).
type Holder struct {
	// Namespace of the Service; empty for a server.
	Namespace string
	// Name of the Service, or ID of the server.
	Name string
	// UID of the Service; empty for a server. A Service of the same name and another UID takes over what
	// its predecessor held, but what is freed for the predecessor stays with the successor.
	UID string
}

// String names the holder.
func (h Holder) String() string {
	if h.Namespace == "" {
		return h.Name
	}
	return h.Namespace + "/" + h.Name
}

// sameName reports whether h and other have the same name, whatever their UIDs.
func (h Holder) sameName(other Holder) bool {
	return h.Namespace == other.Namespace && h.Name == other.Name
}

// Released is an address that was released and is not given again yet.
type Released struct {
	// Holder is who held it last; the zero Holder where the ledger was lost, so that this is not known.
	Holder Holder
	// Since is when it was released, or the ledger was made again.
	Since time.Time
}

// Ledger says who holds which address of one block; package allocation stores it. It is a value: methods return
// new ledgers and change nothing. An address has one holder, a holder one address, and none is the network's, the
// gateway's or the broadcast address; Check reports violations.
type Ledger struct {
	// BlockID is the API's ID of the block.
	BlockID string
	// CIDR is the block.
	CIDR netip.Prefix
	// Nodes is true when the addresses are for nodes and not for Services.
	Nodes bool
	// Brought is true when the block was in the account before, and is never deleted.
	Brought bool
	// Closed is true when the block is being released: no address of it is given any more.
	Closed bool
	// Deleted is true once a person has deleted the object of a block that Services share: no other Service gets an
	// address of it, and the block is released, or given up if it was brought, when the last one has left.
	Deleted bool
	// AssignedHere is true when this controller assigned a block that was brought, so that it is the one to
	// unassign it again. It says nothing about blocks that were bought.
	AssignedHere bool
	// Held are the addresses that are given.
	Held map[netip.Addr]Holder
	// Quarantined are the addresses in quarantine.
	Quarantined map[netip.Addr]Released
	// Object is the name of the object that stores the ledger, and Version that of the state which was read; empty when
	// nothing is stored yet.
	Object, Version string
}

// Unreadable is a ledger that is stored and cannot be read. Who has which address of its block is not known: none is
// given, and the block is not released, until a person has repaired it.
type Unreadable struct {
	// BlockID is the API's ID of the block.
	BlockID string
	// Problem names the object, what is wrong with it and the remedy.
	Problem string
}

// NewLedger is the ledger of a block of which nothing is given yet.
func NewLedger(blockID string, cidr netip.Prefix) Ledger {
	return Ledger{BlockID: blockID, CIDR: cidr.Masked()}
}

// Ask is the wish for one address of a block.
type Ask struct {
	// Wanted is the address to be given; the zero Addr for any.
	Wanted netip.Addr
	// Published is the address that the holder has already; the zero Addr when it has none.
	Published netip.Addr
	// Silent reports whether an address is reported as silent; nil when there are no reports.
	Silent func(netip.Addr) bool
	// InUse reports whether an address is in use in ways that no ledger knows, such as by a server that a
	// person joined to the network; nil when none is.
	InUse func(netip.Addr) bool
	// Now is the time of the wish.
	Now time.Time
}

func (a Ask) silent(address netip.Addr) bool { return a.Silent != nil && a.Silent(address) }

func (a Ask) inUse(address netip.Addr) bool { return a.InUse != nil && a.InUse(address) }

// Grant is an address that was given.
type Grant struct {
	// Address that was given.
	Address netip.Addr
	// Reused is true when it was quarantined for all of the time without a report that it is silent: that
	// is worth an event.
	Reused bool
}

// Why an address is not given. The errors that Take returns wrap one of them.
var (
	// ErrClosed: the block is being released.
	ErrClosed = errors.New("the IP block is being released")
	// ErrFull: every address has a holder.
	ErrFull = errors.New("all addresses of the IP block are given")
	// ErrQuarantined: only addresses in quarantine are left, or the wanted one is. QuarantineEnds returns until when.
	ErrQuarantined = errors.New("the address was released a moment ago and is in quarantine")
	// ErrTaken: another holder has the wanted address.
	ErrTaken = errors.New("the address is given to another")
	// ErrNoHost: no host may have the wanted address.
	ErrNoHost = errors.New("no host may have the address")
)

// AddressOf returns the address that has the holder's name, whatever its UID.
func (l Ledger) AddressOf(h Holder) (netip.Addr, bool) {
	for _, address := range slices.SortedFunc(maps.Keys(l.Held), netip.Addr.Compare) {
		if l.Held[address].sameName(h) {
			return address, true
		}
	}
	return netip.Addr{}, false
}

// Empty reports whether no address is given. Addresses may still be quarantined.
func (l Ledger) Empty() bool { return len(l.Held) == 0 }

// Take gives the holder an address: the one that has its name already, else the wanted one, else the lowest one that
// is free, addresses that were quarantined before last. The holder keeps what it has even when it wants another; Free
// that first. On an error the ledger is returned unchanged.
func (l Ledger) Take(h Holder, ask Ask) (Ledger, Grant, error) {
	if held, found := l.AddressOf(h); found {
		return l.give(held, h), Grant{Address: held}, nil
	}
	if l.Closed || l.Deleted {
		return l, Grant{}, fmt.Errorf("IP block %s: %w", l.BlockID, ErrClosed)
	}
	if ask.Wanted.IsValid() {
		return l.takeWanted(h, ask)
	}
	var reused netip.Addr
	for address := range l.hosts() {
		if err := l.refusal(address, h, ask); err != nil {
			continue
		}
		if _, quarantined := l.Quarantined[address]; !quarantined {
			return l.give(address, h), Grant{Address: address}, nil
		}
		if !reused.IsValid() || l.Quarantined[address].Since.Before(l.Quarantined[reused].Since) {
			reused = address
		}
	}
	if reused.IsValid() {
		return l.give(reused, h), l.grant(reused, h, ask), nil
	}
	if l.onlyQuarantined(ask) {
		return l, Grant{}, fmt.Errorf("IP block %s: %w", l.BlockID, ErrQuarantined)
	}
	return l, Grant{}, fmt.Errorf("IP block %s: %w", l.BlockID, ErrFull)
}

func (l Ledger) takeWanted(h Holder, ask Ask) (Ledger, Grant, error) {
	if err := l.refusal(ask.Wanted, h, ask); err != nil {
		return l, Grant{}, fmt.Errorf("IP block %s, address %s: %w", l.BlockID, ask.Wanted, err)
	}
	return l.give(ask.Wanted, h), l.grant(ask.Wanted, h, ask), nil
}

// refusal says why the holder may not have the address now; nil when it may.
func (l Ledger) refusal(address netip.Addr, h Holder, ask Ask) error {
	_, held := l.Held[address]
	switch {
	case !network.IsHost(l.CIDR, address):
		return ErrNoHost
	case held, ask.inUse(address):
		return ErrTaken
	case l.inQuarantine(address, h, ask):
		return ErrQuarantined
	default:
		return nil
	}
}

// inQuarantine reports whether the address is in quarantine. Who held it last may have it back at once: what may
// still answer for it answers for the same name. Where that is not known, it is who has the address published.
func (l Ledger) inQuarantine(address netip.Addr, h Holder, ask Ask) bool {
	released, found := l.Quarantined[address]
	own := released.Holder.sameName(h) || released.Holder == Holder{} && address == ask.Published
	return found && !own && !ask.silent(address) && ask.Now.Before(released.Since.Add(Quarantine))
}

func (l Ledger) grant(address netip.Addr, h Holder, ask Ask) Grant {
	released, found := l.Quarantined[address]
	known := found && released.Holder != Holder{}
	return Grant{Address: address, Reused: known && !released.Holder.sameName(h) && !ask.silent(address)}
}

// onlyQuarantined reports whether waiting for the quarantine is enough to make an address free.
func (l Ledger) onlyQuarantined(ask Ask) bool {
	for address := range l.Quarantined {
		if !ask.inUse(address) {
			return true
		}
	}
	return false
}

// QuarantineEnds is when the first of the quarantined addresses may be given again without a report; the zero Time
// when none is quarantined.
func (l Ledger) QuarantineEnds() time.Time {
	var first time.Time
	for _, released := range l.Quarantined {
		if end := released.Since.Add(Quarantine); first.IsZero() || end.Before(first) {
			first = end
		}
	}
	return first
}

// Free takes every address of the holder back; they are quarantined from now on. A holder with a UID frees only what
// is given to that UID, so that the end of an old Service takes nothing from a new one of its name.
func (l Ledger) Free(h Holder, now time.Time) Ledger {
	freed := l.clone()
	for address, holder := range l.Held {
		if !holder.sameName(h) || (h.UID != "" && holder.UID != h.UID) {
			continue
		}
		delete(freed.Held, address)
		freed.Quarantined[address] = Released{Holder: holder, Since: now}
	}
	return freed
}

// Bound returns the ledger with no address that was released later than now, as the clock of another process may have
// said, so that none is quarantined longer than one which is released now; changed is false when there was none.
func (l Ledger) Bound(now time.Time) (bounded Ledger, changed bool) {
	bounded = l
	for address, released := range l.Quarantined {
		if !released.Since.After(now) {
			continue
		}
		if !changed {
			bounded = l.clone()
			changed = true
		}
		bounded.Quarantined[address] = Released{Holder: released.Holder, Since: now}
	}
	return bounded, changed
}

// BoundQuarantine is Bound for all ledgers. The changed ones are returned as well, to be stored: until then each look
// bounds them by its own time.
func BoundQuarantine(all []Ledger, now time.Time) (bounded, changed []Ledger) {
	bounded = make([]Ledger, len(all))
	for i, l := range all {
		var differs bool
		if bounded[i], differs = l.Bound(now); differs {
			changed = append(changed, bounded[i])
		}
	}
	return bounded, changed
}

// Expire ends the quarantine of addresses that are reported silent or were quarantined long enough.
func (l Ledger) Expire(silent func(netip.Addr) bool, now time.Time) Ledger {
	expired := l.clone()
	for address, released := range l.Quarantined {
		if (silent != nil && silent(address)) || !now.Before(released.Since.Add(Quarantine)) {
			delete(expired.Quarantined, address)
		}
	}
	return expired
}

// Spent reports whether the ledger of a block that stays in the account may be forgotten: no address is
// given and none is quarantined any more.
func (l Ledger) Spent(silent func(netip.Addr) bool, now time.Time) bool {
	return l.Empty() && len(l.Expire(silent, now).Quarantined) == 0
}

// Close marks the block as being released.
func (l Ledger) Close() Ledger {
	l.Closed = true
	return l
}

// Reopen takes the mark of Close off.
func (l Ledger) Reopen() Ledger {
	l.Closed = false
	return l
}

// Count returns how many addresses are assigned, in quarantine and free, for metrics.
func (l Ledger) Count() (held, quarantined, free int) {
	for range l.hosts() {
		free++
	}
	return len(l.Held), len(l.Quarantined), free - len(l.Held) - len(l.Quarantined)
}

// Check says which rule the ledger breaks; nil when it breaks none.
func (l Ledger) Check() error {
	if l.BlockID == "" || !l.CIDR.IsValid() || !l.CIDR.Addr().Is4() || l.CIDR != l.CIDR.Masked() {
		return fmt.Errorf("IP block %q (%s) is not a valid IPv4 block", l.BlockID, l.CIDR)
	}
	holders := map[Holder]netip.Addr{}
	for address, holder := range l.Held {
		name := Holder{Namespace: holder.Namespace, Name: holder.Name}
		_, quarantined := l.Quarantined[address]
		other, twice := holders[name]
		switch {
		case !network.IsHost(l.CIDR, address):
			return fmt.Errorf("%s holds %s, which no host may have in %s", holder, address, l.CIDR)
		case holder.Name == "":
			return fmt.Errorf("address %s has a holder without a name", address)
		case quarantined:
			return fmt.Errorf("address %s is held by %s and quarantined as well", address, holder)
		case twice:
			return fmt.Errorf("%s holds %s and %s", holder, other, address)
		}
		holders[name] = address
	}
	for address := range l.Quarantined {
		if !network.IsHost(l.CIDR, address) {
			return fmt.Errorf("address %s is quarantined, which no host may have in %s", address, l.CIDR)
		}
	}
	return nil
}

func (l Ledger) give(address netip.Addr, h Holder) Ledger {
	given := l.clone()
	given.Held[address] = h
	delete(given.Quarantined, address)
	return given
}

func (l Ledger) clone() Ledger {
	l.Held = maps.Collect(maps.All(l.Held)) // not nil, unlike maps.Clone of nil
	l.Quarantined = maps.Collect(maps.All(l.Quarantined))
	return l
}

// hosts yields the addresses that hosts may hold, lowest first.
func (l Ledger) hosts() func(yield func(netip.Addr) bool) {
	return func(yield func(netip.Addr) bool) {
		if !l.CIDR.IsValid() || !l.CIDR.Addr().Is4() {
			return
		}
		for a := l.CIDR.Masked().Addr(); a.IsValid() && l.CIDR.Contains(a); a = a.Next() {
			if network.IsHost(l.CIDR, a) && !yield(a) {
				return
			}
		}
	}
}

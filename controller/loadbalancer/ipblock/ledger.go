package ipblock

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

// SameName reports whether h and other have the same name, whatever their UIDs.
func (h Holder) SameName(other Holder) bool {
	return h.Namespace == other.Namespace && h.Name == other.Name
}

// Ledger says who holds which address of one block; package allocation stores it. It is a value: methods return
// new ledgers and change nothing. An address has one holder, or those of one group; a holder has one address, and none
// is the network's, the gateway's or the broadcast address; Check reports violations.
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
	// Groups are those of them that several Services may have.
	Groups map[netip.Addr]Group
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
	// Group is the name of the group with which the holder has its address; empty when it has one to itself.
	Group string
	// Proven is true where it is certain that the holder has Published: it stays with those who have it, too.
	Proven bool
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
		if slices.ContainsFunc(l.Holders(address), h.SameName) {
			return address, true
		}
	}
	return netip.Addr{}, false
}

// Empty reports whether no address is given. Addresses may still be quarantined.
func (l Ledger) Empty() bool { return len(l.Held) == 0 }

// Take gives the holder an address: the one that has its name already, else that of its group, else the wanted one,
// else the lowest one that is free, addresses that were quarantined before last. The holder keeps what it has even when
// it wants another; Free that first. On an error the ledger is returned unchanged.
func (l Ledger) Take(h Holder, ask Ask) (Ledger, Grant, error) {
	if held, found := l.AddressOf(h); found {
		return l.Give(held, h), Grant{Address: held}, nil
	}
	if l.Closed || l.Deleted {
		return l, Grant{}, fmt.Errorf("IP block %s: %w", l.BlockID, ErrClosed)
	}
	if shared, found := l.sharedFor(ask); found && (shared == ask.Wanted || !ask.Wanted.IsValid()) {
		return l.Give(shared, h), Grant{Address: shared}, nil
	}
	if ask.Wanted.IsValid() {
		return l.takeWanted(h, ask)
	}
	return l.takeAny(h, ask)
}

func (l Ledger) takeAny(h Holder, ask Ask) (Ledger, Grant, error) {
	var reused netip.Addr
	for address := range l.hosts() {
		if err := l.refusal(address, h, ask); err != nil {
			continue
		}
		if _, quarantined := l.Quarantined[address]; !quarantined {
			return l.Give(address, h).NameGroup(address, ask.Group), Grant{Address: address}, nil
		}
		if !reused.IsValid() || l.Quarantined[address].Since.Before(l.Quarantined[reused].Since) {
			reused = address
		}
	}
	if reused.IsValid() {
		return l.Give(reused, h).NameGroup(reused, ask.Group), l.grant(reused, h, ask), nil
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
	return l.Give(ask.Wanted, h).NameGroup(ask.Wanted, ask.Group), l.grant(ask.Wanted, h, ask), nil
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

func (l Ledger) grant(address netip.Addr, h Holder, ask Ask) Grant {
	released, found := l.Quarantined[address]
	known := found && released.Holder != Holder{}
	return Grant{Address: address, Reused: known && !released.Holder.SameName(h) && !ask.silent(address)}
}

// Free takes every address of the holder back; those that no other of its group has are quarantined from now on. A
// holder with a UID frees only what is given to that UID, so that the end of an old Service takes nothing from a new
// one of its name.
func (l Ledger) Free(h Holder, now time.Time) Ledger {
	freed := l.clone()
	for address := range l.Held {
		for _, holder := range l.Holders(address) {
			if holder.SameName(h) && (h.UID == "" || holder.UID == h.UID) {
				freed.take(address, holder, now)
			}
		}
	}
	return freed
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
	for address := range l.Held {
		if err := l.checkHolders(address, holders); err != nil {
			return err
		}
	}
	for address := range l.Quarantined {
		if !network.IsHost(l.CIDR, address) {
			return fmt.Errorf("address %s is quarantined, which no host may have in %s", address, l.CIDR)
		}
	}
	return nil
}

// checkHolders checks those who have an address, and adds them to the holders of other addresses.
func (l Ledger) checkHolders(address netip.Addr, holders map[Holder]netip.Addr) error {
	for _, holder := range l.Holders(address) {
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
	return nil
}

// Give adds the holder to those who have the address, in the place of one of its name.
func (l Ledger) Give(address netip.Addr, h Holder) Ledger {
	given := l.clone()
	delete(given.Quarantined, address)
	holders := given.Holders(address)
	i := slices.IndexFunc(holders, h.SameName)
	switch {
	case i > 0:
		given.Groups[address].Others[i-1] = h
	case i < 0 && len(holders) > 0 && given.Groups[address].Name != "":
		group := given.Groups[address]
		group.Others = append(group.Others, h)
		given.Groups[address] = group
	default:
		given.Held[address] = h
	}
	return given
}

func (l Ledger) clone() Ledger {
	l.Held = maps.Collect(maps.All(l.Held)) // not nil, unlike maps.Clone of nil
	l.Groups = maps.Clone(l.Groups)
	for address, group := range l.Groups {
		l.Groups[address] = Group{Name: group.Name, Others: slices.Clone(group.Others)}
	}
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

// Knows reports whether the ledger knows a holder: an address is given to it, or quarantined after it.
func (l Ledger) Knows(h Holder) bool {
	if _, holds := l.AddressOf(h); holds {
		return true
	}
	return l.Closed && slices.ContainsFunc(slices.Collect(maps.Values(l.Quarantined)), func(r Released) bool {
		return r.Holder == h
	})
}

// HoldsForServers reports whether the ledger is that of the nodes' own addresses.
func (l Ledger) HoldsForServers() bool {
	server := func(h Holder) bool { return h.Namespace == "" && h.Name != "" }
	return slices.ContainsFunc(slices.Collect(maps.Values(l.Held)), server) ||
		slices.ContainsFunc(slices.Collect(maps.Values(l.Quarantined)),
			func(r Released) bool { return server(r.Holder) })
}

package election

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"
)

const (
	// MaxNumber bounds the numbers of views: it is the largest integer that all readers of JSON agree on (RFC 8259,
	// section 6). Views start at the seconds since 1970 and grow by one with every change, so that none comes near.
	MaxNumber = 1<<53 - 1
	// MaxMembers bounds the members of a view: a heartbeat reports about all of them.
	MaxMembers = 120
	// MaxAddresses bounds the addresses of a view: a heartbeat and a ConfigMap have room for all of them.
	MaxAddresses = 4096
)

// View holds which node answers for which address of one public network.
type View struct {
	// Number increases by one with every change.
	Number uint64 `json:"number"`
	// Members are the Nodes that count for a majority, sorted.
	Members []string `json:"members"`
	// Changed is the number of the view in which the Node Removed left, or Joined joined, the members.
	Changed uint64 `json:"changed"`
	Removed string `json:"removed,omitempty"`
	Joined  string `json:"joined,omitempty"`
	// Owners has every address that must be announced.
	Owners map[netip.Addr]Owner `json:"owners"`
}

// Owner is the node that answers for an address.
type Owner struct {
	// Node answers for the address; empty when no node can.
	Node string `json:"node,omitempty"`
	// Epoch is the number of the view that gave the address to Node, Since the time.
	Epoch uint64    `json:"epoch"`
	Since time.Time `json:"since"`
	// Before are the Nodes that may have answered by older views. When it is empty, any node may have.
	Before []string `json:"before,omitempty"`
}

// ParseView reads what Encode wrote. The error explains what is wrong with a view that was changed by other means.
func ParseView(raw string) (*View, error) {
	v := &View{}
	if err := json.Unmarshal([]byte(raw), v); err != nil {
		return nil, fmt.Errorf("read the view: %w", err)
	}
	if err := v.validate(); err != nil {
		return nil, err
	}
	return v, nil
}

// validate returns an error when a view contradicts itself, or has what no heartbeat can carry.
func (v *View) validate() error {
	if v.Number == 0 || v.Number > MaxNumber || v.Changed > v.Number {
		return fmt.Errorf("the view has the number %d and members since %d: want numbers from 1 to %d, in that order",
			v.Number, v.Changed, uint64(MaxNumber))
	}
	if err := v.validateMembers(); err != nil {
		return err
	}
	return v.validateOwners()
}

// validateMembers returns an error when the members are none that a change of one at a time can lead to.
func (v *View) validateMembers() error {
	if len(v.Members) == 0 || len(v.Members) > MaxMembers {
		return fmt.Errorf("the view has %d members: want one or more, at most %d", len(v.Members), MaxMembers)
	}
	names := map[ID]string{}
	for i, m := range v.Members {
		other, clash := names[IDOf(m)]
		switch {
		case m == "" || len(m) > MaxName:
			return fmt.Errorf("the view has a member with a name of %d bytes: want 1 to %d", len(m), MaxName)
		case i > 0 && v.Members[i-1] >= m:
			return fmt.Errorf("the view has the member %q after %q: want them sorted, each once", m, v.Members[i-1])
		case clash:
			return fmt.Errorf("the view has the members %q and %q, which heartbeats cannot distinguish: remove one",
				other, m)
		}
		names[IDOf(m)] = m
	}
	if v.Removed != "" && (v.has(v.Removed) || v.Joined != "") || v.Joined != "" && !v.has(v.Joined) {
		return fmt.Errorf("the view says that %q left the members and %q joined them, which are %q: want one of both",
			v.Removed, v.Joined, v.Members)
	}
	return nil
}

// validateOwners returns an error when the addresses are not of this protocol, or their owners of a later view.
func (v *View) validateOwners() error {
	if len(v.Owners) > MaxAddresses {
		return fmt.Errorf("the view has %d addresses: want at most %d", len(v.Owners), MaxAddresses)
	}
	for address, owner := range v.Owners {
		if !address.Is4() {
			return fmt.Errorf("the view has the address %s: want IPv4 addresses", address)
		}
		if owner.Epoch > v.Number {
			return fmt.Errorf("the view has the number %d and an owner of %s since %d", v.Number, address, owner.Epoch)
		}
	}
	return nil
}

// Encode returns the view as its ConfigMap holds it. The error explains why ParseView would not read it.
func (v *View) Encode() (string, error) {
	if err := v.validate(); err != nil {
		return "", fmt.Errorf("write the view: %w", err)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("write the view: %w", err)
	}
	return string(raw), nil
}

// Stamp sets the time of owners that have none yet.
func (v *View) Stamp(now time.Time) {
	for address, owner := range v.Owners {
		if owner.Since.IsZero() {
			owner.Since = now.UTC().Truncate(time.Millisecond)
			v.Owners[address] = owner
		}
	}
}

// next returns a copy with the next number. The lists of predecessors are shared and never changed in place.
func (v *View) next() *View {
	n := *v
	n.Number++
	n.Members = slices.Clone(v.Members)
	n.Owners = maps.Clone(v.Owners)
	if n.Owners == nil {
		n.Owners = map[netip.Addr]Owner{}
	}
	return &n
}

// remove removes a member.
func (v *View) remove(member string) {
	v.Members = slices.DeleteFunc(v.Members, func(m string) bool { return m == member })
	v.Changed = v.Number
	v.Removed = member
	v.Joined = ""
}

// join adds a member.
func (v *View) join(member string) {
	i, _ := slices.BinarySearch(v.Members, member)
	v.Members = slices.Insert(v.Members, i, member)
	v.Changed = v.Number
	v.Removed = ""
	v.Joined = member
}

// has reports whether a Node is a member.
func (v *View) has(member string) bool {
	_, found := slices.BinarySearch(v.Members, member)
	return found
}

// lacks reports whether the view does not have an address that it could have.
func (v *View) lacks(a netip.Addr) bool {
	_, found := v.Owners[a]
	return !found && a.Is4() && len(v.Owners) < MaxAddresses
}

// addresses returns the addresses, sorted.
func (v *View) addresses() []netip.Addr {
	return slices.SortedFunc(maps.Keys(v.Owners), netip.Addr.Compare)
}

// majority is the smallest number of members such that any two sets of that size have a member in common.
func majority(members int) int { return members/2 + 1 }

// blocking is the smallest number of members without which there is no majority.
func blocking(members int) int { return members - majority(members) + 1 }

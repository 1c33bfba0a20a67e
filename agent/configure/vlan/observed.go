package vlan

import (
	"net/netip"
	"slices"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/configure/ownership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
)

// Observed is what the node has.
type Observed struct {
	Links []Link
	// Addresses are the IPv4 addresses.
	Addresses []check.Address
}

// Link is a network interface with what the agent noted on it.
type Link struct {
	check.Link
	// Ours reports whether the agent made or adopted the link; Record holds which, and what it did.
	Ours   bool
	Record ownership.Record
	// Unreadable is why the record cannot be read. Such a link is not touched.
	Unreadable string
	// Settings are read of VLAN links; nil where the interface has no IPv4.
	Settings ownership.Settings
}

func (s Observed) find(match func(Link) bool) *Link {
	if at := slices.IndexFunc(s.Links, match); at >= 0 {
		return &s.Links[at]
	}
	return nil
}

func (s Observed) named(name string) *Link {
	return s.find(func(l Link) bool { return l.Name == name })
}

func (s Observed) indexed(index int) *Link {
	return s.find(func(l Link) bool { return l.Index == index })
}

// on returns the addresses of a link.
func (s Observed) on(index int) []check.Address {
	var found []check.Address
	for _, a := range s.Addresses {
		if a.LinkIndex == index {
			found = append(found, a)
		}
	}
	return found
}

func (s Observed) has(index int, prefix netip.Prefix) bool {
	return slices.ContainsFunc(s.on(index), func(a check.Address) bool { return a.Prefix == prefix })
}

// snapshot is the input that the checks need to find the uplink.
func (s Observed) snapshot() check.Snapshot {
	snapshot := check.Snapshot{Addresses: s.Addresses}
	for _, l := range s.Links {
		snapshot.Links = append(snapshot.Links, l.Link)
	}
	return snapshot
}

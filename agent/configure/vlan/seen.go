package vlan

import (
	"net/netip"
	"slices"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/configure/ownership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
)

// Seen is what stands on the node.
type Seen struct {
	Links []Link
	// Addresses are the IPv4 addresses.
	Addresses []check.Address
}

// Link is a network interface with what the agent noted on it.
type Link struct {
	check.Link
	// Ours tells that the agent made or adopted the link; Record says which, and what it did.
	Ours   bool
	Record ownership.Record
	// Unreadable says why the record cannot be read. Such a link is left alone.
	Unreadable string
	// Settings are read of VLAN links; nil where the interface has no IPv4.
	Settings ownership.Settings
}

func (s Seen) find(match func(Link) bool) *Link {
	if at := slices.IndexFunc(s.Links, match); at >= 0 {
		return &s.Links[at]
	}
	return nil
}

func (s Seen) named(name string) *Link {
	return s.find(func(l Link) bool { return l.Name == name })
}

func (s Seen) indexed(index int) *Link {
	return s.find(func(l Link) bool { return l.Index == index })
}

// on returns the addresses of a link.
func (s Seen) on(index int) []check.Address {
	var found []check.Address
	for _, a := range s.Addresses {
		if a.LinkIndex == index {
			found = append(found, a)
		}
	}
	return found
}

func (s Seen) has(index int, prefix netip.Prefix) bool {
	return slices.ContainsFunc(s.on(index), func(a check.Address) bool { return a.Prefix == prefix })
}

// snapshot is what the judges need to say which link is the uplink.
func (s Seen) snapshot() check.Snapshot {
	snapshot := check.Snapshot{Addresses: s.Addresses}
	for _, l := range s.Links {
		snapshot.Links = append(snapshot.Links, l.Link)
	}
	return snapshot
}

//go:build linux

package network

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// change is what follows from a list of networks: which Runtimes start, end, and stay as they are, by the IDs of their
// networks, each sorted.
type change struct{ start, stop, keep []string }

// desired compares the networks that the Node lists with the Runtimes that run, and with those that end and must not be
// started again before they have. No list means nothing: it is missing while a Node is registered again. Some Runtime
// always runs, because it also reports what machine this is, by which the controller finds the server of a new Node.
func desired(listed []string, running map[string]bool) (c change) {
	active := slices.DeleteFunc(slices.Sorted(maps.Keys(running)), func(id string) bool { return running[id] })
	wanted := listed
	switch {
	case len(listed) == 0 && len(active) == 0:
		wanted = []string{""}
	case len(listed) == 0:
		wanted = active
	default:
	}
	for _, id := range slices.Compact(slices.Sorted(slices.Values(wanted))) {
		if _, runs := running[id]; !runs {
			c.start = append(c.start, id)
		}
	}
	for _, id := range active {
		if slices.Contains(wanted, id) {
			c.keep = append(c.keep, id)
		} else {
			c.stop = append(c.stop, id)
		}
	}
	return c
}

// expectations returns what to expect of each network by its ID, and the IDs in the order of the list. What holds where
// no network is known has an empty ID. The interface that a person named is that of the first network. Of networks with
// one VLAN ID, which are one segment to the kernel, the first is served.
func expectations(networks []contract.NodeNetwork, unreadable error, addresses []netip.Addr,
	o Options) (expected map[string]check.Expected, listed []string) {
	common := check.Expected{NodeAddresses: addresses, Uplink: o.Uplink, TableBase: o.TableBase}
	if o.ManageReturnPath {
		common.Mask = uint32(o.Bits)
	}
	unknown := common
	unknown.Interface = o.Interface
	if unreadable != nil {
		unknown.Unreadable = unreadable.Error()
	}
	expected = map[string]check.Expected{"": unknown}
	networks = slices.DeleteFunc(slices.Clone(networks), func(n contract.NodeNetwork) bool {
		first := slices.IndexFunc(networks, func(o contract.NodeNetwork) bool { return o.VLAN == n.VLAN })
		return networks[first].ID != n.ID
	})
	for i, n := range networks {
		e := common
		e.Published = true
		e.Network = n
		if i == 0 {
			e.Interface = o.Interface
		}
		for j, other := range networks {
			if j != i {
				e.Others = append(e.Others, other.VLAN)
			}
		}
		expected[n.ID] = e
		listed = append(listed, n.ID)
	}
	return expected, listed
}

package vip

import (
	"net/netip"
	"slices"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// maxReported bounds what one node reports: an entry takes about 110 bytes, so the annotation stays below 4 KiB.
const maxReported = 32

// assessment is a node's view of an address.
type assessment struct {
	subject
	finding check.Finding
	// entry is what there is to report, but for the time since when.
	entry contract.ReportedAddress
	// settled reports that enough samples in a row agree.
	settled bool
	// unpublishedSince is since when the Service's condition has not shown what there is to report; zero while it does.
	unpublishedSince time.Time
	// proven is when there was last evidence that a machine has the address.
	proven time.Time
	// involved reports that the node holds the address or should hold it.
	involved bool
	// atOnce reports that not all other nodes see the same at the same time, so the node need not wait for its turn.
	atOnce bool
	// expired reports that the address has been gone for so long that it need not be reported.
	expired bool
}

// report decides what a node reports of the addresses, given what it reported before. A node that is involved with an
// address reports it at once. The others wait for their turn and report nothing if it has been reported by then; so the
// involved nodes and a few more report a change, however large the cluster is. A report is kept up to date until the
// address has been gone for a while.
func report(before contract.ReportedAddresses, opinions []assessment, node string,
	now time.Time) contract.ReportedAddresses {
	after := contract.ReportedAddresses{}
	for _, o := range opinions {
		old, had := before[o.Address]
		switch {
		case o.expired:
		case !o.settled:
			if had {
				after[o.Address] = old
			}
		case had, o.involved, o.due(node, now):
			entry := o.entry
			entry.Since = now.Truncate(time.Second).UTC()
			if had && old.State == entry.State && old.MAC == entry.MAC && old.Held == entry.Held {
				entry.Since = old.Since
			}
			after[o.Address] = entry
		}
	}
	return mostImportant(after)
}

// due reports whether it is the turn of a node that is not involved to report the address. An answer must be newer than
// the last report of the others: the machine that answered may have just gone.
func (o assessment) due(node string, now time.Time) bool {
	if o.phase != published || o.unpublishedSince.IsZero() || !o.atOnce &&
		now.Sub(o.unpublishedSince) < turn(node, o.Address) {
		return false
	}
	return o.entry.State == contract.AddressSilent || o.proven.After(o.unpublishedSince)
}

// mostImportant keeps as many entries as may be reported: what this node holds, then conflicts, then the rest.
func mostImportant(all contract.ReportedAddresses) contract.ReportedAddresses {
	if len(all) <= maxReported {
		return all
	}
	addresses := make([]netip.Addr, 0, len(all))
	for a := range all {
		addresses = append(addresses, a)
	}
	weight := func(e contract.ReportedAddress) int {
		switch {
		case e.State == contract.AddressDuplicate:
			return 0
		case e.Held:
			return 1
		case e.State == contract.AddressSilent:
			return 2
		default:
			return 3
		}
	}
	slices.SortFunc(addresses, func(a, b netip.Addr) int {
		if c := weight(all[a]) - weight(all[b]); c != 0 {
			return c
		}
		return a.Compare(b)
	})
	kept := contract.ReportedAddresses{}
	for _, a := range addresses[:maxReported] {
		kept[a] = all[a]
	}
	return kept
}

// entryOf is what there is to report of an observation. mac is the node's own.
func entryOf(o Observation, mac string) contract.ReportedAddress {
	held := len(o.held()) > 0
	switch {
	case held && len(o.MACs) > 0, len(o.MACs) > 1:
		return contract.ReportedAddress{State: contract.AddressDuplicate, MAC: o.MACs[0], Held: held}
	case held:
		return contract.ReportedAddress{State: contract.AddressAnswered, MAC: mac, Held: true}
	case o.Replied && len(o.MACs) == 1:
		return contract.ReportedAddress{State: contract.AddressAnswered, MAC: o.MACs[0]}
	default:
		return contract.ReportedAddress{State: contract.AddressSilent}
	}
}

package election

import (
	"net/netip"
	"slices"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

// listing is what the API server says about which addresses exist. A node compares its own list with the view, and
// where they differ it asks: the list that is out of date may be its own.
type listing struct {
	// addresses exist, as of the time when the list was requested.
	addresses map[netip.Addr]bool
	asOf      time.Duration
	// wanted is set when the list must be requested, not before after; requested is when it last was.
	wanted           bool
	after, requested time.Duration
	// inVain counts lists in a row that the view agreed with.
	inVain int
}

// isListed reports whether the list is newer than a reason to look at it and than the view, and not too old. Otherwise
// two nodes could revert each other's changes, one of them by a list from before the change of the other.
func (e *Election) isListed(since time.Duration) bool {
	return e.listing.asOf >= max(since, e.balance.changedAt) && e.now-e.listing.asOf < e.rules.listValid
}

// handleListed handles a list of the addresses that exist.
func (e *Election) handleListed(l Listed) {
	e.api.inFlight = false
	e.changed = true
	if l.Err != nil {
		e.fail()
		return
	}
	e.api.failures = 0
	e.listing.wanted = false
	e.listing.addresses = l.Addresses
	e.listing.asOf = e.listing.requested
	if e.view == nil || len(e.absent(e.view)) > 0 || slices.ContainsFunc(e.addresses, e.gone) {
		e.listing.inVain = 0
		return
	}
	e.listing.inVain++
	e.listing.after = e.now + loop.Backoff(e.rules.listAgain, e.rules.listAgainMax, e.listing.inVain-1)
}

// list requests the list of addresses.
func (e *Election) list(out *Output) {
	if !e.listing.wanted {
		return
	}
	if at := max(e.listing.after, e.api.after); e.now < at {
		e.wake(at)
		return
	}
	e.listing.requested = e.now
	e.api.inFlight = true
	out.List = true
}

// unlisted reports whether the node's own list has an address that the view lacks (isNew) or lacks one that the view
// has (isOld). Which of them is right, the API server knows.
func (e *Election) unlisted() (isNew, isOld bool) {
	if !e.facts.Known {
		return false, false
	}
	for a := range e.facts.Wanted {
		isNew = isNew || e.view.lacks(a)
	}
	return isNew, slices.ContainsFunc(e.addresses, func(a netip.Addr) bool { return !e.knows(a) })
}

// knows reports whether the node's own list has an address.
func (e *Election) knows(a netip.Addr) bool {
	_, found := e.facts.Wanted[a]
	return found
}

// absent returns the addresses that exist and that a view does not have but has room for, sorted.
func (e *Election) absent(v *View) []netip.Addr {
	var absent []netip.Addr
	for a := range e.listing.addresses {
		if v.lacks(a) {
			absent = append(absent, a)
		}
	}
	slices.SortFunc(absent, netip.Addr.Compare)
	return absent[:min(len(absent), max(0, MaxAddresses-len(v.Owners)))]
}

// gone reports whether an address does not exist.
func (e *Election) gone(a netip.Addr) bool { return !e.listing.addresses[a] }

// revision adds the addresses that are new to the view, and drops those that are gone, according to the API server; nil
// when it has to be asked first, or agrees with the view.
func (e *Election) revision(subject string) *proposal {
	if !e.isListed(e.pending[subject]) {
		e.listing.wanted = true
		return nil
	}
	return e.placement()
}

func sameKeys(a, b map[netip.Addr]bool) bool {
	if len(a) != len(b) {
		return false
	}
	for key := range a {
		if _, found := b[key]; !found {
			return false
		}
	}
	return true
}

package ipblock

import (
	"net/netip"
	"time"
)

// Released is an address that was released and is not given again yet.
type Released struct {
	// Holder is who held it last; the zero Holder where the ledger was lost, so that this is not known.
	Holder Holder
	// Since is when it was released, or the ledger was made again.
	Since time.Time
}

// inQuarantine reports whether the address is in quarantine. Who held it last may have it back at once: what may
// still answer for it answers for the same name. Where that is not known, it is who has the address published.
func (l Ledger) inQuarantine(address netip.Addr, h Holder, ask Ask) bool {
	released, found := l.Quarantined[address]
	own := released.Holder.SameName(h) || released.Holder == Holder{} && address == ask.Published
	return found && !own && !ask.silent(address) && ask.Now.Before(released.Since.Add(Quarantine))
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

// Remade is a ledger that is made again. Where it is not fresh, each free address may be in use, of a Service that
// proves nothing or by a machine that still answers for it: all are in quarantine, and only a Service that has the
// address published does not have to wait.
func (l Ledger) Remade(fresh bool, now time.Time) Ledger {
	if fresh {
		return l
	}
	l = l.clone()
	for address := range l.hosts() {
		if _, held := l.Held[address]; !held {
			l.Quarantined[address] = Released{Since: now}
		}
	}
	return l
}

// Rebuilding reports whether an address is in quarantine of which is not known who had it.
func (l Ledger) Rebuilding(now time.Time) bool {
	for _, released := range l.Expire(nil, now).Quarantined {
		if released.Holder == (Holder{}) {
			return true
		}
	}
	return false
}

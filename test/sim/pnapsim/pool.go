package pnapsim

import (
	"net/netip"
	"slices"
	"time"
)

// pool sells address ranges by location, the lowest free first. No two sold ranges overlap.
type pool struct {
	ranges map[string][]netip.Prefix
	taken  []netip.Prefix
	freed  map[netip.Prefix]time.Time // when it was given back
}

// buy takes an aligned range of the given length, or reports that there is none. A range that was given
// back is not sold again within the quarantine.
func (p *pool) buy(location string, bits int, v6 bool, now time.Time, quarantine time.Duration) (netip.Prefix, bool) {
	for _, within := range p.ranges[location] {
		if within.Addr().Is6() != v6 || within.Bits() > bits {
			continue
		}
		for candidate := netip.PrefixFrom(within.Masked().Addr(), bits); within.Contains(candidate.Addr()); {
			obstacle, blocked := p.obstacle(candidate, now, quarantine)
			if !blocked {
				p.taken = append(p.taken, candidate)
				delete(p.freed, candidate)
				return candidate, true
			}
			wider := candidate
			if obstacle.Bits() < candidate.Bits() {
				wider = obstacle
			}
			candidate = netip.PrefixFrom(lastAddress(wider).Next(), bits)
		}
	}
	return netip.Prefix{}, false
}

func (p *pool) obstacle(candidate netip.Prefix, now time.Time, quarantine time.Duration) (netip.Prefix, bool) {
	for _, taken := range p.taken {
		if taken.Overlaps(candidate) {
			return taken, true
		}
	}
	for cidr, at := range p.freed {
		if cidr.Overlaps(candidate) && now.Before(at.Add(quarantine)) {
			return cidr, true
		}
	}
	return netip.Prefix{}, false
}

// take marks a range as sold wherever it lies; false when it overlaps one that is sold.
func (p *pool) take(cidr netip.Prefix) bool {
	if slices.ContainsFunc(p.taken, cidr.Overlaps) {
		return false
	}
	p.taken = append(p.taken, cidr)
	return true
}

func (p *pool) giveBack(cidr netip.Prefix, now time.Time) {
	p.taken = slices.DeleteFunc(p.taken, func(taken netip.Prefix) bool { return taken == cidr })
	p.freed[cidr] = now
}

package pnapsim

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
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

// lastAddress is the highest address of a prefix: for IPv4 its broadcast address.
func lastAddress(p netip.Prefix) netip.Addr {
	raw := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < len(raw)*8; bit++ {
		raw[bit/8] |= 1 << (7 - bit%8)
	}
	last, _ := netip.AddrFromSlice(raw)
	return last
}

// gatewayOf is the first usable address of a block. A /31 has no network address (RFC 3021): its
// gateway is the first address, or the second where first31 is false.
func gatewayOf(p netip.Prefix, first31 bool) netip.Addr {
	first := p.Masked().Addr()
	if first.Is4() && p.Bits() == 31 && first31 {
		return first
	}
	return first.Next()
}

// usable reports whether a host may have ip in block p: neither network, gateway nor broadcast address.
func usable(p netip.Prefix, ip netip.Addr, first31 bool) bool {
	if !p.Contains(ip) || ip == gatewayOf(p, first31) {
		return false
	}
	if ip.Is4() && p.Bits() == 31 {
		return true
	}
	return ip != p.Masked().Addr() && (ip.Is6() || ip != lastAddress(p))
}

// usableAddresses lists what a host may have in an IPv4 block.
func usableAddresses(p netip.Prefix, first31 bool) []string {
	if !p.Addr().Is4() {
		return nil
	}
	var out []string
	for ip := p.Masked().Addr(); p.Contains(ip); ip = ip.Next() {
		if usable(p, ip, first31) {
			out = append(out, ip.String())
		}
	}
	return out
}

// maxRange bounds what one range may expand to.
const maxRange = 1 << 16

// parseRange reads a single address or a range "a - b" (BMC API, schema ServerNetworkUpdate).
func parseRange(text string) (from, to netip.Addr, err error) {
	first, second, isRange := strings.Cut(text, "-")
	if from, err = netip.ParseAddr(strings.TrimSpace(first)); err != nil {
		return from, to, fmt.Errorf("%q is no IP address", text)
	}
	if !isRange {
		return from, from, nil
	}
	if to, err = netip.ParseAddr(strings.TrimSpace(second)); err != nil || to.Less(from) || to.Is4() != from.Is4() {
		return from, to, fmt.Errorf("%q is no IP range", text)
	}
	return from, to, nil
}

// expand lists the single addresses of addresses and ranges.
func expand(texts []string) ([]netip.Addr, error) {
	out := []netip.Addr{}
	for _, text := range texts {
		from, to, err := parseRange(text)
		if err != nil {
			return nil, err
		}
		for ip := from; ; ip = ip.Next() {
			if len(out) == maxRange {
				return nil, fmt.Errorf("%q has more than %d addresses", text, maxRange)
			}
			out = append(out, ip)
			if ip == to {
				break
			}
		}
	}
	return out, nil
}

// addresses is expand for what was checked when it was given; what the portal's user wrote wrongly has none.
func addresses(texts []string) []netip.Addr {
	ips, err := expand(texts)
	if err != nil {
		return nil
	}
	return ips
}

package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Assume completes an expectation for a machine whose API server cannot be read by what its kernel shows: the VLAN
// interface that a person named, else the only one with a public address that does not carry the machine's default
// route. Where two may be meant, nothing is assumed.
func Assume(e Expected, s Snapshot) Expected {
	candidates := slices.DeleteFunc(slices.Clone(s.Links), func(l Link) bool { return !e.mayBeMeant(l, s) })
	if len(candidates) > 1 {
		candidates = slices.DeleteFunc(candidates, s.carriesDefaultRoute)
	}
	if !e.Unreached || len(candidates) != 1 {
		return e
	}
	l := candidates[0]
	e.Published = true
	e.Offline = true
	e.Assumed = l.Name
	e.Network.VLAN = l.VLAN.ID
	for _, p := range s.hostPrefixes(l) {
		e.Network.IPs = append(e.Network.IPs, p.Addr())
		if gateway := s.gatewayBy(l, p.Masked()); gateway != p.Addr() && e.notYet(p.Masked()) {
			e.Network.Blocks = append(e.Network.Blocks, contract.NetworkBlock{CIDR: p.Masked(), Gateway: gateway})
		}
	}
	return e
}

func (e Expected) notYet(cidr netip.Prefix) bool {
	return !slices.ContainsFunc(e.Network.Blocks, func(b contract.NetworkBlock) bool { return b.CIDR == cidr })
}

// mayBeMeant reports whether a link may be the VLAN interface of the public network.
func (e Expected) mayBeMeant(l Link, s Snapshot) bool {
	parent := s.LinkIndexed(l.Parent)
	switch {
	case l.VLAN == nil, e.Uplink != "" && (parent == nil || parent.Name != e.Uplink):
		return false
	case e.Interface != "":
		return l.Name == e.Interface
	default:
		return slices.ContainsFunc(s.hostPrefixes(l),
			func(p netip.Prefix) bool { return !contract.IsPrivate(p.Addr()) })
	}
}

// hostPrefixes are the IPv4 addresses of a link that are a machine's own, not those of Services (see isVirtual),
// sorted.
func (s Snapshot) hostPrefixes(l Link) []netip.Prefix {
	var prefixes []netip.Prefix
	for _, a := range s.Addresses {
		if a.LinkIndex == l.Index && a.Prefix.Addr().Is4() && a.Prefix.Addr().IsGlobalUnicast() &&
			a.Prefix.Bits() <= 30 && !a.Deprecated {
			prefixes = append(prefixes, a.Prefix)
		}
	}
	slices.SortFunc(prefixes, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	return prefixes
}

func (s Snapshot) carriesDefaultRoute(l Link) bool {
	return slices.ContainsFunc(s.Tables[TableMain], func(r Route) bool {
		return r.LinkIndex == l.Index && r.Destination.Bits() == 0
	})
}

// gatewayBy is the gateway of a block: the one that a route by the link names, else its first usable address.
func (s Snapshot) gatewayBy(l Link, block netip.Prefix) netip.Addr {
	gateway := netip.Addr{}
	for _, routes := range s.Tables {
		for _, r := range routes {
			if r.LinkIndex == l.Index && block.Contains(r.Gateway) &&
				(!gateway.IsValid() || r.Gateway.Less(gateway)) {
				gateway = r.Gateway
			}
		}
	}
	if !gateway.IsValid() {
		return block.Addr().Next()
	}
	return gateway
}

// vlansHere writes the VLAN interfaces of the machine, whatever they are for.
func (s Snapshot) vlansHere() string {
	return sortedNames(s.Links, func(l Link) (string, bool) {
		if l.VLAN == nil {
			return "", false
		}
		text := fmt.Sprintf("%s has VLAN ID %d", l.Name, l.VLAN.ID)
		if parent := s.LinkIndexed(l.Parent); parent != nil {
			text += " on " + parent.Name
		}
		if !l.Up || !l.LowerUp {
			text += " and is " + l.OperState
		}
		if own := s.hostPrefixes(l); len(own) > 0 {
			text += " and address " + strings.ReplaceAll(joined(own), ", ", " and ")
		}
		return text, true
	})
}

// byHand are the commands that check the machine's VLAN interfaces, each as if the public network were there.
func (s Snapshot) byHand() []string {
	var commands []string
	for _, l := range s.Links {
		own := s.hostPrefixes(l)
		if l.VLAN == nil || len(own) == 0 {
			continue
		}
		command := fmt.Sprintf("phoenixnap-agent diagnose --vlan %d", l.VLAN.ID)
		for _, p := range own {
			command += fmt.Sprintf(" --network %s --address %s", p.Masked(), p.Addr())
		}
		commands = append(commands, command)
	}
	slices.Sort(commands)
	return commands[:min(len(commands), maxNames)]
}

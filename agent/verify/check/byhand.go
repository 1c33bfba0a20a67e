package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// ExpectedByHand is the expectation of a person who knows the network but has no API server at hand. The gateway of a
// block is its first usable address, as phoenixNAP assigns them.
func ExpectedByHand(vlan int, blocks, addresses []string) (Expected, error) {
	e := Expected{Published: true, Offline: true, Network: contract.NodeNetwork{VLAN: vlan}}
	if vlan < 1 || vlan > 4094 {
		return Expected{}, fmt.Errorf("%d is not a VLAN ID from 1 to 4094", vlan)
	}
	for _, raw := range blocks {
		cidr, err := netip.ParsePrefix(raw)
		if err != nil {
			return Expected{}, fmt.Errorf("block %q: %w", raw, err)
		}
		cidr = cidr.Masked()
		e.Network.Blocks = append(e.Network.Blocks, contract.NetworkBlock{CIDR: cidr, Gateway: cidr.Addr().Next()})
	}
	for _, raw := range addresses {
		addr, err := netip.ParseAddr(raw)
		if err != nil {
			return Expected{}, fmt.Errorf("node address %q: %w", raw, err)
		}
		e.Network.IPs = append(e.Network.IPs, addr)
	}
	return e, nil
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

// Package identity derives the identity of a machine from a snapshot of its network.
package identity

import (
	"net/netip"
	"slices"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// Limit is the maximum number of hardware addresses, and of addresses, that are reported, so that a machine with a
// network card of a hundred virtual functions does not fill its Node.
const Limit = 64

// Of returns the identity of the machine of s. Only the machine's own interfaces count: physical ones, bonds and VLANs,
// and the uplink with its members whatever they are; bridges and pod interfaces belong to the container network. The
// addresses of Services (virtual, or added deprecated as kube-vip does) move between machines and identify none.
func Of(s check.Snapshot, report check.Report, virtual []netip.Addr) contract.Identity {
	id := contract.Identity{
		Hostname: s.Hostname, VLANInterface: report.Interface, ServerID: s.Machine.ServerID,
		Addresses: []netip.Addr{}, MACs: []string{},
	}
	own := map[int]bool{}
	for _, l := range s.Links {
		if !machineLink(s, l, report.Uplink) {
			continue
		}
		own[l.Index] = true
		// The VLAN interface may have an address of its own, and that is the one that others see.
		if l.MAC != "" && (l.VLAN == nil || l.Name == report.Interface) {
			id.MACs = append(id.MACs, l.MAC)
		}
		// The members of a bond share its address; their permanent addresses identify the machine.
		if l.Slave != nil && l.Slave.PermanentMAC != "" {
			id.MACs = append(id.MACs, l.Slave.PermanentMAC)
		}
	}
	for _, a := range s.Addresses {
		addr := a.Prefix.Addr()
		if own[a.LinkIndex] && addr.IsGlobalUnicast() && !a.Deprecated && !slices.Contains(virtual, addr) {
			id.Addresses = append(id.Addresses, addr)
		}
	}
	slices.Sort(id.MACs)
	id.MACs = firstOf(slices.Compact(id.MACs))
	slices.SortFunc(id.Addresses, netip.Addr.Compare)
	id.Addresses = firstOf(slices.Compact(id.Addresses))
	return id
}

func firstOf[T any](all []T) []T { return all[:min(len(all), Limit)] }

func machineLink(s check.Snapshot, l check.Link, uplink string) bool {
	switch l.Type {
	case "device":
		return l.Name != "lo"
	case "bond", "vlan":
		return true
	default:
		if l.Name == uplink {
			return true
		}
		master := s.LinkIndexed(l.Master)
		return l.Master != 0 && master != nil && (master.Name == uplink || master.Type == "bond")
	}
}

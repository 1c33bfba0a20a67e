package check

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Expected is the state that the node should have.
type Expected struct {
	// Published reports whether the controller has published the network; the other checks run only then.
	Published bool
	// Unreadable is why the published network cannot be read; empty when it can.
	Unreadable string
	// Unreached reports that the Node has not been read from the API server.
	Unreached bool
	// Offline reports that Network was given by hand and the membership is not known.
	Offline bool
	// Network is what the controller published.
	Network contract.NodeNetwork
	// Interface is the name of the VLAN interface where a person set it; empty: found by its VLAN ID.
	Interface string
	// Uplink is the name of the link below where a person set it; empty: found.
	Uplink string
	// Others are the VLAN IDs of the other public networks of the Node. The default route leads by one at most.
	Others []int
	// Virtual are the addresses of Services: they come and go and are never the node's own.
	Virtual []netip.Addr
	// NodeAddresses are the addresses of the Node's status; empty when they are not known.
	NodeAddresses []netip.Addr
	// PodSources are addresses of pods on this node, from which replies come; empty: found among the routes.
	PodSources []netip.Addr
	// Mask has the bits of marked replies where this agent manages the return path; it is 0 where it does not.
	Mask uint32
	// TableBase and the VLAN ID make the number of the routing table of the public network; 0 means DefaultTableBase.
	TableBase int
}

// DefaultTableBase and the VLAN ID make the number of a routing table. Further ones of the same network, one for each
// gateway, follow at the distance TableStep, beyond all VLAN IDs: the tables of two networks never meet.
const (
	DefaultTableBase = 1000
	TableStep        = 4096
)

// ExpectedOf reads what the controller published on a Node of the public network of a name, of the first one for an
// empty name. addresses are those of its status (contract.NodeIPs).
func ExpectedOf(annotations map[string]string, addresses []netip.Addr, name string) Expected {
	networks, _, err := contract.ParsePublicNetworks(annotations)
	e := Expected{NodeAddresses: addresses}
	var names []string
	for _, n := range networks {
		names = append(names, n.Name)
		if !e.Published && (name == "" || name == n.Name) {
			e.Published = true
			e.Network = n
		} else {
			e.Others = append(e.Others, n.VLAN)
		}
	}
	switch {
	case err != nil:
		e.Unreadable = err.Error()
	case name != "" && !e.Published && len(names) > 0:
		e.Unreadable = fmt.Sprintf("the Node is in no public network %q, but in %s", name, strings.Join(names, ", "))
	}
	return e
}

// Table is the number of the routing table of the public network.
func (e Expected) Table() int { return e.firstTable(e.Network.VLAN) }

// firstTable is the number of the first routing table of a network with a VLAN ID.
func (e Expected) firstTable(vlan int) int { return cmp.Or(e.TableBase, DefaultTableBase) + vlan }

// isOfOther reports whether a routing table is one of another network of the Node.
func (e Expected) isOfOther(table int) bool {
	return slices.ContainsFunc(e.Others, func(vlan int) bool {
		return table >= e.firstTable(vlan) && (table-e.firstTable(vlan))%TableStep == 0
	})
}

// Describe describes the expected network in a line.
func (e Expected) Describe() string {
	switch {
	case e.Unreached:
		return "not known"
	case e.Unreadable != "":
		return "not readable"
	case !e.Published:
		return "not published by the controller yet"
	case e.Offline:
		return e.name() + ", blocks " + e.blockTexts() + " (given by hand)"
	default:
		return e.name() + ", blocks " + e.blockTexts()
	}
}

// block returns the assigned block that holds addr.
func (e Expected) block(addr netip.Addr) (contract.NetworkBlock, bool) {
	return first(e.Network.Blocks, func(b contract.NetworkBlock) bool { return b.CIDR.Contains(addr) })
}

// memberIPs are the IPv4 addresses of the membership.
func (e Expected) memberIPs() []netip.Addr {
	return slices.DeleteFunc(slices.Clone(e.Network.IPs), func(ip netip.Addr) bool { return !ip.Is4() })
}

// blocks4 are the IPv4 blocks; only these are checked, IPv6 has no ARP.
func (e Expected) blocks4() []contract.NetworkBlock {
	blocks := slices.DeleteFunc(slices.Clone(e.Network.Blocks),
		func(b contract.NetworkBlock) bool { return !b.CIDR.Addr().Is4() })
	slices.SortFunc(blocks, func(a, b contract.NetworkBlock) int { return a.CIDR.Addr().Compare(b.CIDR.Addr()) })
	return blocks
}

func (e Expected) name() string {
	if e.Network.ID == "" {
		return fmt.Sprintf("VLAN %d", e.Network.VLAN)
	}
	return fmt.Sprintf("public network %s (VLAN %d)", e.Network.ID, e.Network.VLAN)
}

func (e Expected) blockTexts() string {
	var blocks []netip.Prefix
	for _, b := range e.blocks4() {
		blocks = append(blocks, b.CIDR)
	}
	return joined(blocks)
}

package returnpath

import (
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/configure/ownership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

// Bits are the bits of packet and connection mark that distinguish gateways; n bits have values for 2^n-1 of them.
type Bits uint32

// DefaultBits do not collide with kube-proxy (0xc000), Calico (0xffff0000), Cilium (0x0f00 and above 16; its low byte
// is used only by meshes of clusters) and CNI's portmap plugin (0x2000), whose packets the kernel routes by whatever
// rule matches their mark. Four bits are enough for the ten blocks that a phoenixNAP network may hold.
const DefaultBits Bits = 0xf0

// kubeProxy are the bits of kube-proxy (--iptables-masquerade-bit, default 14) and the kubelet (KUBE-FIREWALL, 15).
const kubeProxy Bits = 0xc000

// ParseBits reads a mask such as "0xf0".
func ParseBits(s string) (Bits, error) {
	n, err := strconv.ParseUint(s, 0, 32)
	if err != nil {
		return 0, fmt.Errorf("mark bits %q: want a mask such as %s", s, DefaultBits)
	}
	b := Bits(n)
	switch {
	case b == 0:
		return 0, fmt.Errorf("mark bits %q: want at least one bit, such as %s", s, DefaultBits)
	case b&kubeProxy != 0:
		return 0, fmt.Errorf("mark bits %q: %s belong to kube-proxy; choose others, such as %s", s, kubeProxy,
			DefaultBits)
	}
	return b, nil
}

// String writes the mask as a hexadecimal number.
func (b Bits) String() string { return fmt.Sprintf("%#x", uint32(b)) }

// Count is how many gateways have a value of their own.
func (b Bits) Count() int { return 1<<bits.OnesCount32(uint32(b)) - 1 }

// Value is the packet mark of the gateway with an index from 0 to Count()-1: index+1, spread over the bits of the mask.
func (b Bits) Value(index int) uint32 {
	var value uint32
	number := uint32(index + 1) //nolint:gosec // a small index
	for mask := uint32(b); mask != 0; mask &= mask - 1 {
		if number&1 != 0 {
			value |= mask & -mask
		}
		number >>= 1
	}
	return value
}

// index is the index of a packet mark, -1 for one that is no value of the bits.
func (b Bits) index(value uint32) int {
	var number, place int
	for mask := uint32(b); mask != 0; mask &= mask - 1 {
		if value&(mask&-mask) != 0 {
			number |= 1 << place
		}
		place++
	}
	if value&^uint32(b) != 0 {
		return -1
	}
	return number - 1
}

// Priorities of the agent's rules, before the main table's (32766), behind network plugins' (Cilium: 9 to 100).
const (
	// markPriority sends marked replies to the table of their gateway.
	markPriority = 1055
	// localPriority sends packets from a block to pods and the node's other networks by the main table's better routes.
	localPriority = 1056
	// sourcePriority sends all other packets from a block's address to the table of the block's gateway.
	sourcePriority = 1057
	// lastPriority comes after all other rules of a machine, the last of which has 32767, see want.
	lastPriority = 32768
)

// rule is an IPv4 routing rule of the agent.
type rule struct {
	priority int
	// source is the zero Prefix when the rule has none.
	source     netip.Prefix
	mark, mask uint32
	table      int
	// noDefault ignores default routes of the table (suppress_prefixlength 0).
	noDefault bool
}

// String formats the rule in the syntax of ip-rule(8).
func (r rule) String() string {
	words := []string{"pref", fmt.Sprint(r.priority)}
	if r.source.IsValid() {
		words = append(words, "from", r.source.String())
	}
	if r.mask != 0 {
		words = append(words, "fwmark", fmt.Sprintf("%#x/%#x", r.mark, r.mask))
	}
	words = append(words, "lookup", tableName(r.table))
	if r.noDefault {
		words = append(words, "suppress_prefixlength 0")
	}
	return strings.Join(words, " ")
}

func tableName(table int) string {
	if table == check.TableMain {
		return "main"
	}
	return fmt.Sprint(table)
}

// kernelRule is a rule that the kernel has.
type kernelRule struct {
	rule
	// protocol identifies the program that made it (FRA_PROTOCOL).
	protocol int
	// hasExtras reports whether it has selectors or an action that rule cannot express.
	hasExtras bool
	// raw is the rule as the kernel reports it, so that exactly this one can be deleted.
	raw netlink.Rule
}

// ours reports whether the agent made the rule.
func (k kernelRule) ours() bool {
	return k.protocol == ownership.Protocol &&
		(k.priority >= markPriority && k.priority <= sourcePriority || k.priority == lastPriority)
}

// route is an IPv4 route of the agent.
type route struct {
	table int
	// destination is 0.0.0.0/0 for the default route.
	destination netip.Prefix
	// gateway is the zero Addr for a destination on the link. It may be outside of the link's networks (onlink).
	gateway netip.Addr
	// link is the index of the VLAN interface.
	link int
	// metric is 0 for all routes of the agent.
	metric int
}

// String formats the route in the syntax of ip-route(8), with the index of the interface.
func (r route) String() string {
	words := []string{r.destination.String()}
	if r.destination.Bits() == 0 {
		words[0] = "default"
	}
	if r.gateway.IsValid() {
		words = append(words, "via", r.gateway.String())
	}
	return strings.Join(append(words, fmt.Sprintf("dev #%d table %d", r.link, r.table)), " ")
}

// place is what two routes cannot share.
func (r route) place() route {
	return route{table: r.table, destination: r.destination, metric: r.metric}
}

// kernelRoute is a route outside the tables of every machine (local, main, default).
type kernelRoute struct {
	route
	protocol int
	// hasExtras reports whether it is not a plain unicast route.
	hasExtras bool
	raw       netlink.Route
}

func (k kernelRoute) ours() bool { return k.protocol == ownership.Protocol }

// link is the VLAN interface.
type link struct {
	index int
	name  string
	// up is the administrative state: a link that is down takes no routes.
	up bool
	// strict: its filter drops packets whose source the default route does not reach (rp_filter 1, RFC 3704).
	strict bool
}

// observed is the state of the kernel.
type observed struct {
	// vlans are the VLAN interfaces by VLAN ID, those that there are.
	vlans  map[int]*link
	rules  []kernelRule
	routes []kernelRoute
	// defaults are the indexes of the links by which the default routes of the main table lead.
	defaults []int
	// ruleset is the agent's nftables table, line by line; nil when there is none.
	ruleset []string
	// links are the names of all interfaces: they show which network plugin is used.
	links []string
	// marker is the program that sets bits of ours in marks; empty when none was found.
	marker string
}

// needsWayBack reports whether the node may lose, or has lost, its default route with the VLAN interface of a network.
// Once it is lost, the rules of the agent show that it was one.
func (o observed) needsWayBack() bool {
	if len(o.defaults) == 0 {
		return slices.ContainsFunc(o.rules, func(r kernelRule) bool { return r.ours() && r.priority == lastPriority })
	}
	for _, l := range o.vlans {
		if l != nil && slices.Contains(o.defaults, l.index) {
			return true
		}
	}
	return false
}

// caveat says where marks and rules may not decide how replies leave; empty where they do.
func (o observed) caveat() string {
	who := check.Balancers(check.Snapshot{Links: namedLinks(o.links)})
	if who == "" {
		return ""
	}
	return fmt.Sprintf("; not verified for Services that %s balances in eBPF, see %s", who, check.Verifiable)
}

// namedLinks are links of which only the names are known.
func namedLinks(names []string) []check.Link {
	links := make([]check.Link, len(names))
	for i, name := range names {
		links[i].Name = name
	}
	return links
}

// clash returns an error text when another program uses the bits, by the rule of the finding PN504, else nothing.
func clash(o observed, bits Bits) string {
	s := check.Snapshot{Links: namedLinks(o.links)}
	for _, r := range o.rules {
		s.Rules = append(s.Rules, check.Rule{
			Priority: r.priority, Source: r.source, Mark: r.mark, Mask: r.mask,
			Table: r.table, Protocol: r.protocol, Invert: r.raw.Invert,
		})
	}
	who, found := check.MarkClash(s, uint32(bits))
	if !found && o.marker != "" {
		who = o.marker
		found = true
	}
	if !found {
		return ""
	}
	return fmt.Sprintf("the mark bits %s are also used by %s; choose other bits with --mark, or stop that use", bits,
		who)
}

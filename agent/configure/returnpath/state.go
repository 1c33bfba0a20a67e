package returnpath

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/configure/ownership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
)

// Priorities of the agent's routing rules, before the main table's (32766) and behind those of network plugins
// (Cilium: 9 to 100).
const (
	// markPriority sends marked replies to the table of their gateway.
	markPriority = 1055
	// localPriority sends packets from a block's own address to pods and other networks of the node by the main
	// table, where that has a better route than its default route.
	localPriority = 1056
	// sourcePriority sends all other packets from a block's address to the table of the block's gateway.
	sourcePriority = 1057
)

// tableStep is the distance between the routing tables of two gateways: beyond all VLAN IDs.
const tableStep = 4096

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
	// other reports whether it has selectors or an action that rule cannot express.
	other bool
	// raw is the rule as the kernel reports it, so that exactly this one can be deleted.
	raw netlink.Rule
}

// ours reports whether the agent made the rule.
func (r kernelRule) ours() bool {
	return r.protocol == ownership.Protocol && r.priority >= markPriority && r.priority <= sourcePriority
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
type place struct {
	table       int
	destination netip.Prefix
	metric      int
}

func (r route) place() place { return place{r.table, r.destination, r.metric} }

// kernelRoute is a route outside the tables of every machine (local, main, default).
type kernelRoute struct {
	route
	protocol int
	// other reports whether it is not a plain unicast route.
	other bool
	raw   netlink.Route
}

func (r kernelRoute) ours() bool { return r.protocol == ownership.Protocol }

// link is the VLAN interface.
type link struct {
	index int
	name  string
	// up is the administrative state: a link that is down takes no routes.
	up bool
	// strict reports whether the reverse path filter drops packets whose source the default route does not reach
	// (rp_filter 1, RFC 3704).
	strict bool
}

// observed is the state of the kernel.
type observed struct {
	// link is nil when there is no VLAN interface.
	link   *link
	rules  []kernelRule
	routes []kernelRoute
	// ruleset is the agent's nftables table, line by line; nil when there is none.
	ruleset []string
	// links are the names of all interfaces: they show which network plugin is used.
	links []string
	// marker is the program that sets bits of ours in marks; empty when none was found.
	marker string
}

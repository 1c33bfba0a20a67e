package returnpath

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/configure/ownership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
)

// Priorities of the agent's routing rules, before the main table's (32766) and behind those of network plugins (Cilium: 9 to
// 100).
const (
	// markPriority sends marked replies to the table of their gateway.
	markPriority = 1055
	// localPriority lets what a block's own address sends to pods and other networks of the node go where the main table
	// has a way better than its default route.
	localPriority = 1056
	// sourcePriority sends the rest of what a block's address sends to the table of the block's gateway.
	sourcePriority = 1057
)

// tableStep is the distance between the routing tables of two gateways: beyond all VLAN IDs.
const tableStep = 4096

// rule is an IPv4 routing rule as the agent makes them.
type rule struct {
	priority int
	// source is the zero Prefix where the rule asks for none.
	source     netip.Prefix
	mark, mask uint32
	table      int
	// noDefault passes over default routes of the table (suppress_prefixlength 0).
	noDefault bool
}

// String writes the rule as ip-rule(8) takes it.
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

// seenRule is a rule that the kernel has.
type seenRule struct {
	rule
	// protocol is who made it (FRA_PROTOCOL).
	protocol int
	// other tells that it has selectors or an action that rule cannot express.
	other bool
	// raw is all that the kernel says of it, so that exactly this one can be deleted.
	raw netlink.Rule
}

// ours tells whether the agent made the rule.
func (r seenRule) ours() bool {
	return r.protocol == ownership.Protocol && r.priority >= markPriority && r.priority <= sourcePriority
}

// route is an IPv4 route as the agent makes them.
type route struct {
	table int
	// destination is 0.0.0.0/0 for the default route.
	destination netip.Prefix
	// gateway is the zero Addr for a destination on the link. It need not be on the link by other routes (onlink).
	gateway netip.Addr
	// link is the index of the VLAN interface.
	link int
	// metric is 0 for all that the agent makes.
	metric int
}

// String writes the route as ip-route(8) takes it, with the index of the interface.
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

// seenRoute is a route outside the tables of every machine (local, main, default).
type seenRoute struct {
	route
	protocol int
	// other tells that it is no plain unicast route.
	other bool
	raw   netlink.Route
}

func (r seenRoute) ours() bool { return r.protocol == ownership.Protocol }

// link is the VLAN interface.
type link struct {
	index int
	name  string
	// up is the administrative state: a link that is down takes no routes.
	up bool
	// strict tells that the reverse path filter drops what the default route does not lead back to (rp_filter 1, RFC 3704).
	strict bool
}

// observed is what the kernel has.
type observed struct {
	// link is nil when there is no VLAN interface.
	link   *link
	rules  []seenRule
	routes []seenRoute
	// ruleset is the agent's nftables table, line by line; nil when there is none.
	ruleset []string
	// links are the names of all interfaces: they tell which network plugin is there.
	links []string
	// marker is who puts bits of ours into marks; empty when nobody was found.
	marker string
}

package membership

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/node/instances"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// leaveAfter is how long a server must be unwanted before it leaves: a Node that is deleted and registers again, or a
// label that is edited twice, does not disconnect a server.
const leaveAfter = 5 * time.Minute

// kind is what a step does.
type kind int

const (
	// forget removes a server from the record: it is no longer a member, or someone else changed the membership.
	forget kind = iota
	// lost removes a server from the record once a read by ID confirms that it does not exist.
	lost
	// leave removes a server from the network that it was joined to.
	leave
	// join makes a server a member.
	join
	// refuse reports on the Node why its server cannot join.
	refuse
)

// step is one thing to do about one server.
type step struct {
	kind   kind
	server string // its ID
	// network to leave.
	network string
	// node and text of a refuse.
	node *corev1.Node
	text string
}

// observed is the input of a decision.
type observed struct {
	nodes   []*corev1.Node
	now     time.Time
	network network.Network
	// servers of the account, by ID.
	servers map[string]pnap.Server
	// wanted are the Nodes whose servers must be members, by server ID, and rivals further Nodes with the same provider
	// ID.
	wanted       map[string]*corev1.Node
	rivals       map[string][]*corev1.Node
	memberRecord memberRecord
	// isChanging reports whether a server was changed or rejected too recently to be changed again.
	isChanging func(serverID string) bool
	// elsewhere reports whether another public network is in a location; nil for no other one.
	elsewhere func(location string) bool
	// unwantedFor is how long a recorded server has been unwanted.
	unwantedFor func(serverID string) time.Duration
}

// claims returns the Nodes whose servers must be members, by the server ID that their provider ID names.
func claims(nodes []*corev1.Node, selector labels.Selector) map[string][]*corev1.Node {
	byServer := map[string][]*corev1.Node{}
	for _, node := range nodes {
		id, err := contract.ParseProviderID(node.Spec.ProviderID)
		if err == nil && node.DeletionTimestamp == nil && selector.Matches(labels.Set(node.Labels)) {
			byServer[id] = append(byServer[id], node)
		}
	}
	return byServer
}

// wanted returns of each server's Nodes the one with the strongest tie to it (of several the first name), and the
// others.
func wanted(claimed map[string][]*corev1.Node, servers map[string]pnap.Server) (best map[string]*corev1.Node,
	rivals map[string][]*corev1.Node) {
	best = map[string]*corev1.Node{}
	rivals = map[string][]*corev1.Node{}
	for id, nodes := range claimed {
		nodes = slices.SortedFunc(slices.Values(nodes), func(a, b *corev1.Node) int {
			return cmp.Or(cmp.Compare(instances.TieOf(b, servers[id]), instances.TieOf(a, servers[id])),
				cmp.Compare(a.Name, b.Name))
		})
		best[id] = nodes[0]
		if len(nodes) > 1 {
			rivals[id] = nodes[1:]
		}
	}
	return best, rivals
}

// decide returns the steps to take, ordered by removals before additions, then by server ID.
func decide(o observed) []step {
	ids := slices.AppendSeq(slices.Collect(maps.Keys(o.wanted)), maps.Keys(o.memberRecord.members))
	slices.Sort(ids)
	var steps []step
	for _, id := range slices.Compact(ids) {
		if o.isChanging(id) {
			continue
		}
		if s, due := o.plan(id); due {
			steps = append(steps, s)
		}
		for _, rival := range o.rivals[id] {
			steps = append(steps, step{kind: refuse, server: id, node: rival, text: fmt.Sprintf("phoenixNAP server %s "+
				"is the server of node %s, which has the same provider ID: it does not join public network %s for node %s; "+
				"delete the Node whose machine is not that server",
				id, o.wanted[id].Name, o.network.ID, rival.Name)})
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.kind, b.kind) })
	return steps
}

// plan decides for one server.
func (o observed) plan(id string) (step, bool) {
	recorded, ours := o.memberRecord.members[id]
	elsewhere := ours && recorded.Network != o.network.ID
	_, isWanted := o.wanted[id]
	switch {
	case isWanted && !elsewhere:
		return o.planJoin(id)
	case ours:
		return o.planLeave(id, recorded)
	default:
		return step{}, false
	}
}

// planJoin decides for a server that must be a member.
func (o observed) planJoin(id string) (step, bool) {
	server, listed := o.servers[id]
	if !listed {
		return step{}, false
	}
	if _, member := membershipOf(server, o.network.ID); member {
		return step{}, false
	}
	if !strings.EqualFold(server.Location, o.network.Location) {
		if o.elsewhere != nil && o.elsewhere(server.Location) {
			return step{}, false // a network that it can join
		}
		return step{kind: refuse, server: id, node: o.wanted[id],
			text: fmt.Sprintf("phoenixNAP server %s is in location %s, public network %s in %s: it cannot join; "+
				"exclude the Node with --service-node-selector",
				id, server.Location, o.network.ID, o.network.Location)}, true
	}
	if instances.TieOf(o.wanted[id], server) == instances.Untied {
		return step{kind: refuse, server: id, node: o.wanted[id],
			text: fmt.Sprintf("phoenixNAP server %s does not join public network %s: only the provider ID of node %s "+
				"names it. Its host name is %q, and neither the agent nor --node-ip reports an address of it. If it is "+
				"the Node's server, give it the Node's name, or start the agent on the Node; if not, delete the Node "+
				"and correct --provider-id of the kubelet",
				id, o.network.ID, o.wanted[id].Name, server.Hostname)}, true
	}
	if server.Status != pnap.ServerPoweredOn && server.Status != pnap.ServerPoweredOff {
		return step{}, false // the API accepts no change of its networks now
	}
	return step{kind: join, server: id}, true
}

// planLeave decides for a server that was joined and must no longer be a member of that network.
func (o observed) planLeave(id string, recorded joined) (step, bool) {
	server, listed := o.servers[id]
	if !listed {
		return step{kind: lost, server: id}, o.unwantedFor(id) >= leaveAfter
	}
	entry, member := membershipOf(server, recorded.Network)
	isListed := func(m network.Member) bool { return m.ServerID == id }
	switch {
	case !member && recorded.Network == o.network.ID && slices.ContainsFunc(o.network.Members, isListed):
		return step{}, false // the network's view lags behind
	case !member:
		return step{kind: forget, server: id}, true
	case entry.Status != pnap.MembershipAssigned:
		return step{}, false
	case !isOurs(recorded, entry):
		return step{kind: forget, server: id}, true
	default:
		return step{kind: leave, server: id, network: recorded.Network}, o.unwantedFor(id) >= leaveAfter
	}
}

// isOurs reports whether a membership is still the controller's: a user who sets other addresses takes it over.
func isOurs(recorded joined, entry pnap.Membership) bool {
	if !recorded.Address.IsValid() || len(entry.IPs) == 0 {
		return true
	}
	return slices.Contains(entry.IPs, recorded.Address)
}

func membershipOf(server pnap.Server, networkID string) (pnap.Membership, bool) {
	at := slices.IndexFunc(server.PublicNetworks, func(m pnap.Membership) bool { return m.Network == networkID })
	if at < 0 {
		return pnap.Membership{}, false
	}
	return server.PublicNetworks[at], true
}

// user returns the lowest address of the block that a server has, or is recorded to get, and the server.
func (o observed) user(b network.Block) (serverID string, address netip.Addr, found bool) {
	note := func(id string, ips ...netip.Addr) {
		for _, ip := range ips {
			if b.CIDR.IsValid() && b.CIDR.Contains(ip) && (!found || ip.Less(address)) {
				serverID = id
				address = ip
				found = true
			}
		}
	}
	for _, member := range o.network.Members {
		note(member.ServerID, member.IPs...)
	}
	for id, server := range o.servers {
		for _, entry := range server.PublicNetworks {
			note(id, entry.IPs...)
		}
	}
	for id, recorded := range o.memberRecord.members {
		note(id, recorded.Address)
	}
	return serverID, address, found
}

// used reports whether a server uses an address of the block.
func (o observed) used(b network.Block) bool {
	_, _, found := o.user(b)
	return found
}

// isRemoval reports whether the step ends a membership or its record: such a step is never based on a cache only.
func (s step) isRemoval() bool { return s.kind == forget || s.kind == lost || s.kind == leave }

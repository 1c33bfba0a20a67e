package pnapsim

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"k8s.io/utils/ptr"
)

// networkBody is the body that makes or changes a public network.
type networkBody struct {
	Name        *string  `json:"name"`
	Description *string  `json:"description"`
	Location    string   `json:"location"`
	VLAN        int      `json:"vlanId"`
	RA          *bool    `json:"raEnabled"`
	Blocks      []idBody `json:"ipBlocks"`
}

// idBody is an object that only names another one.
type idBody struct {
	ID string `json:"id"`
}

// VLAN IDs that a network may have (Networks API, schema PublicNetworkCreate).
const (
	minVLAN = 2
	maxVLAN = 4094
)

// Blocks that a network may hold (Networks API, schema PublicNetworkCreate).
const (
	maxV4Blocks = 10
	maxV6Blocks = 1
)

func (s *Sim) listNetworks(c *call) reply {
	location := c.query.Get("location")
	return s.lagging(c, s.latency.NetworkListLag, listing(inOrder(c.account.networks),
		func(n *network) bool { return location == "" || location == n.location },
		func(n *network) object { return s.networkView(c.account, n) }))
}

func (s *Sim) networkView(a *account, n *network) object {
	blocks := []any{}
	members := []any{}
	for _, id := range n.blocks {
		if b := a.blocks[id]; b != nil {
			blocks = append(blocks, networkBlockView(n, b))
		}
	}
	for _, m := range n.view {
		members = append(members, object{"resourceId": m.server, "resourceType": "server", "ips": slices.Clone(m.ips)})
	}
	view := object{
		"id": n.id, "name": n.name, "location": n.location, "vlanId": n.vlan, "status": n.status,
		"createdOn": s.timestamp(n.created), "ipBlocks": blocks, "memberships": members,
	}
	optional(view, "description", n.description)
	if hasV6(a, n) {
		view["raEnabled"] = n.ra
	}
	return view
}

// networkBlockView shows a block with the number of its used addresses: those of members and the gateway.
func networkBlockView(n *network, b *block) object {
	used := map[string]bool{}
	for _, m := range n.view {
		for _, ip := range addresses(m.ips) {
			if b.cidr.Contains(ip) {
				used[ip.String()] = true
			}
		}
	}
	return object{"id": b.id, "cidr": b.cidr.String(), "usedIpsCount": strconv.Itoa(len(used) + 1)}
}

func hasV6(a *account, n *network) bool {
	return slices.ContainsFunc(n.blocks, func(id string) bool { b := a.blocks[id]; return b != nil && b.isV6() })
}

func (s *Sim) createNetwork(c *call, a *account, body networkBody) reply {
	if body.Name == nil || !knownLocation(body.Location) {
		return invalid("name and a known location are required")
	}
	if r, ok := s.checkNewNetwork(a, body); !ok {
		return r
	}
	n := &network{made: s.make(s.newID()), owner: c.client.ID, name: *body.Name, location: body.Location,
		status: networkReady, created: s.now}
	n.vlan = cmp.Or(body.VLAN, freeVLAN(a, body.Location))
	n.description = ptr.Deref(body.Description, "")
	n.ra = ptr.Deref(body.RA, false)
	var blocks []*block
	for _, one := range body.Blocks {
		b := a.blocks[one.ID]
		if b == nil {
			return s.missing()
		}
		if r, ok := s.assignable(a, n, b, len(blocks)); !ok {
			return r
		}
		blocks = append(blocks, b)
	}
	a.networks[n.id] = n
	s.beginNetworkChange(c, n)
	for _, b := range blocks {
		s.startAssign(c, n, b)
	}
	return reply{status: http.StatusCreated, body: s.networkView(a, n)}
}

func (s *Sim) checkNewNetwork(a *account, body networkBody) (reply, bool) {
	for _, n := range a.networks {
		if n.name == *body.Name {
			return conflict(fmt.Sprintf("A network with the name %q exists.", *body.Name)), false
		}
	}
	if body.VLAN != 0 && usedVLANs(a, body.Location)[body.VLAN] {
		return refuse(s.switches.VLANInUse, fmt.Sprintf("VLAN ID %d is in use in location %s.", body.VLAN,
			body.Location)), false
	}
	if body.VLAN != 0 && (body.VLAN < minVLAN || body.VLAN > maxVLAN) {
		return invalid(fmt.Sprintf("vlanId %d: want %d to %d", body.VLAN, minVLAN, maxVLAN)), false
	}
	return reply{}, true
}

// freeVLAN is the lowest VLAN ID that no network of the location has.
func freeVLAN(a *account, location string) int {
	used := usedVLANs(a, location)
	for vlan := minVLAN; ; vlan++ {
		if !used[vlan] {
			return vlan
		}
	}
}

// usedVLANs are those of the location's networks, public and private: on a server they are all on the same ports.
func usedVLANs(a *account, location string) map[int]bool {
	used := map[int]bool{}
	for _, n := range a.networks {
		if n.location == location {
			used[n.vlan] = true
		}
	}
	for _, n := range a.private {
		if n.location == location {
			used[n.vlan] = true
		}
	}
	return used
}

func (s *Sim) patchNetwork(c *call, n *network, body networkBody) reply {
	s.judgeUse(c, "network "+n.id, n.owner)
	if body.Name != nil && *body.Name != n.name {
		if slices.ContainsFunc(inOrder(c.account.networks), func(o *network) bool { return o.name == *body.Name }) {
			return conflict(fmt.Sprintf("A network with the name %q exists.", *body.Name))
		}
	}
	changesRA := body.RA != nil && *body.RA != n.ra
	if changesRA && !hasV6(c.account, n) {
		return invalid("raEnabled: the network has no IPv6 block")
	}
	if changesRA && n.status != networkReady {
		return conflict("The network is " + n.status + ".")
	}
	n.name = ptr.Deref(body.Name, n.name)
	n.description = ptr.Deref(body.Description, n.description)
	if !changesRA {
		return reply{status: http.StatusOK, body: s.networkView(c.account, n)}
	}
	n.ra = *body.RA
	s.beginNetworkChange(c, n)
	return reply{status: http.StatusAccepted, body: s.networkView(c.account, n)}
}

func (s *Sim) deleteNetwork(c *call, n *network) reply {
	s.judgeUse(c, "network "+n.id, n.owner)
	if len(membersOf(c.account, n)) > 0 || len(n.view) > 0 {
		return conflict("The network has members.")
	}
	if n.status != networkReady {
		return conflict("The network is " + n.status + ".")
	}
	s.removeNetwork(c.account, n)
	return reply{status: http.StatusNoContent}
}

// removeNetwork frees the network's blocks: they go through unassigning to unassigned.
func (s *Sim) removeNetwork(a *account, n *network) {
	delete(a.networks, n.id)
	for _, id := range n.blocks {
		b := a.blocks[id]
		if b == nil || b.status == blockUnassigning {
			continue
		}
		if b.status == blockAssigning {
			s.moveBlock(b, blockErrorAssigning)
		}
		s.moveBlock(b, blockUnassigning)
		s.after(s.latency.Unassign, func() { s.settleUnassign(nil, b, "") })
	}
}

func membersOf(a *account, n *network) []*server {
	var out []*server
	for _, srv := range inOrder(a.servers) {
		if srv.member(n.id) != nil {
			out = append(out, srv)
		}
	}
	return out
}

// beginNetworkChange makes a network BUSY for as long as it changes itself.
func (s *Sim) beginNetworkChange(c *call, n *network) {
	end := s.reserveNetwork(c.client.ID, n, time.Duration(s.latency.NetworkChange))
	s.schedule(end, func() { endNetworkChange(n) })
}

// reserveNetwork makes a network BUSY for a time and returns when that change ends: after those that are
// queued before it.
func (s *Sim) reserveNetwork(by string, n *network, d time.Duration) time.Time {
	start := s.now
	if n.changes > 0 && n.busyUntil.After(start) {
		start = n.busyUntil
	}
	n.changes++
	n.status = networkBusy
	n.busyBy = by
	n.busyUntil = start.Add(d)
	return n.busyUntil
}

func endNetworkChange(n *network) {
	n.changes--
	if n.changes == 0 {
		n.busyBy = ""
		if n.status == networkBusy && !n.edited {
			n.status = networkReady
		}
	}
}

func (s *Sim) assignBlock(c *call, n *network, body idBody) reply {
	b := c.account.blocks[body.ID]
	if b == nil {
		return s.missing()
	}
	s.judgeBlockUse(c, b, GrantAssign)
	s.judgeChange(c, n.busyBy, "network "+n.id)
	if r, ok := s.networkAccepts(n); !ok {
		return r
	}
	if r, ok := s.assignable(c.account, n, b, 0); !ok {
		return r
	}
	s.startAssign(c, n, b)
	return reply{status: http.StatusAccepted, body: networkBlockView(n, b)}
}

// networkAccepts reports whether a network takes a change now.
func (s *Sim) networkAccepts(n *network) (reply, bool) {
	queued := n.status == networkBusy && s.switches.Busy == "queue"
	if n.status == networkReady || queued {
		return reply{}, true
	}
	return conflict("The network is " + n.status + "."), false
}

// assignable reports whether a block can be assigned to a network that is about to get pending others.
func (s *Sim) assignable(a *account, n *network, b *block, pending int) (reply, bool) {
	if b.location != n.location {
		return invalid(fmt.Sprintf("The IP block is in location %s, the network in %s.", b.location, n.location)), false
	}
	if b.status != blockUnassigned {
		return conflict(fmt.Sprintf("The IP block is %s.", b.status)), false
	}
	count := pending
	limit := maxV4Blocks
	if b.isV6() {
		limit = maxV6Blocks
	}
	for _, id := range n.blocks {
		if other := a.blocks[id]; other != nil && other.isV6() == b.isV6() {
			count++
		}
	}
	if count >= limit {
		return refuse(s.switches.OverLimit,
			fmt.Sprintf("The network holds %d blocks of this IP version, the most it can.", limit)), false
	}
	return reply{}, true
}

// startAssign begins to assign a block; how it ends may be decided by a fault.
func (s *Sim) startAssign(c *call, n *network, b *block) {
	s.moveBlock(b, blockAssigning)
	b.resource = n.id
	b.resourceKind = ofNetwork
	n.blocks = append(n.blocks, b.id)
	outcome := c.outcome.Outcome
	end := s.reserveNetwork(c.client.ID, n, time.Duration(s.latency.Assign+c.outcome.Delay))
	s.schedule(end, func() { s.settleAssign(n, b, outcome) })
}

func (s *Sim) settleAssign(n *network, b *block, outcome string) {
	endNetworkChange(n)
	if b.status != blockAssigning || b.resource != n.id {
		return // gone, or edited meanwhile
	}
	switch outcome {
	case OutcomeError:
		s.moveBlock(b, blockErrorAssigning)
	case OutcomeRevert:
		s.moveBlock(b, blockAssigned)
		s.moveBlock(b, blockUnassigning)
		s.settleUnassign(n, b, "")
	default:
		s.moveBlock(b, blockAssigned)
	}
}

func (s *Sim) unassignBlock(c *call, n *network) reply {
	b := c.account.blocks[c.params["ipBlockId"]]
	if b == nil {
		return s.missing()
	}
	s.judgeBlockUse(c, b, GrantUnassign)
	s.judgeChange(c, n.busyBy, "network "+n.id)
	s.judgeForce(c, ForceUnassign)
	if r, ok := s.networkAccepts(n); !ok {
		return r
	}
	if !n.has(b.id) {
		return refuse(s.switches.NotOfNetwork, fmt.Sprintf("The IP block %s is not assigned to the network.", b.id))
	}
	if !slices.Contains(nextBlockStates[b.status], blockUnassigning) {
		return conflict(fmt.Sprintf("The IP block is %s.", b.status))
	}
	if holder := holder(c.account, n, nil, b.cidr.Contains); holder != "" && !c.force {
		return refuse(s.switches.MemberAddress, fmt.Sprintf("Server %s has an address of the IP block.", holder))
	}
	s.judgePublished(c, b)
	s.startUnassign(c, n, b)
	return reply{status: http.StatusAccepted, body: "The specified IP block is being removed from the Public Network."}
}

func (s *Sim) startUnassign(c *call, n *network, b *block) {
	s.moveBlock(b, blockUnassigning)
	outcome := c.outcome.Outcome
	end := s.reserveNetwork(c.client.ID, n, time.Duration(s.latency.Unassign+c.outcome.Delay))
	s.schedule(end, func() {
		endNetworkChange(n)
		s.settleUnassign(n, b, outcome)
	})
}

// settleUnassign ends an unassignment; n is nil when the network is gone.
func (s *Sim) settleUnassign(n *network, b *block, outcome string) {
	if b.status != blockUnassigning {
		return
	}
	if outcome == OutcomeError {
		s.moveBlock(b, blockErrorUnassigning)
		return
	}
	s.moveBlock(b, blockUnassigned)
	b.resource = ""
	b.resourceKind = ""
	if n != nil {
		n.blocks = slices.DeleteFunc(n.blocks, func(id string) bool { return id == b.id })
	}
}

// holder is the first member of the network, other than except, that has such an address.
func holder(a *account, n *network, except *server, such func(netip.Addr) bool) string {
	for _, srv := range membersOf(a, n) {
		if srv != except && slices.ContainsFunc(addresses(srv.member(n.id).ips), such) {
			return srv.id
		}
	}
	return ""
}

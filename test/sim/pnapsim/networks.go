package pnapsim

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// networkBody is the body that makes or changes a public network.
type networkBody struct {
	Name        *string `json:"name"`
	Description *string `json:"description"`
	Location    string  `json:"location"`
	VLAN        int     `json:"vlanId"`
	RA          *bool   `json:"raEnabled"`
	Blocks      []struct {
		ID string `json:"id"`
	} `json:"ipBlocks"`
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
	out := []any{}
	for _, n := range c.account.networksInOrder() {
		if location := c.query.Get("location"); location == "" || location == n.location {
			out = append(out, s.networkView(c.account, n))
		}
	}
	return reply{status: http.StatusOK, body: out}
}

func (s *Sim) getNetwork(c *call) reply {
	n := c.account.networks[c.params["publicNetworkId"]]
	if n == nil {
		return s.missing()
	}
	return reply{status: http.StatusOK, body: s.networkView(c.account, n)}
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
		"createdOn": s.told(n.created), "ipBlocks": blocks, "memberships": members,
	}
	if n.description != "" {
		view["description"] = n.description
	}
	if hasV6(a, n) {
		view["raEnabled"] = n.ra
	}
	return view
}

// networkBlockView shows a block with the number of its used addresses: those of members and the gateway.
func networkBlockView(n *network, b *block) object {
	used := map[string]bool{}
	for _, m := range n.view {
		ips, err := expand(m.ips)
		if err != nil {
			continue
		}
		for _, ip := range ips {
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

func (s *Sim) createNetwork(c *call) reply {
	body, err := decode[networkBody](c)
	if err != nil {
		return invalid(err.Error())
	}
	if body.Name == nil || !knownLocation(body.Location) {
		return invalid("name and a known location are required")
	}
	if r, ok := s.checkNewNetwork(c.account, body); !ok {
		return r
	}
	n := &network{seq: s.nextSeq(), id: s.newID(), owner: c.client.id, name: *body.Name, location: body.Location,
		status: networkReady, created: s.now}
	if n.vlan = body.VLAN; n.vlan == 0 {
		n.vlan = freeVLAN(c.account, body.Location)
	}
	n.description = orEmpty(body.Description)
	n.ra = body.RA != nil && *body.RA
	var blocks []*block
	for _, one := range body.Blocks {
		b := c.account.blocks[one.ID]
		if b == nil {
			return s.missing()
		}
		if r, ok := s.assignable(c.account, n, b, len(blocks)); !ok {
			return r
		}
		blocks = append(blocks, b)
	}
	c.account.networks[n.id] = n
	s.beginNetworkChange(c, n)
	for _, b := range blocks {
		s.startAssign(c, n, b)
	}
	return reply{status: http.StatusCreated, body: s.networkView(c.account, n)}
}

func orEmpty(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

func (s *Sim) checkNewNetwork(a *account, body networkBody) (reply, bool) {
	for _, n := range a.networks {
		if n.name == *body.Name {
			return conflict(fmt.Sprintf("A network with the name %q exists.", *body.Name)), false
		}
		if body.VLAN != 0 && n.location == body.Location && n.vlan == body.VLAN {
			return refuse(s.switches.VLANInUse, fmt.Sprintf("VLAN ID %d is in use in location %s.", body.VLAN,
				body.Location)), false
		}
	}
	if body.VLAN != 0 && (body.VLAN < minVLAN || body.VLAN > maxVLAN) {
		return invalid(fmt.Sprintf("vlanId %d: want %d to %d", body.VLAN, minVLAN, maxVLAN)), false
	}
	return reply{}, true
}

// freeVLAN is the lowest VLAN ID that no network of the location has.
func freeVLAN(a *account, location string) int {
	used := map[int]bool{}
	for _, n := range a.networks {
		if n.location == location {
			used[n.vlan] = true
		}
	}
	for vlan := minVLAN; ; vlan++ {
		if !used[vlan] {
			return vlan
		}
	}
}

func (s *Sim) patchNetwork(c *call) reply {
	n := c.account.networks[c.params["publicNetworkId"]]
	if n == nil {
		return s.missing()
	}
	body, err := decode[networkBody](c)
	if err != nil {
		return invalid(err.Error())
	}
	s.judgeNetworkUse(c, n)
	if body.Name != nil && *body.Name != n.name {
		if slices.ContainsFunc(c.account.networksInOrder(), func(o *network) bool { return o.name == *body.Name }) {
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
	if body.Name != nil {
		n.name = *body.Name
	}
	if body.Description != nil {
		n.description = *body.Description
	}
	if !changesRA {
		return reply{status: http.StatusOK, body: s.networkView(c.account, n)}
	}
	n.ra = *body.RA
	s.beginNetworkChange(c, n)
	return reply{status: http.StatusAccepted, body: s.networkView(c.account, n)}
}

func (s *Sim) deleteNetwork(c *call) reply {
	n := c.account.networks[c.params["publicNetworkId"]]
	if n == nil {
		return s.missing()
	}
	s.judgeNetworkUse(c, n)
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
		s.after(s.latency.Unassign, func() { s.settleUnassign(nil, b, nil) })
	}
}

func membersOf(a *account, n *network) []*server {
	var out []*server
	for _, srv := range a.serversInOrder() {
		if srv.member(n.id) != nil {
			out = append(out, srv)
		}
	}
	return out
}

// ownStatus is READY unless changes are unfinished.
func (n *network) ownStatus() string {
	if n.changes > 0 {
		return networkBusy
	}
	return networkReady
}

// beginNetworkChange makes a network BUSY for as long as it changes itself.
func (s *Sim) beginNetworkChange(c *call, n *network) {
	end := s.reserveNetwork(c.client.id, n, time.Duration(s.latency.NetworkChange))
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

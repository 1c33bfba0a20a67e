package pnapsim

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"
)

func (s *Sim) assignBlock(c *call) reply {
	n := c.account.networks[c.params["publicNetworkId"]]
	if n == nil {
		return s.missing()
	}
	body, err := decode[struct {
		ID string `json:"id"`
	}](c)
	if err != nil {
		return invalid(err.Error())
	}
	b := c.account.blocks[body.ID]
	if b == nil {
		return s.missing()
	}
	s.judgeBlockUse(c, b, GrantAssign)
	s.judgeNetworkChange(c, n)
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
	outcome := c.outcome
	end := s.reserveNetwork(c.client.id, n, s.lasts(s.latency.Assign, outcome))
	s.schedule(end, func() { s.settleAssign(n, b, outcome) })
}

// lasts is how long a change takes, when a fault may hold it up.
func (s *Sim) lasts(d Duration, outcome *Fault) time.Duration {
	if outcome != nil {
		return time.Duration(d + outcome.Delay)
	}
	return time.Duration(d)
}

func (s *Sim) settleAssign(n *network, b *block, outcome *Fault) {
	endNetworkChange(n)
	if b.status != blockAssigning || b.resource != n.id {
		return // gone, or edited meanwhile
	}
	switch outcomeOf(outcome) {
	case OutcomeError:
		s.moveBlock(b, blockErrorAssigning)
	case OutcomeRevert:
		s.moveBlock(b, blockAssigned)
		s.moveBlock(b, blockUnassigning)
		s.settleUnassign(n, b, nil)
	default:
		s.moveBlock(b, blockAssigned)
	}
}

func (s *Sim) unassignBlock(c *call) reply {
	n := c.account.networks[c.params["publicNetworkId"]]
	if n == nil {
		return s.missing()
	}
	b := c.account.blocks[c.params["ipBlockId"]]
	if b == nil {
		return s.missing()
	}
	s.judgeBlockUse(c, b, GrantUnassign)
	s.judgeNetworkChange(c, n)
	s.judgeForce(c, ForceUnassign)
	if r, ok := s.networkAccepts(n); !ok {
		return r
	}
	if !n.has(b.id) {
		return refuse(s.switches.NotOfNetwork, fmt.Sprintf("The IP block %s is not assigned to the network.", b.id))
	}
	if !slices.Contains(nextBlockStates(b.status), blockUnassigning) {
		return conflict(fmt.Sprintf("The IP block is %s.", b.status))
	}
	if holder := addressHolder(c.account, n, b.cidr); holder != "" && !c.force {
		return refuse(s.switches.MemberAddress, fmt.Sprintf("Server %s has an address of the IP block.", holder))
	}
	s.judgePublished(c, b)
	s.startUnassign(c, n, b)
	return reply{status: http.StatusAccepted, body: "The specified IP block is being removed from the Public Network."}
}

func (s *Sim) startUnassign(c *call, n *network, b *block) {
	s.moveBlock(b, blockUnassigning)
	outcome := c.outcome
	end := s.reserveNetwork(c.client.id, n, s.lasts(s.latency.Unassign, outcome))
	s.schedule(end, func() {
		endNetworkChange(n)
		s.settleUnassign(n, b, outcome)
	})
}

// settleUnassign ends an unassignment; n is nil when the network is gone.
func (s *Sim) settleUnassign(n *network, b *block, outcome *Fault) {
	if b.status != blockUnassigning {
		return
	}
	if outcomeOf(outcome) == OutcomeError {
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

// addressHolder is the first member of the network that has an address in cidr.
func addressHolder(a *account, n *network, cidr netip.Prefix) string {
	for _, srv := range membersOf(a, n) {
		ips, err := expand(srv.member(n.id).ips)
		if err == nil && slices.ContainsFunc(ips, cidr.Contains) {
			return srv.id
		}
	}
	return ""
}

package pnapsim

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"
)

// membershipBody is the body that joins a server to a network or changes its addresses there.
type membershipBody struct {
	ID    string   `json:"id"`
	IPs   []string `json:"ips"`
	SLAAC bool     `json:"computeSlaacIp"`
}

func membershipView(a *account, m *membership) object {
	view := object{"id": m.network, "ips": slices.Clone(m.ips), "statusDescription": m.status}
	if n := a.networks[m.network]; n != nil {
		view["vlanId"] = n.vlan
	}
	return view
}

func (s *Sim) joinNetwork(c *call, srv *server, body membershipBody) reply {
	n := c.account.networks[body.ID]
	if n == nil {
		return s.missing()
	}
	s.judgeForce(c, ForceJoin)
	s.judgeChange(c, srv.changing, "server "+srv.id)
	if r, ok := s.serverAccepts(srv); !ok {
		return r
	}
	if r, ok := s.joinable(c, srv, n, body); !ok {
		return r
	}
	m := newMembership(c, n, body)
	srv.members = append(srv.members, m)
	srv.changing = c.client.ID
	s.after(s.latency.Membership, func() { s.settleJoin(c.account, srv, m) })
	return reply{status: http.StatusAccepted, body: membershipView(c.account, m)}
}

// joinable reports whether a server can become a member of a network as the request says.
func (s *Sim) joinable(c *call, srv *server, n *network, body membershipBody) (reply, bool) {
	switch {
	case n.status != networkReady:
		return conflict("The network is " + n.status + "."), false
	case srv.member(n.id) != nil:
		return conflict("The server is a member of the network."), false
	case n.location != srv.location:
		return invalid(fmt.Sprintf("The server is in location %s, the network in %s.", srv.location, n.location)), false
	case len(body.IPs) == 0 && !c.force && !body.SLAAC:
		return invalid("ips: at least one is required"), false
	}
	return s.checkIPs(c, srv, n, body.IPs)
}

func newMembership(c *call, n *network, body membershipBody) *membership {
	return &membership{network: n.id, owner: c.client.ID, ips: append([]string{}, body.IPs...),
		status: membershipInProgress}
}

// serverAccepts reports whether a server takes a change of its networks now.
func (s *Sim) serverAccepts(srv *server) (reply, bool) {
	if srv.status != serverPoweredOn && srv.status != serverPoweredOff {
		return conflict("The server is " + srv.status + "."), false
	}
	if srv.changing != "" {
		return conflict("Another network change of the server is in progress."), false
	}
	return reply{}, true
}

// mayLeave judges that a client ends a membership of a server, and reports whether the server takes that now.
func (s *Sim) mayLeave(c *call, srv *server, network, owner string) (reply, bool) {
	s.judgeUse(c, "the membership of server "+srv.id+" in "+network, owner, srv.owner)
	s.judgeChange(c, srv.changing, "server "+srv.id)
	return s.serverAccepts(srv)
}

// checkIPs holds the addresses of a membership against the network: each in an assigned block, none the
// network's own, none used elsewhere unless forced.
func (s *Sim) checkIPs(c *call, srv *server, n *network, texts []string) (reply, bool) {
	ips, err := expand(texts)
	if err != nil {
		return invalid("ips: " + err.Error()), false
	}
	for _, ip := range ips {
		block := s.blockOf(c.account, n, ip)
		if block == nil {
			return invalid(fmt.Sprintf("ips: %s is in no assigned IP block of the network", ip)), false
		}
		if !usable(block.cidr, ip, s.first31()) {
			return invalid(fmt.Sprintf("ips: %s is reserved in IP block %s", ip, block.cidr)), false
		}
		other := holder(c.account, n, srv, func(used netip.Addr) bool { return used == ip })
		if other != "" && !c.force {
			return conflict(fmt.Sprintf("ips: %s is configured on server %s", ip, other)), false
		}
	}
	return reply{}, true
}

// blockOf is the assigned block of the network that holds an address.
func (s *Sim) blockOf(a *account, n *network, ip netip.Addr) *block {
	for _, id := range n.blocks {
		if b := a.blocks[id]; b != nil && b.status == blockAssigned && b.cidr.Contains(ip) {
			return b
		}
	}
	return nil
}

func (s *Sim) settleJoin(a *account, srv *server, m *membership) {
	srv.changing = ""
	if srv.member(m.network) != m || m.status != membershipInProgress {
		return
	}
	m.status = membershipAssigned
	m.open = true
	s.followView(a, m.network)
}

// followView lets the network's own list follow the servers, a little later.
func (s *Sim) followView(a *account, networkID string) {
	s.after(s.latency.MembershipView, func() {
		n := a.networks[networkID]
		if n == nil {
			return
		}
		n.view = nil
		for _, srv := range membersOf(a, n) {
			if m := srv.member(n.id); m.status == membershipAssigned {
				n.view = append(n.view, memberView{server: srv.id, ips: slices.Clone(m.ips)})
			}
		}
	})
}

func (s *Sim) patchMembership(c *call, srv *server, body membershipBody) reply {
	n := c.account.networks[c.params["publicNetworkId"]]
	m := srv.member(c.params["publicNetworkId"])
	if n == nil || m == nil {
		return s.missing()
	}
	s.judgeForce(c, ForceMembership)
	s.judgeUse(c, "the membership of server "+srv.id+" in network "+m.network, m.owner, srv.owner)
	if r, ok := s.serverAccepts(srv); !ok {
		return r
	}
	if len(body.IPs) == 0 && !c.force {
		return invalid("ips: at least one is required")
	}
	if r, ok := s.checkIPs(c, srv, n, body.IPs); !ok {
		return r
	}
	m.ips = append([]string{}, body.IPs...)
	s.followView(c.account, n.id)
	return reply{status: http.StatusOK, body: membershipView(c.account, m)}
}

func (s *Sim) leaveNetwork(c *call, srv *server) reply {
	m := srv.member(c.params["publicNetworkId"])
	if m == nil {
		return s.missing()
	}
	if r, ok := s.mayLeave(c, srv, "network "+m.network, m.owner); !ok {
		return r
	}
	if n := c.account.networks[m.network]; n != nil && n.status != networkReady {
		return conflict("The network is " + n.status + ".")
	}
	srv.changing = c.client.ID
	s.startLeave(c.account, srv, m, time.Duration(s.latency.Membership))
	return reply{status: http.StatusAccepted, body: "The server is being removed from the specified Public Network."}
}

// startLeave closes the VLAN at once; the membership is gone after a time.
func (s *Sim) startLeave(a *account, srv *server, m *membership, d time.Duration) {
	m.status = membershipInProgress
	m.open = false
	s.schedule(s.now.Add(d), func() {
		srv.changing = ""
		srv.members = slices.DeleteFunc(srv.members, func(other *membership) bool { return other == m })
		s.followView(a, m.network)
	})
}

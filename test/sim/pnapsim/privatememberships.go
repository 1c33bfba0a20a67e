package pnapsim

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
)

// privateMembership is a server's membership in a private network.
type privateMembership struct {
	network string
	owner   string
	ips     []string // single addresses and ranges, as they were given
	dhcp    bool
	status  string
}

// privateMembershipBody is the body that joins a server to a private network or changes its addresses there. IPs that
// are not given are not the same as none.
type privateMembershipBody struct {
	ID   string    `json:"id"`
	IPs  *[]string `json:"ips"`
	DHCP bool      `json:"dhcp"`
}

func (srv *server) privateMember(networkID string) *privateMembership {
	for _, m := range srv.privateMembers {
		if m.network == networkID {
			return m
		}
	}
	return nil
}

func privateMembershipView(a *account, m *privateMembership) object {
	view := object{"id": m.network, "ips": slices.Clone(m.ips), "dhcp": m.dhcp, "statusDescription": m.status}
	if n := a.private[m.network]; n != nil {
		view["vlanId"] = n.vlan
	}
	return view
}

// withoutConflict is a refusal of an operation for which the document lists no 409.
func withoutConflict(r reply) reply {
	if r.status != http.StatusConflict {
		return r
	}
	faults, _ := r.body.(object)["validationErrors"].([]string)
	return invalid(faults...)
}

func (s *Sim) joinPrivateNetwork(c *call, srv *server, body privateMembershipBody) reply {
	n := c.account.private[body.ID]
	if n == nil {
		return s.missing()
	}
	s.judgeForce(c, ForceJoin)
	s.judgeChange(c, srv.changing, "server "+srv.id)
	if r, ok := s.serverAccepts(srv); !ok {
		return withoutConflict(r)
	}
	m, r, ok := s.newPrivateMembership(c, srv, n, body)
	if !ok {
		return withoutConflict(r)
	}
	srv.privateMembers = append(srv.privateMembers, m)
	srv.changing = c.client.ID
	s.after(s.latency.Membership, func() {
		srv.changing = ""
		m.status = membershipAssigned
	})
	return reply{status: http.StatusAccepted, body: privateMembershipView(c.account, m)}
}

// newPrivateMembership makes a membership, with the next free address where none are given.
func (s *Sim) newPrivateMembership(c *call, srv *server, n *privateNetwork,
	body privateMembershipBody) (*privateMembership, reply, bool) {
	m := &privateMembership{network: n.id, owner: c.client.ID, ips: []string{}, dhcp: body.DHCP,
		status: membershipInProgress}
	switch {
	case n.status != networkReady:
		return nil, conflict("The network is " + n.status + "."), false
	case srv.privateMember(n.id) != nil:
		return nil, conflict("The server is a member of the network."), false
	case n.location != srv.location:
		return nil, invalid(fmt.Sprintf("The server is in location %s, the network in %s.", srv.location, n.location)),
			false
	case body.DHCP && srv.networkType != networkTypePrivate:
		return nil, invalid("dhcp: only for a server with networkType " + networkTypePrivate), false
	case body.DHCP && body.IPs != nil && len(*body.IPs) > 0:
		return nil, invalid("ips: none with DHCP"), false
	case body.DHCP:
		return m, reply{}, true
	case body.IPs == nil && n.cidr.IsValid():
		free := freePrivateAddress(c.account, n)
		body.IPs = &free
	}
	r, ok := s.setPrivateIPs(c, srv, n, m, body)
	return m, r, ok
}

// freePrivateAddress is the next address of a network that no server has; none when all are used.
func freePrivateAddress(a *account, n *privateNetwork) []string {
	for ip := n.cidr.Addr(); n.cidr.Contains(ip); ip = ip.Next() {
		if usable(n.cidr, ip, true) && privateHolder(a, n, nil, ip) == "" {
			return []string{ip.String()}
		}
	}
	return []string{}
}

// privateHolder is the server, other than except, that has an address in a private network.
func privateHolder(a *account, n *privateNetwork, except *server, ip netip.Addr) string {
	for _, srv := range inOrder(a.servers) {
		if m := srv.privateMember(n.id); m != nil && srv != except && slices.Contains(addresses(m.ips), ip) {
			return srv.id
		}
	}
	return ""
}

// setPrivateIPs gives a membership the addresses that a request names.
func (s *Sim) setPrivateIPs(c *call, srv *server, n *privateNetwork, m *privateMembership,
	body privateMembershipBody) (reply, bool) {
	if (body.IPs == nil || len(*body.IPs) == 0) && !c.force {
		return invalid("ips: at least one is required, and must be free"), false
	}
	m.ips = []string{}
	if body.IPs != nil {
		m.ips = append(m.ips, *body.IPs...)
	}
	ips, err := expand(m.ips)
	if err != nil {
		return invalid("ips: " + err.Error()), false
	}
	for _, ip := range ips {
		if !n.cidr.IsValid() || !n.cidr.Contains(ip) {
			return invalid(fmt.Sprintf("ips: %s is not in the network", ip)), false
		}
		if !usable(n.cidr, ip, true) && !c.force {
			return invalid(fmt.Sprintf("ips: %s is reserved in the network", ip)), false
		}
		if other := privateHolder(c.account, n, srv, ip); other != "" && !c.force {
			return conflict(fmt.Sprintf("ips: %s is configured on server %s", ip, other)), false
		}
	}
	return reply{}, true
}

func (s *Sim) patchPrivateMembership(c *call, srv *server, body privateMembershipBody) reply {
	n := c.account.private[c.params["privateNetworkId"]]
	m := srv.privateMember(c.params["privateNetworkId"])
	if n == nil || m == nil {
		return s.missing()
	}
	s.judgeForce(c, ForceMembership)
	s.judgeUse(c, "the membership of server "+srv.id+" in private network "+m.network, m.owner, srv.owner)
	if r, ok := s.serverAccepts(srv); !ok {
		return r
	}
	changed := *m
	if m.dhcp {
		return conflict("The server gets its addresses by DHCP.")
	}
	if r, ok := s.setPrivateIPs(c, srv, n, &changed, body); !ok {
		return r
	}
	*m = changed
	return reply{status: http.StatusOK, body: privateMembershipView(c.account, m)}
}

func (s *Sim) leavePrivateNetwork(c *call, srv *server) reply {
	m := srv.privateMember(c.params["privateNetworkId"])
	if m == nil {
		return s.missing()
	}
	if r, ok := s.mayLeave(c, srv, "private network "+m.network, m.owner); !ok {
		return r
	}
	srv.changing = c.client.ID
	m.status = membershipInProgress
	s.after(s.latency.Membership, func() {
		srv.changing = ""
		srv.privateMembers = slices.DeleteFunc(srv.privateMembers,
			func(other *privateMembership) bool { return other == m })
	})
	return reply{status: http.StatusAccepted, body: "The server is being removed from the specified private network."}
}

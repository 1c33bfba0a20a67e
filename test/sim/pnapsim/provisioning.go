package pnapsim

import "errors"

// configurationBody is what a new server is to be connected to.
type configurationBody struct {
	Gateway string `json:"gatewayAddress"`
	Private struct {
		Networks []privateMembershipBody `json:"privateNetworks"`
	} `json:"privateNetworkConfiguration"`
	Public struct {
		Networks []membershipBody `json:"publicNetworks"`
	} `json:"publicNetworkConfiguration"`
	Blocks struct {
		Kind   string   `json:"configurationType"`
		Blocks []idBody `json:"ipBlocks"`
	} `json:"ipBlocksConfiguration"`
}

// Ways to the block of a new server (BMC API, schema IpBlocksConfiguration).
const (
	blocksUser = "USER_DEFINED"
	blocksNone = "NONE"
)

// connect connects a new server to networks and a block, which are there for it once it is powered on.
func (s *Sim) connect(c *call, srv *server, body serverBody) (reply, bool) {
	if r, ok := s.connectPrivate(c, srv, body.Network.Private.Networks); !ok {
		return r, false
	}
	if r, ok := s.connectPublic(c, srv, body.Network.Public.Networks); !ok {
		return r, false
	}
	if r, ok := s.connectBlock(c, srv, body.Network); !ok { // last: it takes or buys one
		return r, false
	}
	if body.Network.Gateway != "" {
		srv.gateway = body.Network.Gateway
	}
	if srv.networkType == networkTypeUser {
		srv.networkType = srv.connections()
	}
	return reply{}, true
}

// connections is the network type of a server by what it is connected to.
func (srv *server) connections() string {
	public := len(srv.members)+len(srv.ownBlocks) > 0
	switch {
	case public && len(srv.privateMembers) > 0:
		return networkTypeBoth
	case public:
		return networkTypePublic
	case len(srv.privateMembers) > 0:
		return networkTypePrivate
	default:
		return networkTypeNone
	}
}

func (s *Sim) connectPrivate(c *call, srv *server, bodies []privateMembershipBody) (reply, bool) {
	for _, one := range bodies {
		n := c.account.private[one.ID]
		if n == nil {
			return s.missing(), false
		}
		m, r, ok := s.newPrivateMembership(c, srv, n, one)
		if !ok {
			return r, false
		}
		srv.privateIPs = []string{} // the user's own networks stand in the place of the default one
		srv.privateMembers = append(srv.privateMembers, m)
	}
	return reply{}, true
}

func (s *Sim) connectPublic(c *call, srv *server, bodies []membershipBody) (reply, bool) {
	for _, one := range bodies {
		n := c.account.networks[one.ID]
		if n == nil {
			return s.missing(), false
		}
		if r, ok := s.joinable(c, srv, n, one); !ok {
			return r, false
		}
		srv.members = append(srv.members, newMembership(c, n, one))
	}
	return reply{}, true
}

func (s *Sim) connectBlock(c *call, srv *server, body configurationBody) (reply, bool) {
	switch {
	case body.Blocks.Kind == blocksNone:
		return reply{}, true
	case body.Blocks.Kind != blocksUser:
		return s.buyOwnBlock(c, srv)
	}
	for _, one := range body.Blocks.Blocks {
		b := c.account.blocks[one.ID]
		if b == nil {
			return s.missing(), false
		}
		s.judgeBlockUse(c, b, GrantAssign)
		if r, ok := attachable(c.account, srv, b); !ok {
			return r, false
		}
		s.beginAttach(srv, b)
		if !b.isV6() {
			srv.gateway = gatewayOf(b.cidr, s.first31()).String()
		}
	}
	return reply{}, true
}

// attachable reports whether a server can have a block of its own.
func attachable(a *account, srv *server, b *block) (reply, bool) {
	if b.location != srv.location {
		return invalid("The IP block is in location " + b.location + ", the server in " + srv.location + "."), false
	}
	if b.status != blockUnassigned {
		return conflict("The IP block is " + b.status + "."), false
	}
	for _, id := range srv.ownBlocks {
		if other := a.blocks[id]; other != nil && other.isV6() == b.isV6() {
			return conflict("The server has an IP block of this IP version."), false
		}
	}
	return reply{}, true
}

func (s *Sim) beginAttach(srv *server, b *block) {
	s.moveBlock(b, blockAssigning)
	b.resource = srv.id
	b.resourceKind = ofServer
	srv.ownBlocks = append(srv.ownBlocks, b.id)
}

func (s *Sim) endAttach(a *account, id string) {
	if b := a.blocks[id]; b != nil && b.status == blockAssigning {
		s.moveBlock(b, blockAssigned)
	}
}

// install ends in a server that is powered on, with all that it is connected to.
func (s *Sim) install(a *account, srv *server) {
	srv.status = serverCreating
	s.after(s.latency.ServerCreate, func() {
		for _, m := range srv.privateMembers {
			m.status = membershipAssigned
		}
		for _, m := range srv.members {
			s.settleJoin(a, srv, m)
		}
		for _, id := range srv.ownBlocks {
			s.endAttach(a, id)
		}
		settleServer(srv, serverCreating)
	})
}

// boot is how a new server boots. Its native VLAN is not modelled before it is changed.
func boot(os string, body ipxeBody) (ipxeBody, error) {
	switch {
	case os != osIPXE && body.URL != "":
		return ipxeBody{}, errors.New("iPXE is for the operating system " + osIPXE)
	case os == osIPXE && body.URL == "":
		return ipxeBody{}, errors.New("the operating system " + osIPXE + " needs the URL of a script")
	default:
		return ipxeBody{URL: body.URL}, nil
	}
}

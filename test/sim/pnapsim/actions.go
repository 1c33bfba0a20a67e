package pnapsim

import (
	"net/http"
	"slices"
	"time"
)

// act does an action on a server that is in one of the given states.
func (s *Sim) act(c *call, from []string, then func(*server) reply) reply {
	srv := c.account.servers[c.params["serverId"]]
	if srv == nil {
		return s.missing()
	}
	s.judgeServerUse(c, srv)
	if !slices.Contains(from, srv.status) {
		return conflict("The server is " + srv.status + ".")
	}
	return then(srv)
}

func result(text string) reply { return reply{status: http.StatusOK, body: object{"result": text}} }

func (s *Sim) powerOn(c *call) reply {
	return s.act(c, []string{serverPoweredOff}, func(srv *server) reply {
		srv.status = serverPoweredOn
		return result("Powering on server.")
	})
}

func (s *Sim) powerOff(c *call) reply {
	return s.act(c, []string{serverPoweredOn}, func(srv *server) reply {
		srv.status = serverPoweredOff
		return result("Powering off server.")
	})
}

func (s *Sim) reboot(c *call) reply {
	return s.act(c, []string{serverPoweredOn}, func(srv *server) reply {
		srv.status = serverRebooting
		s.after(s.latency.ServerAction, func() { settleServer(srv, serverRebooting) })
		return result("Rebooting server.")
	})
}

func (s *Sim) resetServer(c *call) reply {
	return s.act(c, []string{serverPoweredOn, serverPoweredOff}, func(srv *server) reply {
		srv.status = serverResetting
		s.after(s.latency.ServerAction, func() { settleServer(srv, serverResetting) })
		return result("Resetting server.")
	})
}

func (s *Sim) reserveServer(c *call) reply {
	return s.act(c, []string{serverPoweredOn, serverPoweredOff}, func(srv *server) reply {
		body, err := decode[struct {
			Pricing string `json:"pricingModel"`
		}](c)
		if err != nil {
			return invalid(err.Error())
		}
		if srv.reservation != "" {
			return conflict("The server has a reservation.")
		}
		srv.reservation = s.newID()
		srv.pricing = body.Pricing
		return reply{status: http.StatusOK, body: s.serverView(c.account, srv)}
	})
}

// provision reinstalls a reserved server; it keeps its ID.
func (s *Sim) provision(c *call) reply {
	return s.act(c, []string{serverReserved}, func(srv *server) reply {
		body, err := decode[serverBody](c)
		if err != nil {
			return invalid(err.Error())
		}
		srv.hostname = body.Hostname
		srv.os = body.OS
		srv.status = serverCreating
		s.after(s.latency.ServerCreate, func() { settleServer(srv, serverCreating) })
		return reply{status: http.StatusAccepted, body: s.serverView(c.account, srv)}
	})
}

func endable() []string { return []string{serverPoweredOn, serverPoweredOff, serverError} }

func (s *Sim) deprovision(c *call) reply {
	return s.act(c, endable(), func(srv *server) reply {
		body, err := decode[struct {
			DeleteBlocks bool `json:"deleteIpBlocks"`
		}](c)
		if err != nil {
			return invalid(err.Error())
		}
		if srv.changing != "" {
			return conflict("A network change of the server is in progress.")
		}
		s.startEnd(c.account, srv, body.DeleteBlocks)
		return reply{status: http.StatusAccepted,
			body: "The server has been deprovisioned and related network setup is being updated."}
	})
}

// deleteServer is the deprecated way: the server's own blocks always go with it.
func (s *Sim) deleteServer(c *call) reply {
	return s.act(c, endable(), func(srv *server) reply {
		if srv.changing != "" {
			return conflict("A network change of the server is in progress.")
		}
		s.startEnd(c.account, srv, true)
		return reply{status: http.StatusOK, body: object{"result": "Server has been deleted.", "serverId": srv.id}}
	})
}

// startEnd takes a server away from its networks; then it is gone, or reserved when it has a reservation.
func (s *Sim) startEnd(a *account, srv *server, deleteBlocks bool) {
	srv.status = serverDeleting
	for _, m := range srv.members {
		s.startLeave(a, srv, m, time.Duration(s.latency.ServerAction))
	}
	s.after(s.latency.ServerAction, func() { s.endServer(a, srv, deleteBlocks) })
}

func (s *Sim) endServer(a *account, srv *server, deleteBlocks bool) {
	for _, id := range srv.ownBlocks {
		b := a.blocks[id]
		if b == nil {
			continue
		}
		s.releaseOwn(b)
		if deleteBlocks {
			s.removeBlock(a, b)
		}
	}
	srv.ownBlocks = nil
	srv.publicIPs = nil
	srv.gateway = ""
	if srv.reservation != "" {
		srv.status = serverReserved
		srv.privateIPs = []string{}
		return
	}
	delete(a.servers, srv.id)
	s.stock[srv.location]--
}

// releaseOwn takes a block from its server through the states to unassigned.
func (s *Sim) releaseOwn(b *block) {
	if b.status == blockAssigning {
		s.moveBlock(b, blockAssigned)
	}
	if b.status != blockUnassigning {
		s.moveBlock(b, blockUnassigning)
	}
	s.moveBlock(b, blockUnassigned)
	b.resource = ""
	b.resourceKind = ""
}

func (s *Sim) attachBlock(c *call) reply {
	srv := c.account.servers[c.params["serverId"]]
	if srv == nil {
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
	s.judgeServerChange(c, srv)
	if r, ok := s.serverAccepts(srv); !ok {
		return r
	}
	if b.location != srv.location {
		return invalid("The IP block is in location " + b.location + ", the server in " + srv.location + ".")
	}
	if b.status != blockUnassigned {
		return conflict("The IP block is " + b.status + ".")
	}
	for _, id := range srv.ownBlocks {
		if other := c.account.blocks[id]; other != nil && other.isV6() == b.isV6() {
			return conflict("The server has an IP block of this IP version.")
		}
	}
	s.moveBlock(b, blockAssigning)
	b.resource = srv.id
	b.resourceKind = ofServer
	srv.ownBlocks = append(srv.ownBlocks, b.id)
	srv.changing = c.client.id
	s.after(s.latency.Assign, func() {
		srv.changing = ""
		if b.status == blockAssigning {
			s.moveBlock(b, blockAssigned)
		}
	})
	return reply{status: http.StatusAccepted, body: object{"id": b.id, "vlanId": 10}}
}

func (s *Sim) detachBlock(c *call) reply {
	srv := c.account.servers[c.params["serverId"]]
	if srv == nil {
		return s.missing()
	}
	b := c.account.blocks[c.params["ipBlockId"]]
	if b == nil || !slices.Contains(srv.ownBlocks, b.id) {
		return s.missing()
	}
	body, err := decode[struct {
		DeleteBlocks bool `json:"deleteIpBlocks"`
	}](c)
	if err != nil {
		return invalid(err.Error())
	}
	s.judgeBlockUse(c, b, GrantUnassign)
	s.judgeServerChange(c, srv)
	if r, ok := s.serverAccepts(srv); !ok {
		return r
	}
	if !slices.Contains(nextBlockStates(b.status), blockUnassigning) {
		return conflict("The IP block is " + b.status + ".")
	}
	s.moveBlock(b, blockUnassigning)
	srv.changing = c.client.id
	s.after(s.latency.Unassign, func() {
		srv.changing = ""
		srv.ownBlocks = slices.DeleteFunc(srv.ownBlocks, func(id string) bool { return id == b.id })
		s.settleUnassign(nil, b, nil)
		if body.DeleteBlocks && b.status == blockUnassigned {
			s.removeBlock(c.account, b)
		}
	})
	return reply{status: http.StatusAccepted, body: "The specified IP block is being removed from the server."}
}

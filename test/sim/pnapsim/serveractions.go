package pnapsim

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
)

// mayAct reports whether a server is in one of the states that allow an action.
func (s *Sim) mayAct(c *call, srv *server, from ...string) (reply, bool) {
	s.judgeUse(c, "server "+srv.id, srv.owner)
	if !slices.Contains(from, srv.status) {
		return conflict("The server is " + srv.status + "."), false
	}
	return reply{}, true
}

// action is the operation that moves a server to a state.
func action(name, to, result string, from ...string) operation {
	do := func(s *Sim, c *call, srv *server) reply {
		if r, ok := s.mayAct(c, srv, from...); !ok {
			return r
		}
		return s.act(srv, to, result)
	}
	return operation{bmcAPI, http.MethodPost, "/servers/{serverId}/actions/" + name, on((*call).server, do)}
}

// act moves a server to a state; a reboot or reset ends later.
func (s *Sim) act(srv *server, to, result string) reply {
	srv.status = to
	if to == serverRebooting || to == serverResetting {
		s.after(s.latency.ServerAction, func() { settleServer(srv, to) })
	}
	return reply{status: http.StatusOK, body: object{"result": result}}
}

// rebootBody is the body of a reboot, which may be missing.
type rebootBody struct {
	Kind string `json:"bootType"`
	URL  string `json:"ipxeUrl"`
}

func (s *Sim) rebootServer(c *call, srv *server, body rebootBody) reply {
	if r, ok := s.mayAct(c, srv, serverPoweredOn); !ok {
		return r
	}
	switch {
	case body.Kind != "IPXE" && body.URL != "":
		return invalid("ipxeUrl: only with bootType IPXE")
	case body.Kind == "IPXE" && body.URL == "" && srv.ipxe.URL == "":
		return invalid("ipxeUrl: the server has none stored")
	case body.URL != "":
		srv.ipxe.URL = body.URL
	}
	return s.act(srv, serverRebooting, "Rebooting server.")
}

func (s *Sim) reserveServer(c *call, srv *server, body serverBody) reply {
	if r, ok := s.mayAct(c, srv, serverPoweredOn, serverPoweredOff); !ok {
		return r
	}
	if srv.reservation != "" {
		return conflict("The server has a reservation.")
	}
	srv.reservation = s.newID()
	srv.pricing = body.Pricing
	return reply{status: http.StatusOK, body: s.serverView(c.account, srv)}
}

// transferBody is the body that moves a reservation.
type transferBody struct {
	Target string `json:"targetServerId"`
}

// transferReservation moves a reservation to another server, which pays by the hour until then. Both name each other.
func (s *Sim) transferReservation(c *call, srv *server, body transferBody) reply {
	target := c.account.servers[body.Target]
	if target == nil {
		return s.missing()
	}
	s.judgeUse(c, "server "+target.id, target.owner)
	if r, ok := s.mayAct(c, srv, serverReserved, serverError); !ok {
		return r
	}
	if target.location != srv.location || target.kind != srv.kind {
		return invalid("targetServerId: the servers differ in location or type")
	}
	running := target.status == serverPoweredOn || target.status == serverPoweredOff
	if srv.reservation == "" || target.reservation != "" || !running {
		return conflict("A reservation moves to a provisioned server that has none.")
	}
	target.reservation = srv.reservation
	target.pricing = srv.pricing
	target.supersedes = srv.id
	srv.reservation = ""
	srv.pricing = pricingHourly
	srv.supersededBy = target.id
	return reply{status: http.StatusOK, body: s.serverView(c.account, srv)}
}

// provision installs a reserved server again; it keeps its ID.
func (s *Sim) provision(c *call, srv *server, body serverBody) reply {
	if r, ok := s.mayAct(c, srv, serverReserved); !ok {
		return r
	}
	tags, faults := s.resolveTags(c.account, body.Tags)
	ipxe, err := boot(body.OS, body.OSConfiguration.IPXE)
	if err != nil {
		faults = append(faults, "osConfiguration: "+err.Error())
	}
	if faults != nil {
		return invalid(faults...)
	}
	next := *srv
	next.hostname = body.Hostname
	next.description = body.Description
	next.os = body.OS
	next.networkType = cmp.Or(body.NetworkType, srv.networkType)
	next.tags = tags
	next.ipxe = ipxe
	next.addPrivateIP()
	if r, ok := s.connect(c, &next, body); !ok {
		return r
	}
	*srv = next
	s.install(c.account, srv)
	return reply{status: http.StatusAccepted, body: s.serverView(c.account, srv)}
}

// osIPXE is the operating system of a server that boots what a script says.
const osIPXE = "ipxe"

// ipxeBody is how a server boots a script.
type ipxeBody struct {
	URL    string      `json:"url"`
	Native *nativeVLAN `json:"nativeVlanConfiguration"`
}

// nativeVLAN is the VLAN over which the script is fetched, with the address that DHCP gives there.
type nativeVLAN struct {
	VLAN    int    `json:"vlanId"`
	Address string `json:"staticDhcpAddressV4"`
	status  string
}

func (b ipxeBody) view() object {
	view := object{"url": b.URL}
	if b.Native != nil {
		view["nativeVlanConfiguration"] = object{"vlanId": b.Native.VLAN, "staticDhcpAddressV4": b.Native.Address,
			"status": b.Native.status}
	}
	return view
}

// putIPXE changes the script at once, the native VLAN later.
func (s *Sim) putIPXE(c *call, srv *server, body ipxeBody) reply {
	s.judgeUse(c, "server "+srv.id, srv.owner)
	if srv.os != osIPXE {
		return conflict("The operating system of the server is " + srv.os + ", not " + osIPXE + ".")
	}
	if r, ok := s.serverAccepts(srv); !ok {
		return r
	}
	if body.Native == nil {
		srv.ipxe = body
		return reply{status: http.StatusOK, body: srv.ipxe.view()}
	}
	if r, ok := s.setNative(c, srv, body.Native); !ok {
		return r
	}
	srv.ipxe = body
	srv.changing = c.client.ID
	s.after(s.latency.Membership, func() {
		srv.changing = ""
		body.Native.status = membershipAssigned
	})
	return reply{status: http.StatusAccepted, body: srv.ipxe.view()}
}

// setNative checks a native VLAN, and gives it the first free address where none is named.
func (s *Sim) setNative(c *call, srv *server, native *nativeVLAN) (reply, bool) {
	free := s.freeOnVLAN(c.account, srv, native.VLAN)
	if len(free) == 0 {
		return invalid(fmt.Sprintf("vlanId %d: no network of the server has it and a free address", native.VLAN)), false
	}
	if native.Address == "" {
		native.Address = free[0]
	}
	if !slices.Contains(free, native.Address) {
		return invalid(fmt.Sprintf("staticDhcpAddressV4 %s: not free on VLAN %d", native.Address, native.VLAN)), false
	}
	native.status = membershipInProgress
	return reply{}, true
}

// freeOnVLAN are the free IPv4 addresses of the networks and own blocks of a server that are on a VLAN.
func (s *Sim) freeOnVLAN(a *account, srv *server, vlan int) []string {
	var free []string
	for _, m := range srv.members {
		n := a.networks[m.network]
		if n == nil || n.vlan != vlan {
			continue
		}
		for _, id := range n.blocks {
			free = append(free, s.usableOf(a, id)...)
		}
		free = slices.DeleteFunc(free, func(text string) bool {
			return holder(a, n, nil, func(ip netip.Addr) bool { return ip.String() == text }) != ""
		})
	}
	if vlan == ownVLAN {
		for _, id := range srv.ownBlocks {
			free = append(free, s.usableOf(a, id)...)
		}
	}
	return free
}

// usableOf are the addresses that a host may have in an assigned IPv4 block.
func (s *Sim) usableOf(a *account, id string) []string {
	if b := a.blocks[id]; b != nil && b.status == blockAssigned {
		return usableAddresses(b.cidr, s.first31())
	}
	return nil
}

package pnapsim

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"
)

// serverBody is the body that makes a server; what the simulator does not model is ignored.
type serverBody struct {
	Hostname    string           `json:"hostname"`
	Description string           `json:"description"`
	OS          string           `json:"os"`
	Type        string           `json:"type"`
	Location    string           `json:"location"`
	NetworkType string           `json:"networkType"`
	Pricing     string           `json:"pricingModel"`
	Reservation string           `json:"reservationId"`
	Tags        []assignmentBody `json:"tags"`
	// Network is what it is connected to.
	Network configurationBody `json:"networkConfiguration"`
	// OSConfiguration is that of the operating system.
	OSConfiguration struct {
		IPXE ipxeBody `json:"iPXE"`
	} `json:"osConfiguration"`
}

// pricingHourly is how a server is paid that has no reservation.
const pricingHourly = "HOURLY"

// ownVLAN is the VLAN of a server's own blocks.
const ownVLAN = 10

// Network types of a server (BMC API, property "networkType").
const (
	networkTypeBoth    = "PUBLIC_AND_PRIVATE"
	networkTypePrivate = "PRIVATE_ONLY"
	networkTypePublic  = "PUBLIC_ONLY"
	networkTypeNone    = "NONE"
	networkTypeUser    = "USER_DEFINED"
)

func (s *Sim) listServers(c *call) reply {
	passes, faults := s.tagFilter(c)
	if faults != nil {
		return invalid(faults...)
	}
	places := c.query["location"]
	return s.lagging(c, s.latency.ServerListLag,
		listing(inOrder(c.account.servers),
			func(srv *server) bool {
				return passes(srv.tags) && (len(places) == 0 || slices.Contains(places, srv.location))
			},
			func(srv *server) object { return s.serverView(c.account, srv) }))
}

func (s *Sim) serverView(a *account, srv *server) object {
	own := []any{}
	networks := []any{}
	private := []any{}
	for _, id := range srv.ownBlocks {
		own = append(own, object{"id": id, "vlanId": ownVLAN})
	}
	for _, m := range srv.members {
		networks = append(networks, membershipView(a, m))
	}
	for _, m := range srv.privateMembers {
		private = append(private, privateMembershipView(a, m))
	}
	configuration := object{
		"privateNetworkConfiguration": object{"privateNetworks": private},
		"ipBlocksConfiguration":       object{"ipBlocks": own},
		"publicNetworkConfiguration":  object{"publicNetworks": networks},
	}
	optional(configuration, "gatewayAddress", srv.gateway)
	view := object{
		"id": srv.id, "status": srv.status, "hostname": srv.hostname, "os": srv.os, "type": srv.kind,
		"location": srv.location,
		"cpu":      "E-2276G", "cpuCount": 1, "coresPerCpu": 6, "cpuFrequency": 3.8, "ram": "64GB RAM",
		"storage":            "1x 960GB NVMe",
		"privateIpAddresses": srv.privateAddresses(), "publicIpAddresses": s.publicAddresses(a, srv),
		"pricingModel": srv.pricing, "networkType": srv.networkType, "tags": assignmentsView(a, srv.tags),
		"provisionedOn": s.timestamp(srv.created), "networkConfiguration": configuration,
		"storageConfiguration": object{"rootPartition": object{"raid": "NO_RAID", "size": -1}},
	}
	optional(view, "description", srv.description)
	optional(view, "reservationId", srv.reservation)
	optional(view, "supersedes", srv.supersedes)
	optional(view, "supersededBy", srv.supersededBy)
	if srv.ipxe.URL != "" {
		view["osConfiguration"] = object{"iPXE": srv.ipxe.view()}
	}
	return view
}

// privateAddresses are the server's own, and those in private networks.
func (srv *server) privateAddresses() []string {
	out := append([]string{}, srv.privateIPs...)
	for _, m := range srv.privateMembers {
		for _, ip := range addresses(m.ips) {
			out = append(out, ip.String())
		}
	}
	return out
}

// publicAddresses are all usable addresses of the server's own blocks, and its addresses in public networks.
func (s *Sim) publicAddresses(a *account, srv *server) []string {
	out := append([]string{}, srv.publicIPs...)
	for _, id := range srv.ownBlocks {
		if b := a.blocks[id]; b != nil {
			out = append(out, usableAddresses(b.cidr, s.first31())...)
		}
	}
	for _, m := range srv.members {
		for _, ip := range addresses(m.ips) {
			out = append(out, ip.String())
		}
	}
	return out
}

func (s *Sim) createServer(c *call, a *account, body serverBody) reply {
	tags, faults := s.resolveTags(a, body.Tags)
	if !knownLocation(body.Location) {
		faults = append(faults, fmt.Sprintf("location %q: want one of %s", body.Location,
			strings.Join(locations(), ", ")))
	}
	switch body.NetworkType {
	case "":
		body.NetworkType = networkTypeBoth
	case networkTypeBoth, networkTypePrivate, networkTypePublic, networkTypeUser:
	case networkTypeNone:
		if !c.force {
			faults = append(faults, "networkType NONE needs force")
		}
	default:
		faults = append(faults, fmt.Sprintf("networkType %q is unknown", body.NetworkType))
	}
	ipxe, err := boot(body.OS, body.OSConfiguration.IPXE)
	if err != nil {
		faults = append(faults, "osConfiguration: "+err.Error())
	}
	if faults != nil {
		return invalid(faults...)
	}
	if len(a.servers) >= a.maxServers {
		return s.overQuota(quotaServers)
	}
	if s.stock[body.Location] >= s.cfg.ServerStock {
		return refuse(http.StatusNotAcceptable, fmt.Sprintf("No servers of type %s are available in location %s.",
			body.Type, body.Location))
	}
	srv := s.newServer(c.client.ID, body)
	srv.tags = tags
	srv.ipxe = ipxe
	if r, ok := s.connect(c, srv, body); !ok {
		return r
	}
	a.servers[srv.id] = srv
	s.stock[srv.location]++
	s.install(a, srv)
	return reply{status: http.StatusOK, body: s.serverView(a, srv)}
}

func (s *Sim) newServer(owner string, body serverBody) *server {
	srv := &server{
		made: s.make(s.newID()), owner: owner, hostname: body.Hostname, description: body.Description,
		os: body.OS, kind: body.Type, location: body.Location, networkType: body.NetworkType,
		reservation: body.Reservation,
		pricing:     cmp.Or(body.Pricing, pricingHourly), privateIPs: []string{}, created: s.now,
	}
	srv.addPrivateIP()
	return srv
}

// addPrivateIP gives a server an address in the private network that it gets without asking for one, which is not
// modelled.
func (srv *server) addPrivateIP() {
	if srv.networkType == networkTypeBoth || srv.networkType == networkTypePrivate {
		srv.privateIPs = []string{fmt.Sprintf("10.0.%d.%d", srv.seq/250, 4+srv.seq%250)}
	}
}

// buyOwnBlock gives a new server with public network its own /31.
func (s *Sim) buyOwnBlock(c *call, srv *server) (reply, bool) {
	if srv.networkType != networkTypeBoth && srv.networkType != networkTypePublic {
		return reply{}, true
	}
	cidr, ok := s.pool.buy(srv.location, 31, false, s.now, time.Duration(s.latency.Quarantine))
	if !ok {
		return refuse(http.StatusNotAcceptable, "No IP blocks of size /31 are available in location "+srv.location+"."),
			false
	}
	b := &block{
		made: s.make(s.newID()), owner: c.client.ID, location: srv.location, cidr: cidr,
		status: blockAssigned, resource: srv.id, resourceKind: ofServer, system: true, created: s.now,
	}
	c.account.blocks[b.id] = b
	c.account.money.bought(b, s.now)
	srv.ownBlocks = []string{b.id}
	srv.gateway = gatewayOf(cidr, s.first31()).String()
	return reply{}, true
}

// settleServer ends the current action of a server, unless its status has changed meanwhile: it is powered on.
func settleServer(srv *server, doing string) {
	if srv.status == doing {
		srv.status = serverPoweredOn
	}
}

func (s *Sim) patchServer(c *call, srv *server, body changeBody) reply {
	s.judgeUse(c, "server "+srv.id, srv.owner)
	srv.hostname = ptr.Deref(body.Hostname, srv.hostname)
	srv.description = ptr.Deref(body.Description, srv.description)
	return reply{status: http.StatusOK, body: s.serverView(c.account, srv)}
}

func (s *Sim) putServerTags(c *call, srv *server, bodies []assignmentBody) reply {
	s.judgeUse(c, "server "+srv.id, srv.owner)
	tags, faults := s.resolveTags(c.account, bodies)
	if faults != nil {
		return invalid(faults...)
	}
	srv.tags = tags
	return reply{status: http.StatusOK, body: s.serverView(c.account, srv)}
}

// blocksBody is the body that ends a server or its use of a block.
type blocksBody struct {
	DeleteBlocks bool `json:"deleteIpBlocks"`
}

// mayEnd reports whether a server can be given back now.
func (s *Sim) mayEnd(c *call, srv *server) (reply, bool) {
	r, ok := s.mayAct(c, srv, serverPoweredOn, serverPoweredOff, serverError)
	if ok && srv.changing != "" {
		return conflict("A network change of the server is in progress."), false
	}
	return r, ok
}

func (s *Sim) deprovision(c *call, srv *server, body blocksBody) reply {
	if r, ok := s.mayEnd(c, srv); !ok {
		return r
	}
	s.startEnd(c.account, srv, body.DeleteBlocks)
	return reply{status: http.StatusAccepted,
		body: "The server has been deprovisioned and related network setup is being updated."}
}

// deleteServer is the deprecated way: the server's own blocks always go with it.
func (s *Sim) deleteServer(c *call, srv *server) reply {
	if r, ok := s.mayEnd(c, srv); !ok {
		return r
	}
	s.startEnd(c.account, srv, true)
	return reply{status: http.StatusOK, body: object{"result": "Server has been deleted.", "serverId": srv.id}}
}

// startEnd takes a server away from its networks; then it is gone, or reserved when it has a reservation.
func (s *Sim) startEnd(a *account, srv *server, deleteBlocks bool) {
	srv.status = serverDeleting
	for _, m := range srv.privateMembers {
		m.status = membershipInProgress
	}
	for _, m := range srv.members {
		s.startLeave(a, srv, m, time.Duration(s.latency.ServerAction))
	}
	s.after(s.latency.ServerAction, func() { s.endServer(a, srv, deleteBlocks) })
}

func (s *Sim) endServer(a *account, srv *server, deleteBlocks bool) {
	for _, id := range slices.Clone(srv.ownBlocks) {
		b := a.blocks[id]
		if b == nil {
			continue
		}
		s.detach(a, b)
		if deleteBlocks {
			s.removeBlock(a, b)
		}
	}
	srv.ownBlocks = nil
	srv.privateMembers = nil
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

func (s *Sim) attachBlock(c *call, srv *server, body idBody) reply {
	b := c.account.blocks[body.ID]
	if b == nil {
		return s.missing()
	}
	s.judgeBlockUse(c, b, GrantAssign)
	s.judgeChange(c, srv.changing, "server "+srv.id)
	if r, ok := s.serverAccepts(srv); !ok {
		return r
	}
	if r, ok := attachable(c.account, srv, b); !ok {
		return r
	}
	s.beginAttach(srv, b)
	srv.changing = c.client.ID
	s.after(s.latency.Assign, func() {
		srv.changing = ""
		s.endAttach(c.account, b.id)
	})
	return reply{status: http.StatusAccepted, body: object{"id": b.id, "vlanId": ownVLAN}}
}

func (s *Sim) detachBlock(c *call, srv *server, body blocksBody) reply {
	b := c.account.blocks[c.params["ipBlockId"]]
	if b == nil || !slices.Contains(srv.ownBlocks, b.id) {
		return s.missing()
	}
	s.judgeBlockUse(c, b, GrantUnassign)
	s.judgeChange(c, srv.changing, "server "+srv.id)
	if r, ok := s.serverAccepts(srv); !ok {
		return r
	}
	if !slices.Contains(nextBlockStates[b.status], blockUnassigning) {
		return conflict("The IP block is " + b.status + ".")
	}
	s.moveBlock(b, blockUnassigning)
	srv.changing = c.client.ID
	s.after(s.latency.Unassign, func() {
		srv.changing = ""
		srv.ownBlocks = slices.DeleteFunc(srv.ownBlocks, func(id string) bool { return id == b.id })
		s.settleUnassign(nil, b, "")
		if body.DeleteBlocks && b.status == blockUnassigned {
			s.removeBlock(c.account, b)
		}
	})
	return reply{status: http.StatusAccepted, body: "The specified IP block is being removed from the server."}
}

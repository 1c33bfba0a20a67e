package pnapsim

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
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
}

// Network types of a server (BMC API, property "networkType").
const (
	networkTypeBoth    = "PUBLIC_AND_PRIVATE"
	networkTypePrivate = "PRIVATE_ONLY"
	networkTypePublic  = "PUBLIC_ONLY"
	networkTypeNone    = "NONE"
	networkTypeUser    = "USER_DEFINED"
)

func hasPublic(networkType string) bool {
	return networkType == networkTypeBoth || networkType == networkTypePublic
}

func hasPrivate(networkType string) bool {
	return networkType == networkTypeBoth || networkType == networkTypePrivate
}

func (s *Sim) listServers(c *call) reply {
	filters, faults := parseTagFilters(c.query["tag"])
	if faults != nil {
		return invalid(faults...)
	}
	out := []any{}
	for _, srv := range c.account.serversInOrder() {
		if matchTags(tagMap(c.account, srv.tags), filters, s.switches.TagFilter == "or") {
			out = append(out, s.serverView(c.account, srv))
		}
	}
	return reply{status: http.StatusOK, body: out}
}

func (s *Sim) getServer(c *call) reply {
	srv := c.account.servers[c.params["serverId"]]
	if srv == nil {
		return s.missing()
	}
	return reply{status: http.StatusOK, body: s.serverView(c.account, srv)}
}

func (s *Sim) serverView(a *account, srv *server) object {
	own := []any{}
	networks := []any{}
	for _, id := range srv.ownBlocks {
		own = append(own, object{"id": id, "vlanId": 10})
	}
	for _, m := range srv.members {
		networks = append(networks, membershipView(m))
	}
	configuration := object{
		"privateNetworkConfiguration": object{"privateNetworks": []any{}},
		"ipBlocksConfiguration":       object{"ipBlocks": own},
		"publicNetworkConfiguration":  object{"publicNetworks": networks},
	}
	if srv.gateway != "" {
		configuration["gatewayAddress"] = srv.gateway
	}
	view := object{
		"id": srv.id, "status": srv.status, "hostname": srv.hostname, "os": srv.os, "type": srv.kind,
		"location": srv.location,
		"cpu":      "E-2276G", "cpuCount": 1, "coresPerCpu": 6, "cpuFrequency": 3.8, "ram": "64GB RAM",
		"storage":            "1x 960GB NVMe",
		"privateIpAddresses": slices.Clone(srv.privateIPs), "publicIpAddresses": s.publicAddresses(a, srv),
		"pricingModel": srv.pricing, "networkType": srv.networkType, "tags": assignmentsView(a, srv.tags),
		"provisionedOn": s.told(srv.created), "networkConfiguration": configuration,
		"storageConfiguration": object{"rootPartition": object{"raid": "NO_RAID", "size": -1}},
	}
	if srv.description != "" {
		view["description"] = srv.description
	}
	if srv.reservation != "" {
		view["reservationId"] = srv.reservation
	}
	return view
}

// publicAddresses are all usable addresses of the server's own blocks, and its addresses in public networks.
func (s *Sim) publicAddresses(a *account, srv *server) []string {
	out := slices.Clone(srv.publicIPs)
	for _, id := range srv.ownBlocks {
		if b := a.blocks[id]; b != nil {
			out = append(out, usableAddresses(b.cidr, s.first31())...)
		}
	}
	for _, m := range srv.members {
		ips, err := expand(m.ips)
		if err != nil {
			continue
		}
		for _, ip := range ips {
			out = append(out, ip.String())
		}
	}
	if out == nil {
		out = []string{}
	}
	return out
}

func (s *Sim) createServer(c *call) reply {
	body, err := decode[serverBody](c)
	if err != nil {
		return invalid(err.Error())
	}
	tags, faults := s.resolveTags(c.account, body.Tags)
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
	if faults != nil {
		return invalid(faults...)
	}
	if len(c.account.servers) >= c.account.maxServers {
		return s.overQuota(quotaServers)
	}
	if s.stock[body.Location] >= s.cfg.ServerStock {
		return refuse(http.StatusNotAcceptable, fmt.Sprintf("No servers of type %s are available in location %s.",
			body.Type, body.Location))
	}
	srv := s.newServer(c.client.id, body)
	srv.tags = tags
	srv.status = serverCreating
	if r, ok := s.buyOwnBlock(c, srv); !ok {
		return r
	}
	c.account.servers[srv.id] = srv
	s.stock[srv.location]++
	s.after(s.latency.ServerCreate, func() { settleServer(srv, serverCreating) })
	return reply{status: http.StatusOK, body: s.serverView(c.account, srv)}
}

func (s *Sim) newServer(owner string, body serverBody) *server {
	srv := &server{
		seq: s.nextSeq(), id: s.newID(), owner: owner, hostname: body.Hostname, description: body.Description,
		os:   body.OS,
		kind: body.Type, location: body.Location, networkType: body.NetworkType, reservation: body.Reservation,
		pricing: body.Pricing, privateIPs: []string{}, created: s.now,
	}
	if srv.pricing == "" {
		srv.pricing = "HOURLY"
	}
	if hasPrivate(srv.networkType) {
		srv.privateIPs = []string{fmt.Sprintf("10.0.%d.%d", srv.seq/250, 4+srv.seq%250)}
	}
	return srv
}

// buyOwnBlock gives a new server with public network its own /31.
func (s *Sim) buyOwnBlock(c *call, srv *server) (reply, bool) {
	if !hasPublic(srv.networkType) {
		return reply{}, true
	}
	cidr, ok := s.pool.buy(srv.location, 31, false, s.now, time.Duration(s.latency.Quarantine))
	if !ok {
		return refuse(http.StatusNotAcceptable, "No IP blocks of size /31 are available in location "+srv.location+"."),
			false
	}
	b := &block{
		seq: s.nextSeq(), id: s.newID(), owner: c.client.id, location: srv.location, cidr: cidr,
		status: blockAssigned, resource: srv.id, resourceKind: ofServer, created: s.now,
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

func (s *Sim) patchServer(c *call) reply {
	srv := c.account.servers[c.params["serverId"]]
	if srv == nil {
		return s.missing()
	}
	body, err := decode[struct {
		Hostname    *string `json:"hostname"`
		Description *string `json:"description"`
	}](c)
	if err != nil {
		return invalid(err.Error())
	}
	s.judgeServerUse(c, srv)
	if body.Hostname != nil {
		srv.hostname = *body.Hostname
	}
	if body.Description != nil {
		srv.description = *body.Description
	}
	return reply{status: http.StatusOK, body: s.serverView(c.account, srv)}
}

func (s *Sim) putServerTags(c *call) reply {
	srv := c.account.servers[c.params["serverId"]]
	if srv == nil {
		return s.missing()
	}
	bodies, err := decode[[]assignmentBody](c)
	if err != nil {
		return invalid(err.Error())
	}
	s.judgeServerUse(c, srv)
	tags, faults := s.resolveTags(c.account, bodies)
	if faults != nil {
		return invalid(faults...)
	}
	srv.tags = tags
	return reply{status: http.StatusOK, body: s.serverView(c.account, srv)}
}

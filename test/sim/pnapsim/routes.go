package pnapsim

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// operation is one method of one path of an API.
type operation struct {
	api    api
	method string
	path   string // template as in the OpenAPI document
	handle handler
}

// name is method and path template, such as "POST /ips/v1/ip-blocks".
func (o *operation) name() string { return o.method + " " + o.api.prefix + o.path }

// Methods, short enough for lists of operations.
const (
	get   = http.MethodGet
	post  = http.MethodPost
	put   = http.MethodPut
	patch = http.MethodPatch
	del   = http.MethodDelete
)

// blockPath is the rest of a path that names a block.
const blockPath = "/ip-blocks/{ipBlockId}"

func operations() []operation {
	return slices.Concat(serverOperations(), networkOperations(), otherOperations())
}

func serverOperations() []operation {
	const (
		server         = "/servers/{serverId}"
		members        = server + "/network-configuration/public-network-configuration/public-networks"
		privateMembers = server + "/network-configuration/private-network-configuration/private-networks"
		ownBlocks      = server + "/network-configuration/ip-block-configurations/ip-blocks"
	)
	return []operation{
		{bmcAPI, get, "/servers", (*Sim).listServers},
		{bmcAPI, post, "/servers", with((*call).owner, (*Sim).createServer)},
		{bmcAPI, get, server, on((*call).server, shown((*Sim).serverView))},
		{bmcAPI, patch, server, with((*call).server, (*Sim).patchServer)},
		{bmcAPI, del, server, on((*call).server, (*Sim).deleteServer)},
		{bmcAPI, put, server + "/tags", with((*call).server, (*Sim).putServerTags)},
		{bmcAPI, post, members, with((*call).server, (*Sim).joinNetwork)},
		{bmcAPI, patch, members + "/{publicNetworkId}", with((*call).server, (*Sim).patchMembership)},
		{bmcAPI, del, members + "/{publicNetworkId}", on((*call).server, (*Sim).leaveNetwork)},
		{bmcAPI, post, privateMembers, with((*call).server, (*Sim).joinPrivateNetwork)},
		{bmcAPI, patch, privateMembers + "/{privateNetworkId}", with((*call).server, (*Sim).patchPrivateMembership)},
		{bmcAPI, del, privateMembers + "/{privateNetworkId}", on((*call).server, (*Sim).leavePrivateNetwork)},
		{bmcAPI, post, ownBlocks, with((*call).server, (*Sim).attachBlock)},
		{bmcAPI, del, ownBlocks + "/{ipBlockId}", with((*call).server, (*Sim).detachBlock)},
		action("power-on", serverPoweredOn, "Powering on server.", serverPoweredOff),
		action("power-off", serverPoweredOff, "Powering off server.", serverPoweredOn),
		action("shutdown", serverPoweredOff, "Powering off server.", serverPoweredOn),
		{bmcAPI, post, server + "/actions/reboot", with((*call).server, (*Sim).rebootServer)},
		action("reset", serverResetting, "Resetting server.", serverPoweredOn, serverPoweredOff),
		{bmcAPI, post, server + "/actions/reserve", with((*call).server, (*Sim).reserveServer)},
		{bmcAPI, post, server + "/actions/transfer-reservation", with((*call).server, (*Sim).transferReservation)},
		{bmcAPI, put, server + "/os-configuration/ipxe", with((*call).server, (*Sim).putIPXE)},
		{bmcAPI, post, server + "/actions/provision", with((*call).server, (*Sim).provision)},
		{bmcAPI, post, server + "/actions/deprovision", with((*call).server, (*Sim).deprovision)},
	}
}

func networkOperations() []operation {
	const (
		network   = "/public-networks/{publicNetworkId}"
		private   = "/private-networks/{privateNetworkId}"
		peerGroup = "/bgp-peer-groups/{bgpPeerGroupId}"
	)
	return []operation{
		{networkAPI, get, "/public-networks", (*Sim).listNetworks},
		{networkAPI, post, "/public-networks", with((*call).owner, (*Sim).createNetwork)},
		{networkAPI, get, network, on((*call).network, shown((*Sim).networkView))},
		{networkAPI, patch, network, with((*call).network, (*Sim).patchNetwork)},
		{networkAPI, del, network, on((*call).network, (*Sim).deleteNetwork)},
		{networkAPI, post, network + "/ip-blocks", with((*call).network, (*Sim).assignBlock)},
		{networkAPI, del, network + blockPath, on((*call).network, (*Sim).unassignBlock)},
		{networkAPI, get, "/private-networks", (*Sim).listPrivateNetworks},
		{networkAPI, post, "/private-networks", with((*call).owner, (*Sim).createPrivateNetwork)},
		{networkAPI, get, private, on((*call).privateNetwork, shown((*Sim).privateNetworkView))},
		{networkAPI, put, private, with((*call).privateNetwork, (*Sim).putPrivateNetwork)},
		{networkAPI, del, private, on((*call).privateNetwork, (*Sim).deletePrivateNetwork)},
		{networkAPI, get, "/bgp-peer-groups", (*Sim).listPeerGroups},
		{networkAPI, post, "/bgp-peer-groups", with((*call).owner, (*Sim).createPeerGroup)},
		{networkAPI, get, peerGroup, on((*call).peerGroup, shown((*Sim).peerGroupView))},
		{networkAPI, patch, peerGroup, with((*call).peerGroup, (*Sim).patchPeerGroup)},
		{networkAPI, del, peerGroup, on((*call).peerGroup, (*Sim).deletePeerGroup)},
	}
}

func otherOperations() []operation {
	return []operation{
		{ipAPI, get, "/ip-blocks", (*Sim).listBlocks},
		{ipAPI, post, "/ip-blocks", with((*call).owner, (*Sim).createBlock)},
		{ipAPI, get, blockPath, on((*call).block, shown((*Sim).blockView))},
		{ipAPI, patch, blockPath, with((*call).owner, (*Sim).patchBlock)},
		{ipAPI, del, blockPath, on((*call).block, (*Sim).deleteBlock)},
		{ipAPI, put, blockPath + "/tags", with((*call).block, (*Sim).putBlockTags)},
		{locationAPI, get, "/locations", (*Sim).listLocations},
		{bmcAPI, get, "/quotas", (*Sim).listQuotas},
		{bmcAPI, get, "/quotas/{quotaId}", (*Sim).getQuota},
		{tagAPI, get, "/tags", (*Sim).listTags},
		{tagAPI, post, "/tags", with((*call).owner, (*Sim).createTag)},
		{tagAPI, get, "/tags/{tagId}", on((*call).tag, shown((*Sim).tagView))},
		{tagAPI, patch, "/tags/{tagId}", with((*call).tag, (*Sim).patchTag)},
		{tagAPI, del, "/tags/{tagId}", on((*call).tag, (*Sim).deleteTag)},
	}
}

// handler does an operation.
type handler func(*Sim, *call) reply

// on is a handler for the object that the path names; one that is not there, or another account's, is missing.
func on[T any](find func(*call) *T, do func(*Sim, *call, *T) reply) handler {
	return func(s *Sim, c *call) reply {
		if found := find(c); found != nil {
			return do(s, c, found)
		}
		return s.missing()
	}
}

// shown answers with an object as the API shows it.
func shown[T any](view func(*Sim, *account, *T) object) func(*Sim, *call, *T) reply {
	return func(s *Sim, c *call, found *T) reply {
		return reply{status: http.StatusOK, body: view(s, c.account, found)}
	}
}

// with is on for a request with a body.
func with[T, B any](find func(*call) *T, do func(*Sim, *call, *T, B) reply) handler {
	return on(find, func(s *Sim, c *call, found *T) reply {
		var body B
		if err := json.NewDecoder(bytes.NewReader(c.raw)).Decode(&body); err != nil && !errors.Is(err, io.EOF) {
			return invalid("body: " + err.Error())
		}
		return do(s, c, found, body)
	})
}

func (c *call) owner() *account       { return c.account }
func (c *call) server() *server       { return c.account.servers[c.params["serverId"]] }
func (c *call) network() *network     { return c.account.networks[c.params["publicNetworkId"]] }
func (c *call) block() *block         { return c.account.blocks[c.params["ipBlockId"]] }
func (c *call) tag() *tag             { return c.account.tags[c.params["tagId"]] }
func (c *call) peerGroup() *peerGroup { return c.account.peerGroups[c.params["bgpPeerGroupId"]] }

func (c *call) privateNetwork() *privateNetwork {
	return c.account.private[c.params["privateNetworkId"]]
}

// route finds the operation of a request; when there is none, status is 404 for an unknown path and
// 405 for an unknown method of a known one.
func route(method, path string) (op *operation, params map[string]string, status int) {
	status = http.StatusNotFound
	for _, candidate := range operations() {
		params, ok := match(candidate.api.prefix+candidate.path, path)
		if !ok {
			continue
		}
		if candidate.method == method {
			return &candidate, params, http.StatusOK
		}
		status = http.StatusMethodNotAllowed
	}
	return nil, nil, status
}

// match holds a path against a template such as /ip-blocks/{ipBlockId}.
func match(template, path string) (map[string]string, bool) {
	want := strings.Split(template, "/")
	have := strings.Split(path, "/")
	if len(want) != len(have) {
		return nil, false
	}
	params := map[string]string{}
	for i := range want {
		name, isParam := strings.CutPrefix(want[i], "{")
		switch {
		case isParam && have[i] != "":
			params[strings.TrimSuffix(name, "}")] = have[i]
		case isParam || want[i] != have[i]:
			return nil, false
		}
	}
	return params, true
}

// Quotas of the API, GET /bmc/v1/quotas.
const (
	quotaServers = "bmc.servers.max_count"
	quotaBlocks  = "ips.ip_blocks.max_count"
	// defaultLimit of an account that names none.
	defaultLimit = 100
)

// products are what the simulator sells, at each location, by product category.
var products = map[string]string{"SERVER": "Bare metal server", "PUBLIC_IP": "Public IP"}

func (s *Sim) listLocations(c *call) reply {
	wanted := c.query.Get("location")
	category := c.query.Get("productCategory")
	sold := []any{}
	for _, name := range slices.Sorted(maps.Keys(products)) {
		sold = append(sold, object{"productCategory": name, "productCategoryDescription": products[name]})
	}
	shown := func(l string) bool {
		return (wanted == "" || wanted == l) && (category == "" || products[category] != "")
	}
	return listing(locations(), shown, func(l string) object {
		return object{"location": l, "locationDescription": locationNames[l], "productCategories": sold}
	})
}

func quotas(a *account) []object {
	return []object{
		quota(quotaServers, "Servers", "Maximum number of BMC servers", len(a.servers), a.maxServers),
		quota(quotaBlocks, "IP Blocks", "Maximum number of IP blocks", a.wholeBlocks(), a.maxBlocks),
	}
}

func (s *Sim) listQuotas(c *call) reply { return reply{status: http.StatusOK, body: quotas(c.account)} }

func (s *Sim) getQuota(c *call) reply {
	for _, one := range quotas(c.account) {
		if one["id"] == c.params["quotaId"] {
			return reply{status: http.StatusOK, body: one}
		}
	}
	return s.missing()
}

func quota(id, name, description string, used, limit int) object {
	status := "WITHIN_LIMIT"
	switch {
	case used == limit:
		status = "ON_LIMIT"
	case used > limit:
		status = "OVER_LIMIT"
	}
	return object{
		"id": id, "name": name, "description": description, "status": status, "unit": "COUNT",
		"limit": limit, "used": used, "quotaEditLimitRequestDetails": []any{},
	}
}

// overQuota is the answer when an account may have no more of something.
func (s *Sim) overQuota(id string) reply {
	return refuse(s.switches.QuotaCode, "The request exceeds the quota "+id+" of the account.")
}

package pnapsim

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
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

func operations() []operation {
	return slices.Concat(serverOperations(), blockOperations(), networkOperations(), otherOperations())
}

func otherOperations() []operation {
	return []operation{
		{locationAPI, http.MethodGet, "/locations", (*Sim).listLocations},
		{bmcAPI, http.MethodGet, "/quotas", (*Sim).listQuotas},
		{bmcAPI, http.MethodGet, "/quotas/{quotaId}", (*Sim).getQuota},
		{tagAPI, http.MethodGet, "/tags", (*Sim).listTags},
		{tagAPI, http.MethodPost, "/tags", with((*call).owner, (*Sim).createTag)},
		{tagAPI, http.MethodGet, "/tags/{tagId}", on((*call).tag, (*Sim).getTag)},
		{tagAPI, http.MethodPatch, "/tags/{tagId}", with((*call).tag, (*Sim).patchTag)},
		{tagAPI, http.MethodDelete, "/tags/{tagId}", on((*call).tag, (*Sim).deleteTag)},
	}
}

func blockOperations() []operation {
	return []operation{
		{ipAPI, http.MethodGet, "/ip-blocks", (*Sim).listBlocks},
		{ipAPI, http.MethodPost, "/ip-blocks", with((*call).owner, (*Sim).createBlock)},
		{ipAPI, http.MethodGet, "/ip-blocks/{ipBlockId}", on((*call).block, (*Sim).getBlock)},
		{ipAPI, http.MethodPatch, "/ip-blocks/{ipBlockId}", with((*call).owner, (*Sim).patchBlock)},
		{ipAPI, http.MethodDelete, "/ip-blocks/{ipBlockId}", on((*call).block, (*Sim).deleteBlock)},
		{ipAPI, http.MethodPut, "/ip-blocks/{ipBlockId}/tags", with((*call).block, (*Sim).putBlockTags)},
	}
}

func networkOperations() []operation {
	const one = "/public-networks/{publicNetworkId}"
	return []operation{
		{networkAPI, http.MethodGet, "/public-networks", (*Sim).listNetworks},
		{networkAPI, http.MethodPost, "/public-networks", with((*call).owner, (*Sim).createNetwork)},
		{networkAPI, http.MethodGet, one, on((*call).network, (*Sim).getNetwork)},
		{networkAPI, http.MethodPatch, one, with((*call).network, (*Sim).patchNetwork)},
		{networkAPI, http.MethodDelete, one, on((*call).network, (*Sim).deleteNetwork)},
		{networkAPI, http.MethodPost, one + "/ip-blocks", with((*call).network, (*Sim).assignBlock)},
		{networkAPI, http.MethodDelete, one + "/ip-blocks/{ipBlockId}", on((*call).network, (*Sim).unassignBlock)},
	}
}

func serverOperations() []operation {
	const one = "/servers/{serverId}"
	const networks = one + "/network-configuration/public-network-configuration/public-networks"
	const ownBlocks = one + "/network-configuration/ip-block-configurations/ip-blocks"
	const actions = one + "/actions/"
	act := func(path string, does handler) operation {
		return operation{bmcAPI, http.MethodPost, actions + path, does}
	}
	return []operation{
		{bmcAPI, http.MethodGet, "/servers", (*Sim).listServers},
		{bmcAPI, http.MethodPost, "/servers", with((*call).owner, (*Sim).createServer)},
		{bmcAPI, http.MethodGet, one, on((*call).server, (*Sim).getServer)},
		{bmcAPI, http.MethodPatch, one, with((*call).server, (*Sim).patchServer)},
		{bmcAPI, http.MethodDelete, one, on((*call).server, (*Sim).deleteServer)},
		{bmcAPI, http.MethodPut, one + "/tags", with((*call).server, (*Sim).putServerTags)},
		{bmcAPI, http.MethodPost, networks, with((*call).server, (*Sim).joinNetwork)},
		{bmcAPI, http.MethodPatch, networks + "/{publicNetworkId}", with((*call).server, (*Sim).patchMembership)},
		{bmcAPI, http.MethodDelete, networks + "/{publicNetworkId}", on((*call).server, (*Sim).leaveNetwork)},
		{bmcAPI, http.MethodPost, ownBlocks, with((*call).server, (*Sim).attachBlock)},
		{bmcAPI, http.MethodDelete, ownBlocks + "/{ipBlockId}", with((*call).server, (*Sim).detachBlock)},
		act("power-on", action(serverPoweredOn, "Powering on server.", serverPoweredOff)),
		act("power-off", action(serverPoweredOff, "Powering off server.", serverPoweredOn)),
		act("shutdown", action(serverPoweredOff, "Powering off server.", serverPoweredOn)),
		act("reboot", action(serverRebooting, "Rebooting server.", serverPoweredOn)),
		act("reset", action(serverResetting, "Resetting server.", serverPoweredOn, serverPoweredOff)),
		act("reserve", with((*call).server, (*Sim).reserveServer)),
		act("provision", with((*call).server, (*Sim).provision)),
		act("deprovision", with((*call).server, (*Sim).deprovision)),
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

func (c *call) owner() *account   { return c.account }
func (c *call) server() *server   { return c.account.servers[c.params["serverId"]] }
func (c *call) network() *network { return c.account.networks[c.params["publicNetworkId"]] }
func (c *call) block() *block     { return c.account.blocks[c.params["ipBlockId"]] }
func (c *call) tag() *tag         { return c.account.tags[c.params["tagId"]] }

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

func (s *Sim) listLocations(c *call) reply {
	names := map[string]string{
		"PHX": "Phoenix, USA", "ASH": "Ashburn, USA", "NLD": "Amsterdam, NLD", "SGP": "Singapore",
		"CHI": "Chicago, USA", "SEA": "Seattle, USA", "AUS": "Austin, USA",
	}
	out := []any{}
	wanted := c.query.Get("location")
	for _, location := range locations() {
		if wanted != "" && wanted != location {
			continue
		}
		out = append(out, object{
			"location": location, "locationDescription": names[location],
			"productCategories": []any{
				object{"productCategory": "SERVER", "productCategoryDescription": "Bare metal server"},
				object{"productCategory": "PUBLIC_IP", "productCategoryDescription": "Public IP"},
			},
		})
	}
	return reply{status: http.StatusOK, body: out}
}

func knownLocation(name string) bool { return slices.Contains(locations(), name) }

func (s *Sim) listQuotas(c *call) reply {
	return reply{status: http.StatusOK, body: []any{serverQuota(c.account), blockQuota(c.account)}}
}

func (s *Sim) getQuota(c *call) reply {
	switch c.params["quotaId"] {
	case quotaServers:
		return reply{status: http.StatusOK, body: serverQuota(c.account)}
	case quotaBlocks:
		return reply{status: http.StatusOK, body: blockQuota(c.account)}
	default:
		return s.missing()
	}
}

func serverQuota(a *account) object {
	return quota(quotaServers, "Servers", "Maximum number of BMC servers", len(a.servers), a.maxServers)
}

func blockQuota(a *account) object {
	return quota(quotaBlocks, "IP Blocks", "Maximum number of IP blocks", len(a.blocks), a.maxBlocks)
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

package pnapsim

import (
	"net/http"
	"slices"
	"strings"
)

// operation is one method of one path of an API.
type operation struct {
	api    api
	method string
	path   string // template as in the OpenAPI document
	handle func(*Sim, *call) reply
}

// name is method and path template, such as "POST /ips/v1/ip-blocks".
func (o *operation) name() string { return o.method + " " + o.api.prefix + o.path }

func operations() []operation {
	return slices.Concat(serverOperations(), blockOperations(), networkOperations(), tagOperations(),
		locationOperations())
}

func locationOperations() []operation {
	return []operation{
		{locationAPI(), http.MethodGet, "/locations", (*Sim).listLocations},
		{bmcAPI(), http.MethodGet, "/quotas", (*Sim).listQuotas},
		{bmcAPI(), http.MethodGet, "/quotas/{quotaId}", (*Sim).getQuota},
	}
}

func tagOperations() []operation {
	return []operation{
		{tagAPI(), http.MethodGet, "/tags", (*Sim).listTags},
		{tagAPI(), http.MethodPost, "/tags", (*Sim).createTag},
		{tagAPI(), http.MethodGet, "/tags/{tagId}", (*Sim).getTag},
		{tagAPI(), http.MethodPatch, "/tags/{tagId}", (*Sim).patchTag},
		{tagAPI(), http.MethodDelete, "/tags/{tagId}", (*Sim).deleteTag},
	}
}

func blockOperations() []operation {
	return []operation{
		{ipAPI(), http.MethodGet, "/ip-blocks", (*Sim).listBlocks},
		{ipAPI(), http.MethodPost, "/ip-blocks", (*Sim).createBlock},
		{ipAPI(), http.MethodGet, "/ip-blocks/{ipBlockId}", (*Sim).getBlock},
		{ipAPI(), http.MethodPatch, "/ip-blocks/{ipBlockId}", (*Sim).patchBlock},
		{ipAPI(), http.MethodDelete, "/ip-blocks/{ipBlockId}", (*Sim).deleteBlock},
		{ipAPI(), http.MethodPut, "/ip-blocks/{ipBlockId}/tags", (*Sim).putBlockTags},
	}
}

func networkOperations() []operation {
	return []operation{
		{networkAPI(), http.MethodGet, "/public-networks", (*Sim).listNetworks},
		{networkAPI(), http.MethodPost, "/public-networks", (*Sim).createNetwork},
		{networkAPI(), http.MethodGet, "/public-networks/{publicNetworkId}", (*Sim).getNetwork},
		{networkAPI(), http.MethodPatch, "/public-networks/{publicNetworkId}", (*Sim).patchNetwork},
		{networkAPI(), http.MethodDelete, "/public-networks/{publicNetworkId}", (*Sim).deleteNetwork},
		{networkAPI(), http.MethodPost, "/public-networks/{publicNetworkId}/ip-blocks", (*Sim).assignBlock},
		{networkAPI(), http.MethodDelete, "/public-networks/{publicNetworkId}/ip-blocks/{ipBlockId}",
			(*Sim).unassignBlock},
	}
}

func serverOperations() []operation {
	const one = "/servers/{serverId}"
	const networks = one + "/network-configuration/public-network-configuration/public-networks"
	const ownBlocks = one + "/network-configuration/ip-block-configurations/ip-blocks"
	const actions = one + "/actions/"
	api := bmcAPI()
	return []operation{
		{api, http.MethodGet, "/servers", (*Sim).listServers},
		{api, http.MethodPost, "/servers", (*Sim).createServer},
		{api, http.MethodGet, one, (*Sim).getServer},
		{api, http.MethodPatch, one, (*Sim).patchServer},
		{api, http.MethodDelete, one, (*Sim).deleteServer},
		{api, http.MethodPut, one + "/tags", (*Sim).putServerTags},
		{api, http.MethodPost, networks, (*Sim).joinNetwork},
		{api, http.MethodPatch, networks + "/{publicNetworkId}", (*Sim).patchMembership},
		{api, http.MethodDelete, networks + "/{publicNetworkId}", (*Sim).leaveNetwork},
		{api, http.MethodPost, ownBlocks, (*Sim).attachBlock},
		{api, http.MethodDelete, ownBlocks + "/{ipBlockId}", (*Sim).detachBlock},
		{api, http.MethodPost, actions + "power-on", (*Sim).powerOn},
		{api, http.MethodPost, actions + "power-off", (*Sim).powerOff},
		{api, http.MethodPost, actions + "shutdown", (*Sim).powerOff},
		{api, http.MethodPost, actions + "reboot", (*Sim).reboot},
		{api, http.MethodPost, actions + "reset", (*Sim).resetServer},
		{api, http.MethodPost, actions + "reserve", (*Sim).reserveServer},
		{api, http.MethodPost, actions + "provision", (*Sim).provision},
		{api, http.MethodPost, actions + "deprovision", (*Sim).deprovision},
	}
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

package pnapsim

import (
	"net/http"
	"slices"
)

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

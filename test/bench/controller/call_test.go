package controller

import (
	"net/http"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

func call(method, path, operation string) pnapsim.Entry {
	return pnapsim.Entry{Method: method, Path: path, Operation: method + " " + operation, Status: http.StatusOK}
}

// life is what a client asks that buys a block, waits for it and assigns it.
func life() calls {
	const blocks, block, assign = "/ips/v1/ip-blocks", "/ips/v1/ip-blocks/1", "/networks/v1/public-networks/n/ip-blocks"
	return calls{
		call(http.MethodPost, "/auth/realms/BMC/protocol/openid-connect/token",
			"/auth/realms/BMC/protocol/openid-connect/token"),
		call(http.MethodGet, blocks, blocks),
		call(http.MethodPost, blocks, blocks),
		call(http.MethodGet, block, "/ips/v1/ip-blocks/{ipBlockId}"),
		call(http.MethodGet, "/bmc/v1/servers", "/bmc/v1/servers"),
		call(http.MethodGet, block, "/ips/v1/ip-blocks/{ipBlockId}"),
		call(http.MethodPost, assign, "/networks/v1/public-networks/{networkId}/ip-blocks"),
		call(http.MethodGet, block, "/ips/v1/ip-blocks/{ipBlockId}"),
		call(http.MethodGet, "/bmc/v1/servers/s", "/bmc/v1/servers/{serverId}"),
	}
}

func TestCallsAreDistinguished(t *testing.T) {
	all := life()
	if got := len(all.api()); got != 8 {
		t.Errorf("%d calls of the API, want 8 without the token", got)
	}
	if got := len(all.writes()); got != 2 {
		t.Errorf("%d writes, want 2", got)
	}
	if got := len(all.ofServers()); got != 2 {
		t.Errorf("%d calls of servers, want the list and the single one", got)
	}
	// The second look at the block and the third are waits.
	if got := len(all.beyondPolling()); got != 5 {
		t.Errorf("%d calls beyond polling, want 5:\n%s", got, all.beyondPolling())
	}
}

func TestBusiestWithinAnyMinute(t *testing.T) {
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(operation string, seconds ...float64) (made calls) {
		for _, s := range seconds {
			each := call(http.MethodGet, operation, operation)
			each.Time = begin.Add(time.Duration(s * float64(time.Second)))
			made = append(made, each)
		}
		return made
	}
	for name, tc := range map[string]struct {
		made      calls
		operation string
		most      int
	}{
		"nothing":              {},
		"every thirty seconds": {made: at("/list", 0, 30, 59.9, 90.1), operation: "GET /list", most: 2},
		"three in a minute":    {made: at("/list", 0, 70, 80, 90, 200), operation: "GET /list", most: 3},
		"the worse of two": {made: append(at("/one", 0, 100), at("/two", 0, 1)...), operation: "GET /two",
			most: 2},
		"tokens are no calls at all": {made: at("/auth/token", 0, 1, 2)},
	} {
		t.Run(name, func(t *testing.T) {
			if operation, most := tc.made.busiest(); operation != tc.operation || most != tc.most {
				t.Errorf("busiest is %q with %d, want %q with %d", operation, most, tc.operation, tc.most)
			}
		})
	}
}

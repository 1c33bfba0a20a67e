package controller

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// Operations of the API that stand out.
const (
	listServers = "GET /bmc/v1/servers"
	tokenPath   = "/auth/" // what begins with it is no call of the API itself
)

// calls are requests in their order.
type calls []pnapsim.Entry

// where keeps the calls that a condition holds for.
func (c calls) where(keep func(pnapsim.Entry) bool) calls {
	var kept calls
	for _, each := range c {
		if keep(each) {
			kept = append(kept, each)
		}
	}
	return kept
}

// api leaves out requests for tokens: there is one in a quarter of an hour.
func (c calls) api() calls {
	return c.where(func(e pnapsim.Entry) bool { return !strings.HasPrefix(e.Path, tokenPath) })
}

// writes are the calls that change something.
func (c calls) writes() calls {
	return c.api().where(func(e pnapsim.Entry) bool { return e.Method != http.MethodGet })
}

// ofServers are the calls about servers, be it the list or a single one.
func (c calls) ofServers() calls {
	return c.where(func(e pnapsim.Entry) bool { return strings.HasPrefix(e.Path, "/bmc/v1/servers") })
}

// beyondPolling leaves out the list of servers, which serves Nodes and comes at its own pace, and every look that
// repeats an earlier one: that is waiting for what a change started, not work.
func (c calls) beyondPolling() calls {
	seen := map[string]bool{}
	return c.api().where(func(e pnapsim.Entry) bool {
		if e.Operation == listServers {
			return false
		}
		if e.Method != http.MethodGet {
			return true
		}
		request := e.Path + "?" + e.Query
		known := seen[request]
		seen[request] = true
		return !known
	})
}

// minute is what a figure a minute counts in. The slack is for calls that come every thirty seconds: the third of
// them may be a little early.
const minute = time.Minute - time.Second

// busiest is the operation that had the most calls within any minute, and how many those were.
func (c calls) busiest() (operation string, most int) {
	times := map[string][]time.Time{}
	for _, each := range c.api() {
		recent := slices.Concat(times[each.Operation], []time.Time{each.Time})
		for each.Time.Sub(recent[0]) >= minute {
			recent = recent[1:]
		}
		times[each.Operation] = recent
		if len(recent) > most {
			operation = each.Operation
			most = len(recent)
		}
	}
	return operation, most
}

// String lists the calls, one a line, to explain a figure.
func (c calls) String() string {
	var text strings.Builder
	for _, each := range c {
		_, _ = fmt.Fprintf(&text, "%s %d %s %s %s\n", each.Time.Format("15:04:05.000"), each.Status, each.Method,
			each.Path, each.Query)
	}
	return text.String()
}

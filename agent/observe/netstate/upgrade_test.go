//go:build linux

package netstate

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestUpgradeHasNoMethodForOneNeighbour fails when a newer netlink library gets methods for the neighbour table: one
// that reads a single entry may replace the request that routeSocket.pinned makes by hand, and its second socket.
func TestUpgradeHasNoMethodForOneNeighbour(t *testing.T) {
	known := []string{"NeighAdd", "NeighAppend", "NeighDel", "NeighList", "NeighListExecute", "NeighProxyList",
		"NeighSet"}
	var got []string
	for method := range reflect.TypeFor[*netlink.Handle]().Methods() {
		if strings.HasPrefix(method.Name, "Neigh") {
			got = append(got, method.Name)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, known) {
		t.Errorf("netlink.Handle has %q, and had %q: if one of the new ones reads a single neighbour, use it in "+
			"routeSocket.pinned", got, known)
	}
}

// Package dataplane is what a network follows of the phoenixNAP API: which VLAN is open for which
// server, and which block has a gateway.
package dataplane

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

// DataPlane is one state of all public networks.
type DataPlane struct {
	// Revision grows with every change.
	Revision int64 `json:"revision"`
	// Networks are the live public networks, sorted by ID.
	Networks []Network `json:"networks"`
}

// Network is one public network as switches and routers see it, with its ID in the API and its name for the user.
type Network struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	VLAN int    `json:"vlan"`
	// Location is the 3-letter code of its location. Equal VLAN IDs in two locations are two networks.
	Location string `json:"location"`
	// Blocks are the blocks with status "assigned"; a block leaves at once when unassigning begins.
	Blocks []Block `json:"blocks"`
	// Members are the IDs of the servers on whose ports the VLAN is open.
	Members []string `json:"members"`
}

// Block is a block that the router serves, with its ID in the API.
type Block struct {
	ID   string `json:"id"`
	CIDR string `json:"cidr"`
	// Gateway is the router's address in it: the first usable one.
	Gateway string `json:"gateway"`
}

// Path is where a simulator serves the data plane. The query parameter "revision" makes the request
// wait, for a bounded time, until there is a newer one.
const Path = "/_fake/dataplane"

const (
	// requestTimeout is longer than the server's bounded wait of 10 s.
	requestTimeout = 30 * time.Second
	// retryPause keeps a follower from spinning while the simulator is away.
	retryPause = 250 * time.Millisecond
)

// Follow calls apply with every new state of the data plane served at baseURL until ctx is done, then
// returns nil. It survives restarts of the server. An error of apply ends it and is returned.
func Follow(ctx context.Context, baseURL string, apply func(DataPlane) error) error {
	client := &http.Client{Timeout: requestTimeout}
	defer client.CloseIdleConnections()
	revision := int64(-1)
	for ctx.Err() == nil {
		state, err := fetch(ctx, client, baseURL, revision)
		if err != nil {
			klog.FromContext(ctx).V(2).Info("Data plane is not to be had", "url", baseURL, "err", err)
			revision = -1 // a restarted server starts counting again
			loop.Sleep(ctx, retryPause)
			continue
		}
		if state.Revision == revision {
			continue
		}
		if err := apply(state); err != nil {
			return fmt.Errorf("apply data plane revision %d: %w", state.Revision, err)
		}
		revision = state.Revision
	}
	return nil
}

func fetch(ctx context.Context, client *http.Client, baseURL string, revision int64) (DataPlane, error) {
	url := fmt.Sprintf("%s%s?revision=%d", strings.TrimSuffix(baseURL, "/"), Path, revision)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return DataPlane{}, fmt.Errorf("request %s: %w", url, err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return DataPlane{}, fmt.Errorf("ask for the data plane: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return DataPlane{}, fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	var state DataPlane
	if err := json.NewDecoder(io.LimitReader(resp.Body, 16<<20)).Decode(&state); err != nil {
		return DataPlane{}, fmt.Errorf("decode the data plane of %s: %w", url, err)
	}
	return state, nil
}

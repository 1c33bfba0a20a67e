package pnapsim_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/dataplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// TestFollow: a follower sees every state of the data plane in its order, across a restart of the server.
func TestFollow(t *testing.T) {
	sim, url := simtest.New(t, pnapsim.Config{Clock: pnapsim.NewRealClock(1000)}, simtest.Seed())
	p := newPlain(t, url)
	states := make(chan dataplane.DataPlane)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- dataplane.Follow(ctx, url, func(d dataplane.DataPlane) error {
			select {
			case states <- d:
			case <-ctx.Done():
			}
			return nil
		})
	}()
	wantBlocks := func(n int) dataplane.DataPlane {
		t.Helper()
		select {
		case d := <-states:
			if len(d.Networks) != 1 || len(d.Networks[0].Blocks) != n {
				t.Fatalf("data plane %+v, want %d blocks", d, n)
			}
			return d
		case <-time.After(time.Minute):
			t.Fatalf("no data plane with %d blocks", n)
			return dataplane.DataPlane{}
		}
	}
	first := wantBlocks(1)
	want := []dataplane.Network{{
		ID: simtest.NetworkID, Name: "public", VLAN: 20, Location: "ASH",
		Members: []string{simtest.Server1ID, simtest.Server2ID},
		Blocks:  []dataplane.Block{{ID: simtest.NodeBlockID, CIDR: "203.0.113.0/28", Gateway: "203.0.113.1"}},
	}}
	if diff := cmp.Diff(want, first.Networks); diff != "" {
		t.Error(diff)
	}
	b := p.buy()
	for p.block(b.ID).Status != "unassigned" {
	}
	p.assign(b.ID)
	wantBlocks(2) // 30 s of the model later, without a request that would look
	p.unassign(b.ID)
	wantBlocks(1)
	edit(t, sim, pnapsim.Edit{Kind: pnapsim.EditRemoveMember, Server: simtest.Server1ID, Network: simtest.NetworkID})
	if d := wantBlocks(1); len(d.Networks[0].Members) != 1 {
		t.Errorf("members %v, want one", d.Networks[0].Members)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("follow ended with %v, want nil on cancel", err)
	}
}

func TestFollowReportsApply(t *testing.T) {
	_, url := simtest.New(t, pnapsim.Config{}, simtest.Seed())
	full := errors.New("no room")
	if err := dataplane.Follow(t.Context(), url, func(dataplane.DataPlane) error { return full }); !errors.Is(err,
		full) {
		t.Errorf("got %v", err)
	}
}

// TestFollowSurvives: a server that fails or talks nonsense is asked again.
func TestFollowSurvives(t *testing.T) {
	answers := []string{"", "nonsense", `{"revision":3,"networks":[]}`}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if answers[0] == "" {
			w.WriteHeader(http.StatusBadGateway)
		} else if _, err := w.Write([]byte(answers[0])); err != nil {
			t.Error(err)
		}
		if len(answers) > 1 {
			answers = answers[1:]
		}
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var got int64
	err := dataplane.Follow(ctx, server.URL, func(d dataplane.DataPlane) error {
		got = d.Revision
		cancel()
		return nil
	})
	if err != nil || got != 3 {
		t.Errorf("revision %d, %v", got, err)
	}
}

// example is the seed of the doc comment of Seed.
const example = `{
  "accounts": [{
    "id": "demo",
    "clients":  [{"id": "ccm", "secret": "s3cret-of-the-ccm", "judged": true}],
    "tags":     [{"name": "team", "isBillingTag": false}],
    "networks": [{"id": "60473c2509268bc77fd06d29", "name": "public", "location": "ASH", "vlan": 20}],
    "blocks":   [{"name": "nodes", "location": "ASH", "cidr": "203.0.113.0/28", "network": "public"}],
    "servers":  [{"hostname": "node-1", "location": "ASH", "networkType": "PRIVATE_ONLY",
                  "privateIPs": ["10.0.0.11"],
                  "networks": [{"network": "public", "ips": ["203.0.113.2"]}]}]
  }]
}`

func TestSeedExample(t *testing.T) {
	seed, err := pnapsim.ReadSeed(strings.NewReader(example))
	if err != nil {
		t.Fatal(err)
	}
	sim, _ := simtest.New(t, pnapsim.Config{}, seed)
	state := sim.State("demo")
	if len(state.Blocks) != 1 || len(state.Networks) != 1 || len(state.Servers) != 1 ||
		state.Blocks[0]["status"] != "assigned" {
		t.Errorf("state %+v", state)
	}
}

func TestSeedRefusesNonsense(t *testing.T) {
	account := func(rest string) string { return `{"accounts":[{"id":"a",` + rest + `}]}` }
	network := `"networks":[{"name":"n","location":"ASH"}],`
	for name, text := range map[string]string{
		"unknown property": `{"accounts":[{"id":"a","colour":"red"}]}`,
		"no account ID":    `{"accounts":[{}]}`,
		"same account":     `{"accounts":[{"id":"a"},{"id":"a"}]}`,
		"same client":      account(`"clients":[{"id":"c"},{"id":"c"}]`),
		"tag":              account(`"tags":[{"name":"a.b"}]`),
		"location":         account(`"networks":[{"name":"n","location":"XXX"}]`),
		"network name":     account(`"networks":[{"name":"n","location":"ASH"},{"name":"n","location":"ASH"}]`),
		"VLAN":             account(`"networks":[{"name":"n","location":"ASH","vlan":5000}]`),
		"ID":               account(`"networks":[{"id":"short","name":"n","location":"ASH"}]`),
		"unaligned":        account(`"blocks":[{"location":"ASH","cidr":"203.0.113.1/29"}]`),
		"overlap": account(
			`"blocks":[{"location":"ASH","cidr":"203.0.113.0/29"},{"location":"PHX","cidr":"203.0.113.0/28"}]`),
		"block's network":  account(`"blocks":[{"location":"ASH","cidr":"203.0.113.0/29","network":"n"}]`),
		"block's location": account(network + `"blocks":[{"location":"PHX","cidr":"203.0.113.0/29","network":"n"}]`),
		"hostname":         account(`"servers":[{"location":"ASH"}]`),
		"member's address": account(network +
			`"servers":[{"hostname":"h","location":"ASH","networks":[{"network":"n","ips":["203.0.113.2"]}]}]`),
		"member of nowhere": account(`"servers":[{"hostname":"h","location":"ASH","networks":[{"network":"n"}]}]`),
	} {
		seed, err := pnapsim.ReadSeed(strings.NewReader(text))
		if err == nil {
			err = pnapsim.New(pnapsim.Config{}).Seed(seed)
		}
		if err == nil {
			t.Errorf("%s: %s was taken", name, text)
		}
	}
}

// TestControl does over HTTP what tests and the demo do.
func TestControl(t *testing.T) {
	sim, url := simtest.Unjudged(t, pnapsim.Config{}, pnapsim.Seed{})
	p := &plain{t: t, url: url, http: http.DefaultClient}
	raw := json.RawMessage(example)
	p.must(http.StatusNoContent, http.MethodPost, "/_fake/seed", raw)
	p.must(http.StatusBadRequest, http.MethodPost, "/_fake/seed", raw)
	p.must(http.StatusNoContent, http.MethodPost, "/_fake/faults",
		pnapsim.Fault{Action: pnapsim.FaultStatus, Status: 500, For: pnapsim.Duration(time.Minute)})
	p.must(http.StatusInternalServerError, http.MethodGet, "/bmc/v1/servers", nil)
	p.must(http.StatusNoContent, http.MethodDelete, "/_fake/faults", nil)
	p.must(http.StatusNoContent, http.MethodPost, "/_fake/advance?by=1m", nil)
	p.must(http.StatusBadRequest, http.MethodPost, "/_fake/advance?by=never", nil)
	server := fmt.Sprint(sim.State("demo").Servers[0]["id"])
	verdict := decodeAnswer[map[string]any](t, p.must(http.StatusOK, http.MethodPost, "/_fake/claims",
		pnapsim.Claim{Client: "ccm", Kind: pnapsim.ClaimServerGone, Server: server}))
	if verdict["true"] != false {
		t.Errorf("verdict %v", verdict)
	}
	p.must(http.StatusNoContent, http.MethodPost, "/_fake/out-of-band",
		pnapsim.Edit{Kind: pnapsim.EditDeleteServer, Server: server})
	p.must(http.StatusBadRequest, http.MethodPost, "/_fake/out-of-band",
		pnapsim.Edit{Kind: pnapsim.EditDeleteServer, Server: "none"})
	p.must(http.StatusNoContent, http.MethodPost, "/_fake/tokens/revoke?client=ccm", nil)
	for path, want := range map[string]string{
		"/_fake/log?since=0": "500", "/_fake/counters": "GET /bmc/v1/servers", "/_fake/violations": "claim-server-gone",
		"/_fake/money?account=demo": `"liveBlocks":1`, "/_fake/state?account=demo": "deleting",
		"/_fake/dataplane": `"vlan":20`,
	} {
		if got := p.must(http.StatusOK, http.MethodGet, path, nil); !bytes.Contains(got.body, []byte(want)) {
			t.Errorf("%s: %s, want %s in it", path, got.body, want)
		}
	}
	if leaks := p.must(http.StatusOK, http.MethodPost, "/_fake/leakcheck?client=ccm",
		nil); strings.TrimSpace(string(leaks.body)) != "[]" {
		t.Errorf("leaks %s", leaks.body)
	}
	p.must(http.StatusNoContent, http.MethodPost, "/_fake/restart?state=lose", nil)
	if n := len(sim.State("demo").Networks); n != 0 {
		t.Errorf("%d networks after all state was lost", n)
	}
}

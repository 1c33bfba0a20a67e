package pnapsim_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// TestBlockStates walks a block through every state, and asks in each for everything.
func TestBlockStates(t *testing.T) {
	type row struct {
		state                    string
		assign, unassign, delete int
	}
	table := []row{
		{"creating", http.StatusConflict, http.StatusForbidden, http.StatusConflict},
		{"unassigned", http.StatusAccepted, http.StatusForbidden, http.StatusOK},
		{"assigning", http.StatusConflict, http.StatusConflict, http.StatusConflict},
		{"assigned", http.StatusConflict, http.StatusAccepted, http.StatusConflict},
		{"error assigning", http.StatusConflict, http.StatusAccepted, http.StatusConflict},
		{"unassigning", http.StatusConflict, http.StatusConflict, http.StatusConflict},
		{"error unassigning", http.StatusConflict, http.StatusAccepted, http.StatusConflict},
	}
	for _, r := range table {
		for action, want := range map[string]int{"assign": r.assign, "unassign": r.unassign, "delete": r.delete} {
			t.Run(r.state+"/"+action, func(t *testing.T) {
				account := simtest.Account()
				account.Clients[0].Judged = false
				sim, url := simtest.New(t, pnapsim.Config{}, pnapsim.Seed{Accounts: []pnapsim.AccountSeed{account}})
				p := newPlain(t, url)
				id := bring(t, sim, p, r.state)
				act := map[string]func(string) answer{"assign": p.assign, "unassign": p.unassign,
					"delete": p.delete}[action]
				if got := act(id); got.status != want {
					t.Errorf("%s while %s: %d %s, want %d", action, r.state, got.status, got.body, want)
				}
			})
		}
	}
}

// bring buys a block and brings it into a state.
func bring(t *testing.T, sim *pnapsim.Sim, p *plain, state string) string {
	t.Helper()
	failing := pnapsim.Fault{Action: pnapsim.FaultOutcome, Outcome: pnapsim.OutcomeError}
	b := p.buy()
	steps := []struct {
		state string
		do    func()
	}{
		{"creating", func() {}},
		{"unassigned", func() { sim.Advance(time.Second) }},
		{"assigning", func() {
			if state == "error assigning" {
				arm(t, sim, failing)
			}
			p.assign(b.ID)
		}},
		{"error assigning", func() { sim.Advance(30 * time.Second) }},
		{"assigned", func() { sim.Advance(30 * time.Second) }},
		{"unassigning", func() {
			if state == "error unassigning" {
				arm(t, sim, failing)
			}
			p.unassign(b.ID)
		}},
		{"error unassigning", func() { sim.Advance(30 * time.Second) }},
	}
	for _, step := range steps {
		if strings.HasPrefix(step.state, "error") && step.state != state {
			continue
		}
		step.do()
		if got := p.block(b.ID).Status; got != step.state {
			t.Fatalf("status %q, want %q", got, step.state)
		}
		if step.state == state {
			return b.ID
		}
	}
	t.Fatalf("no way to %q", state)
	return ""
}

// TestMemberships holds every rule for joining a network against a request that breaks it.
func TestMemberships(t *testing.T) {
	const outside = "5fa54d1e91867c03a0a7b4a6"
	const elsewhere = "5fa54d1e91867c03a0a7b4a7"
	account := simtest.Account()
	account.Clients[0].Judged = false
	account.Servers = append(account.Servers,
		pnapsim.ServerSeed{ID: outside, Hostname: "outside", Location: "ASH"},
		pnapsim.ServerSeed{ID: elsewhere, Hostname: "elsewhere", Location: "PHX"})
	body := func(ips ...string) map[string]any {
		return map[string]any{"id": simtest.NetworkID, "ips": append([]string{}, ips...)}
	}
	for _, tt := range []struct {
		name   string
		server string
		query  string
		body   map[string]any
		want   int
	}{
		{"one address", outside, "", body("203.0.113.4"), http.StatusAccepted},
		{"no address", outside, "", body(), http.StatusBadRequest},
		{"no address, forced", outside, "?force=true", body(), http.StatusAccepted},
		{"member already", simtest.Server1ID, "", body("203.0.113.4"), http.StatusConflict},
		{"other location", elsewhere, "", body("203.0.113.4"), http.StatusBadRequest},
		{"outside the blocks", outside, "", body("203.0.114.4"), http.StatusBadRequest},
		{"network address", outside, "", body("203.0.113.0"), http.StatusBadRequest},
		{"gateway", outside, "", body("203.0.113.1"), http.StatusBadRequest},
		{"broadcast", outside, "", body("203.0.113.15"), http.StatusBadRequest},
		{"another server's", outside, "", body("203.0.113.2"), http.StatusConflict},
		{"another server's, forced", outside, "?force=true", body("203.0.113.2"), http.StatusAccepted},
		{"range", outside, "", body("203.0.113.4 - 203.0.113.5"), http.StatusAccepted},
		{"range into another's", outside, "", body("203.0.113.3 - 203.0.113.5"), http.StatusConflict},
		{"range backwards", outside, "", body("203.0.113.5 - 203.0.113.4"), http.StatusBadRequest},
		{"no address at all", outside, "", body("four"), http.StatusBadRequest},
		{"unknown network", outside, "", map[string]any{"id": simtest.NodeBlockID, "ips": []string{}},
			http.StatusForbidden},
		{"unknown server", simtest.NodeBlockID, "", body("203.0.113.4"), http.StatusForbidden},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sim, url := simtest.New(t, pnapsim.Config{}, pnapsim.Seed{Accounts: []pnapsim.AccountSeed{account}})
			p := newPlain(t, url)
			if got := p.do(http.MethodPost, membershipPath(tt.server)+tt.query, tt.body); got.status != tt.want {
				t.Fatalf("%d %s, want %d", got.status, got.body, tt.want)
			}
			if tt.want != http.StatusAccepted {
				return
			}
			if n := len(sim.DataPlane().Networks[0].Members); n != 2 {
				t.Errorf("%d members at once: the VLAN opens only when the change is done", n)
			}
			sim.Advance(44 * time.Second)
			if got := p.do(http.MethodDelete, membershipPath(tt.server)+"/"+simtest.NetworkID,
				nil); got.status != http.StatusConflict {
				t.Errorf("a second change meanwhile: %d, want 409", got.status)
			}
			sim.Advance(time.Second)
			if n := len(sim.DataPlane().Networks[0].Members); n != 3 {
				t.Errorf("%d members after 45 s, want 3", n)
			}
			p.must(http.StatusAccepted, http.MethodDelete, membershipPath(tt.server)+"/"+simtest.NetworkID, nil)
			if n := len(sim.DataPlane().Networks[0].Members); n != 2 {
				t.Errorf("%d members: the VLAN closes at once", n)
			}
		})
	}
}

// TestMemberKeepsBlock: a block cannot leave its network while a member has an address of it.
func TestMemberKeepsBlock(t *testing.T) {
	account := simtest.Account()
	account.Clients[0].Judged = false
	_, url := simtest.New(t, pnapsim.Config{}, pnapsim.Seed{Accounts: []pnapsim.AccountSeed{account}})
	p := newPlain(t, url)
	if got := p.unassign(simtest.NodeBlockID); got.status != http.StatusConflict {
		t.Errorf("%d, want 409", got.status)
	}
	p.must(http.StatusAccepted, http.MethodDelete, assignPath()+"/"+simtest.NodeBlockID+"?force=true", nil)
}

// TestCheckOrder: of several errors in a request, the first in this order is reported.
func TestCheckOrder(t *testing.T) {
	account := simtest.Account()
	account.Clients = append(account.Clients, pnapsim.ClientSeed{ID: "reader", Secret: "r",
		Scopes: []string{"bmc.read"}})
	sim, url := simtest.Unjudged(t, pnapsim.Config{}, pnapsim.Seed{Accounts: []pnapsim.AccountSeed{account}})
	p := newPlain(t, url)
	full := p.token
	read := decodeAnswer[struct {
		Token string `json:"access_token"`
	}](t, p.form("client_id=reader&client_secret=r&grant_type=client_credentials")).Token
	bad := map[string]any{"location": 5}
	for _, tt := range []struct {
		name, token, method, path string
		body                      any
		want                      int
	}{
		{"path", "", http.MethodPost, "/ips/v1/nothing", bad, http.StatusNotFound},
		{"method", "", http.MethodPut, "/ips/v1/ip-blocks", bad, http.StatusMethodNotAllowed},
		{"token", "", http.MethodPost, "/ips/v1/ip-blocks", bad, http.StatusUnauthorized},
		{"scope", read, http.MethodPost, "/ips/v1/ip-blocks", bad, http.StatusForbidden},
		{"scope suffices to read", read, http.MethodGet, "/ips/v1/ip-blocks", nil, http.StatusOK},
		{"scope of another API", read, http.MethodGet, "/tag-manager/v1/tags", nil, http.StatusForbidden},
		{"schema", full, http.MethodPut, "/ips/v1/ip-blocks/nothing/tags", bad, http.StatusBadRequest},
		{"visible", full, http.MethodPost, "/networks/v1/public-networks/nothing/ip-blocks",
			map[string]any{"id": "nothing"}, http.StatusForbidden},
		{"state", full, http.MethodDelete, "/ips/v1/ip-blocks/" + simtest.NodeBlockID, nil, http.StatusConflict},
		{"no token needed", "", http.MethodGet, "/location-api/v1/locations?location=ASH", nil, http.StatusOK},
	} {
		p.token = tt.token
		if got := p.do(tt.method, tt.path, tt.body); got.status != tt.want {
			t.Errorf("%s: %d %s, want %d", tt.name, got.status, got.body, tt.want)
		}
	}
	if sim.Count("DELETE /ips/v1/ip-blocks/{ipBlockId}") != 1 || len(sim.Log(5)) != 7 {
		t.Errorf("counters %v, log %v", sim.Counters(), sim.Log(5))
	}
}

func (p *plain) form(body string) answer {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.url+tokenPath, bytes.NewBufferString(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return p.send(req)
}

func TestTokenEndpoint(t *testing.T) {
	_, url := simtest.New(t, pnapsim.Config{}, simtest.Seed())
	p := newPlain(t, url)
	for body, want := range map[string]string{
		"client_id=x&client_secret=y":                               `400 {"error":"invalid_request","error_description":"Missing form parameter: grant_type"}`,
		"grant_type=password":                                       `400 {"error":"unsupported_grant_type","error_description":"Unsupported grant_type"}`,
		"grant_type=client_credentials&client_id=x&client_secret=y": `401 {"error":"invalid_client","error_description":"Invalid client or Invalid client credentials"}`,
	} {
		got := p.form(body)
		if shown := fmt.Sprintf("%d %s", got.status, got.body); shown != want {
			t.Errorf("%s: %s, want %s", body, shown, want)
		}
	}
	narrow := p.form("grant_type=client_credentials&client_id=" + simtest.ClientID + "&client_secret=" +
		simtest.ClientSecret + "&scope=bmc.read+else")
	if scope := decodeAnswer[map[string]any](t, narrow)["scope"]; scope != "bmc.read" {
		t.Errorf("scope %q, want what was asked for and may be had", scope)
	}
}

// TestRandomWalks lets a client and the portal's user do random things under random switches; the
// simulator asserts its own invariants after every step, and its answers against the documents.
func TestRandomWalks(t *testing.T) {
	for n := range seeds.Count(t, 15) {
		seed := rand.Uint64()
		t.Run(fmt.Sprintf("walk-%d", n), func(t *testing.T) {
			t.Logf("seed %d", seed)
			walk(t, rand.New(rand.NewPCG(seed, 1)))
		})
	}
}

func walk(t *testing.T, random *rand.Rand) {
	t.Helper()
	account := simtest.Account()
	account.Clients[0].Judged = false
	account.Servers[1].ReservationID = "fc8bd49a-59cc-4538-a806-5e46228408ec"
	account.Blocks = append(account.Blocks, pnapsim.BlockSeed{Location: "ASH", CIDR: "198.51.100.0/29",
		Tags: map[string]string{"a": "b"}})
	latency := pnapsim.DefaultLatency()
	latency.ListLag = pnapsim.Duration(random.IntN(10)) * pnapsim.Duration(time.Second)
	sim, url := simtest.New(t, pnapsim.Config{Switches: pnapsim.RandomSwitches(random), Latency: &latency,
		RandomSeed: random.Uint64()},
		pnapsim.Seed{Accounts: []pnapsim.AccountSeed{account}})
	p := newPlain(t, url)
	w := &walker{t: t, sim: sim, p: p, random: random, networks: []string{simtest.NetworkID},
		servers: []string{simtest.Server1ID, simtest.Server2ID}}
	for range 150 {
		w.step()
		if t.Failed() {
			return
		}
	}
}

// walker does one random thing after the other.
type walker struct {
	t        *testing.T
	sim      *pnapsim.Sim
	p        *plain
	random   *rand.Rand
	networks []string
	servers  []string
}

func pick[T any](random *rand.Rand, from []T) T { return from[random.IntN(len(from))] }

func (w *walker) block() string {
	var ids []string
	for _, b := range w.sim.State(simtest.AccountID).Blocks {
		ids = append(ids, fmt.Sprint(b["id"]))
	}
	return pick(w.random, append(ids, "6047127fed34ecc3ba84ffff"))
}

func (w *walker) step() {
	p, block, network, server := w.p, w.block(), pick(w.random, w.networks), pick(w.random, w.servers)
	assign := "/networks/v1/public-networks/" + network + "/ip-blocks"
	force := pick(w.random, []string{"", "?force=true", "?force=false"})
	got := answer{status: http.StatusOK}
	switch w.random.IntN(16) {
	case 0, 1:
		size := pick(w.random, []string{"/31", "/30", "/29", "/28"})
		got = p.do(http.MethodPost, "/ips/v1/ip-blocks",
			map[string]any{"location": pick(w.random, []string{"ASH", "ASH", "PHX"}), "cidrBlockSize": size})
	case 2, 3, 4:
		got = p.do(http.MethodPost, assign, map[string]any{"id": block})
	case 5, 6:
		got = p.do(http.MethodDelete, assign+"/"+block+force, nil)
	case 7:
		got = p.delete(block)
	case 8:
		ip := fmt.Sprintf("203.0.113.%d", w.random.IntN(40))
		got = p.do(http.MethodPost, membershipPath(server)+force, map[string]any{"id": network, "ips": []string{ip}})
	case 9:
		got = p.do(http.MethodDelete, membershipPath(server)+"/"+network, nil)
	case 10:
		got = w.action(server)
	case 11:
		w.portal(block, network, server)
	case 12:
		got = p.do(http.MethodPost, "/bmc/v1/servers/"+server+
			"/network-configuration/ip-block-configurations/ip-blocks", map[string]any{"id": block})
	case 13:
		w.outcome()
	default:
		w.sim.Advance(time.Duration(w.random.IntN(60)) * time.Second)
		w.read()
		p.login()
	}
	if got.status == 0 || got.status >= http.StatusInternalServerError {
		w.t.Errorf("answer %d %s", got.status, got.body)
	}
}

func (w *walker) read() {
	w.t.Helper()
	for _, path := range []string{"/ips/v1/ip-blocks?tag=a.b", "/networks/v1/public-networks", "/bmc/v1/servers",
		"/tag-manager/v1/tags", "/bmc/v1/quotas"} {
		w.p.login()
		w.p.must(http.StatusOK, http.MethodGet, path, nil)
	}
}

func (w *walker) action(server string) answer {
	actions := []string{"power-on", "power-off", "reboot", "shutdown"}
	if w.random.IntN(4) > 0 {
		return w.p.do(http.MethodPost, "/bmc/v1/servers/"+server+"/actions/"+pick(w.random, actions), nil)
	}
	return w.p.do(http.MethodPost, "/bmc/v1/servers/"+server+"/actions/deprovision",
		map[string]any{"deleteIpBlocks": w.random.IntN(2) == 0})
}

func (w *walker) portal(block, network, server string) {
	e := pnapsim.Edit{Block: block, Network: network, Server: server, Tags: map[string]string{"a": "c"},
		Hostname: "renamed"}
	e.Kind = pick(w.random, []string{
		pnapsim.EditDeleteBlock, pnapsim.EditUnassignBlock, pnapsim.EditRetagBlock, pnapsim.EditRenameServer,
		pnapsim.EditRemoveMember,
		pnapsim.EditAddMember,
	})
	if err := w.sim.OutOfBand(e); err != nil && !strings.Contains(err.Error(), "no ") {
		w.t.Error(err)
	}
}

func (w *walker) outcome() {
	f := pnapsim.Fault{Action: pnapsim.FaultOutcome,
		Delay: pnapsim.Duration(w.random.IntN(100)) * pnapsim.Duration(time.Second)}
	f.Outcome = pick(w.random, []string{pnapsim.OutcomeError, pnapsim.OutcomeRevert, pnapsim.OutcomeLate})
	f.Path = "/networks/v1/public-networks/*/ip-blocks*"
	arm(w.t, w.sim, f)
}

package pnapsim_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// trial is a situation with a client that gets it wrong and, beside it, one that gets it right. The
// simulator must report exactly the given rules for the first, and none for the second.
type trial struct {
	name    string
	cfg     pnapsim.Config
	account func(*pnapsim.AccountSeed)
	rules   []string
	naive   func(*testing.T, *pnapsim.Sim, *plain)
	careful func(*testing.T, *pnapsim.Sim, *plain)
}

func (tr trial) run(t *testing.T) {
	t.Helper()
	attempt := func(act func(*testing.T, *pnapsim.Sim, *plain), want []string) func(*testing.T) {
		return func(t *testing.T) {
			account := simtest.Account()
			if tr.account != nil {
				tr.account(&account)
			}
			sim, url := simtest.Unjudged(t, tr.cfg, pnapsim.Seed{Accounts: []pnapsim.AccountSeed{account}})
			act(t, sim, newPlain(t, url))
			if diff := cmp.Diff(want, rules(sim)); diff != "" {
				t.Errorf("rules broken (-want +got):\n%s%v", diff, sim.Violations())
			}
		}
	}
	t.Run(tr.name+"/naive", attempt(tr.naive, tr.rules))
	t.Run(tr.name+"/careful", attempt(tr.careful, nil))
}

// endOfRun is the leak check after all Services are gone.
func endOfRun(sim *pnapsim.Sim) {
	sim.Advance(10 * time.Minute)
	sim.LeakCheck(simtest.ClientID)
}

// release is what a careful client does until a block is gone, whatever its state.
func release(t *testing.T, sim *pnapsim.Sim, p *plain, id string) {
	t.Helper()
	for range 20 {
		got := p.do(http.MethodGet, "/ips/v1/ip-blocks/"+id, nil)
		if got.status == http.StatusForbidden {
			return
		}
		switch b := decodeAnswer[blockAnswer](t, got); b.Status {
		case "unassigned":
			p.delete(id)
		case "assigned", "error assigning", "error unassigning":
			p.unassign(id)
		}
		sim.Advance(10 * time.Second)
	}
	t.Fatalf("block %s was not released", id)
}

// TestAPIDownPanics: the connection breaks before an answer, so there is no response to check. What
// gives the naive client away here is its own panic.
func TestAPIDownPanics(t *testing.T) {
	sim, url := simtest.Unjudged(t, pnapsim.Config{}, simtest.Seed())
	arm(t, sim, pnapsim.Fault{Action: pnapsim.FaultReset, Times: -1})
	exists := func(checkFirst bool) (panicked bool) {
		defer func() { panicked = recover() != nil }()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/bmc/v1/servers/"+simtest.Server1ID,
			nil)
		if err != nil {
			t.Error(err)
			return
		}
		resp, err := http.DefaultTransport.RoundTrip(req)
		if checkFirst && err != nil {
			return
		}
		_ = resp.StatusCode == http.StatusForbidden
		_ = resp.Body.Close()
		return
	}
	if !exists(false) {
		t.Error("looking at the response before the error did not panic: there was an answer")
	}
	if exists(true) {
		t.Error("looking at the error first panicked")
	}
}

//proves:known-bugs/kind-simulator
func TestNaiveLives(t *testing.T) {
	slow := pnapsim.DefaultLatency()
	slow.Assign = pnapsim.Duration(time.Minute)
	trials := []trial{
		{
			name: "publishes before the block is assigned", cfg: pnapsim.Config{Latency: &slow},
			rules: []string{"claim-published"},
			naive: func(t *testing.T, sim *pnapsim.Sim, p *plain) {
				b := p.buy()
				sim.Advance(time.Second)
				p.assign(b.ID)
				claim(t, sim, pnapsim.Claim{Kind: pnapsim.ClaimPublished, Service: "default/web", Block: b.ID,
					Address: ""})
			},
			careful: func(t *testing.T, sim *pnapsim.Sim, p *plain) {
				b := p.buy()
				sim.Advance(time.Second)
				p.assign(b.ID)
				for p.block(b.ID).Status != "assigned" {
					sim.Advance(5 * time.Second)
				}
				claim(t, sim, pnapsim.Claim{Kind: pnapsim.ClaimPublished, Service: "default/web", Block: b.ID,
					Address: third(t, b)})
			},
		},
		{
			name: "assignment fails, then the Service goes", rules: []string{"leak"},
			naive: func(t *testing.T, sim *pnapsim.Sim, p *plain) {
				failedAssignment(t, sim, p) // no address was published: nothing to delete, it thinks
				endOfRun(sim)
			},
			careful: func(t *testing.T, sim *pnapsim.Sim, p *plain) {
				release(t, sim, p, failedAssignment(t, sim, p))
				endOfRun(sim)
			},
		},
		{
			name: "gives up a deletion that fails once", rules: []string{"leak"},
			naive: func(t *testing.T, sim *pnapsim.Sim, p *plain) {
				b := p.buyAssigned(sim)
				published := third(t, b)
				for range 2 { // the retry finds no published address
					if published == "" {
						break
					}
					published = ""
					arm(t, sim, pnapsim.Fault{Method: http.MethodPut, Action: pnapsim.FaultStatus,
						Status: http.StatusInternalServerError})
					p.do(http.MethodPut, "/ips/v1/ip-blocks/"+b.ID+"/tags", []any{})
				}
				endOfRun(sim)
			},
			careful: func(t *testing.T, sim *pnapsim.Sim, p *plain) {
				b := p.buyAssigned(sim)
				arm(t, sim, pnapsim.Fault{Method: http.MethodDelete, Action: pnapsim.FaultStatus,
					Status: http.StatusInternalServerError})
				release(t, sim, p, b.ID)
				endOfRun(sim)
			},
		},
		{
			name: "collector stuck at the first of three", rules: []string{"leak"},
			naive: func(t *testing.T, sim *pnapsim.Sim, p *plain) {
				ids := threeBlocks(t, sim, p)
				for range 3 {
					for range ids {
						p.unassign(ids[0]) // the wrong index
						sim.Advance(40 * time.Second)
					}
				}
				endOfRun(sim)
			},
			careful: func(t *testing.T, sim *pnapsim.Sim, p *plain) {
				for _, id := range threeBlocks(t, sim, p) {
					release(t, sim, p, id)
				}
				endOfRun(sim)
			},
		},
		{
			name: "the eleventh block", account: nineBlocksMore, rules: []string{"leak"},
			naive: func(t *testing.T, sim *pnapsim.Sim, p *plain) {
				b := p.buy()
				sim.Advance(time.Second)
				if got := p.assign(b.ID); got.status != http.StatusBadRequest {
					t.Errorf("assign: %d %s, want 400", got.status, got.body)
				}
				endOfRun(sim)
			},
			careful: func(t *testing.T, sim *pnapsim.Sim, p *plain) {
				network := decodeAnswer[struct {
					Blocks []any `json:"ipBlocks"`
				}](t, p.must(http.StatusOK, http.MethodGet, "/networks/v1/public-networks/"+simtest.NetworkID, nil))
				if len(network.Blocks) < 10 {
					p.buy()
				}
				endOfRun(sim)
			},
		},
		{
			name: "withdraws the block before the address", rules: []string{"unassign-published"},
			naive: func(t *testing.T, sim *pnapsim.Sim, p *plain) {
				b := p.buyAssigned(sim)
				claim(t, sim, pnapsim.Claim{Kind: pnapsim.ClaimPublished, Service: "default/web", Block: b.ID,
					Address: third(t, b)})
				p.unassign(b.ID)
			},
			careful: func(t *testing.T, sim *pnapsim.Sim, p *plain) {
				b := p.buyAssigned(sim)
				claim(t, sim, pnapsim.Claim{Kind: pnapsim.ClaimPublished, Service: "default/web", Block: b.ID,
					Address: third(t, b)})
				claim(t, sim, pnapsim.Claim{Kind: pnapsim.ClaimWithdrawn, Service: "default/web"})
				p.unassign(b.ID)
			},
		},
	}
	for _, tr := range trials {
		tr.run(t)
	}
}

func failedAssignment(t *testing.T, sim *pnapsim.Sim, p *plain) string {
	t.Helper()
	arm(t, sim, pnapsim.Fault{Method: http.MethodPost, Path: assignPath(), Action: pnapsim.FaultOutcome,
		Outcome: pnapsim.OutcomeError})
	b := p.buy()
	sim.Advance(time.Second)
	p.assign(b.ID)
	sim.Advance(30 * time.Second)
	if got := p.block(b.ID).Status; got != "error assigning" {
		t.Fatalf("status %q, want error assigning", got)
	}
	return b.ID
}

// threeBlocks are assigned; the first unassignment of the first fails twice.
func threeBlocks(t *testing.T, sim *pnapsim.Sim, p *plain) []string {
	t.Helper()
	var ids []string
	for range 3 {
		ids = append(ids, p.buyAssigned(sim).ID)
	}
	arm(t, sim, pnapsim.Fault{
		Method: http.MethodDelete, Path: assignPath() + "/" + ids[0], Action: pnapsim.FaultOutcome,
		Outcome: pnapsim.OutcomeError, Times: 2,
	})
	return ids
}

func nineBlocksMore(a *pnapsim.AccountSeed) {
	for i := range 9 {
		a.Blocks = append(a.Blocks, pnapsim.BlockSeed{
			Location: "ASH", Network: simtest.NetworkID,
			CIDR: "198.51.100." + []string{"0", "8", "16", "24", "32", "40", "48", "56", "64"}[i] + "/29",
		})
	}
}

// TestFreshTag: a tag is refused until it has spread. What gives the naive client away is that it has
// nothing in the end.
func TestFreshTag(t *testing.T) {
	sim, url := simtest.New(t, pnapsim.Config{}, simtest.Seed())
	p := newPlain(t, url)
	p.must(http.StatusCreated, http.MethodPost, "/tag-manager/v1/tags",
		map[string]any{"name": "cluster", "isBillingTag": false})
	tagged := purchase()
	tagged["tags"] = []any{map[string]any{"name": "cluster", "value": "c1"}}
	if got := p.do(http.MethodPost, "/ips/v1/ip-blocks", tagged); got.status != http.StatusBadRequest {
		t.Errorf("at once: %d %s, want 400", got.status, got.body)
	}
	sim.Advance(5 * time.Second)
	p.must(http.StatusCreated, http.MethodPost, "/ips/v1/ip-blocks", tagged)
}

//
//nolint:bodyclose // the SDK has read and closed it
//proves:known-bugs/kind-simulator
func TestNaiveBeliefs(t *testing.T) {
	revoked := pnapsim.Fault{Path: "/*/*/*/*", Action: pnapsim.FaultStatus, Status: http.StatusForbidden, Times: -1,
		For: pnapsim.Duration(2 * time.Minute)}
	revokedList := revoked
	revokedList.Path = "/*/*/*"
	server := func(p *plain, id string) answer { return p.do(http.MethodGet, "/bmc/v1/servers/"+id, nil) }
	type serverAnswer struct {
		ID      string   `json:"id"`
		Host    string   `json:"hostname"`
		Status  string   `json:"status"`
		Private []string `json:"privateIpAddresses"`
		Public  []string `json:"publicIpAddresses"`
	}
	const privateOnly = "5fa54d1e91867c03a0a7b4a6"
	drop := pnapsim.Fault{Path: "/bmc/v1/servers", Action: pnapsim.FaultDropField, Field: "hostname", Element: 1}
	trials := []trial{
		{
			name: "403 is taken for gone", rules: []string{"claim-server-gone"},
			naive: func(t *testing.T, sim *pnapsim.Sim, p *plain) {
				arm(t, sim, revoked)
				if server(p, simtest.Server1ID).status == http.StatusForbidden {
					claim(t, sim, pnapsim.Claim{Kind: pnapsim.ClaimServerGone, Server: simtest.Server1ID})
				}
			},
			careful: func(t *testing.T, sim *pnapsim.Sim, p *plain) {
				arm(t, sim, revoked)
				arm(t, sim, revokedList)
				if server(p, simtest.Server1ID).status == http.StatusForbidden &&
					p.do(http.MethodGet, "/bmc/v1/servers", nil).status == http.StatusOK {
					claim(t, sim, pnapsim.Claim{Kind: pnapsim.ClaimServerGone, Server: simtest.Server1ID})
				}
				sim.Advance(2 * time.Minute)
				if got := server(p, simtest.Server1ID); got.status != http.StatusOK {
					t.Errorf("after two minutes: %d", got.status)
				}
			},
		},
		{
			name: "private-only server", rules: []string{"claim-server-unusable"},
			account: func(a *pnapsim.AccountSeed) {
				a.Servers = append(a.Servers, pnapsim.ServerSeed{
					ID: privateOnly, Hostname: "inner", Location: "ASH", NetworkType: "PRIVATE_ONLY",
					PrivateIPs: []string{"10.0.0.13"},
				})
			},
			naive: func(t *testing.T, sim *pnapsim.Sim, p *plain) {
				if s := decodeAnswer[serverAnswer](t, server(p, privateOnly)); len(s.Public) == 0 {
					claim(t, sim, pnapsim.Claim{Kind: pnapsim.ClaimServerUnusable, Server: s.ID})
				}
			},
			careful: func(t *testing.T, sim *pnapsim.Sim, p *plain) {
				if s := decodeAnswer[serverAnswer](t, server(p, privateOnly)); len(s.Public)+len(s.Private) == 0 {
					claim(t, sim, pnapsim.Claim{Kind: pnapsim.ClaimServerUnusable, Server: s.ID})
				}
			},
		},
		{
			name: "reserved is taken for alive", rules: []string{"claim-server-alive"},
			account: func(a *pnapsim.AccountSeed) {
				a.Servers[0].ReservationID = "fc8bd49a-59cc-4538-a806-5e46228408ec"
			},
			naive: func(t *testing.T, sim *pnapsim.Sim, p *plain) {
				edit(t, sim, pnapsim.Edit{Kind: pnapsim.EditDeleteServer, Server: simtest.Server1ID})
				sim.Advance(10 * time.Minute)
				if server(p, simtest.Server1ID).status == http.StatusOK {
					claim(t, sim, pnapsim.Claim{Kind: pnapsim.ClaimServerAlive, Server: simtest.Server1ID})
				}
			},
			careful: func(t *testing.T, sim *pnapsim.Sim, p *plain) {
				edit(t, sim, pnapsim.Edit{Kind: pnapsim.EditDeleteServer, Server: simtest.Server1ID})
				sim.Advance(10 * time.Minute)
				kind := pnapsim.ClaimServerAlive
				if decodeAnswer[serverAnswer](t, server(p, simtest.Server1ID)).Status == "reserved" {
					kind = pnapsim.ClaimServerGone
				}
				claim(t, sim, pnapsim.Claim{Kind: kind, Server: simtest.Server1ID})
			},
		},
		{
			name: "one server in the list lacks a field", rules: []string{"claim-server-unusable"},
			naive: func(t *testing.T, sim *pnapsim.Sim, p *plain) {
				arm(t, sim, drop)
				if _, _, err := newSDK(t.Context(),
					p.url).servers.ServersAPI.ServersGet(t.Context()).Execute(); err != nil {
					claim(t, sim, pnapsim.Claim{Kind: pnapsim.ClaimServerUnusable, Server: simtest.Server1ID})
				}
			},
			careful: func(t *testing.T, sim *pnapsim.Sim, p *plain) {
				arm(t, sim, drop)
				list := decodeAnswer[[]serverAnswer](t, p.do(http.MethodGet, "/bmc/v1/servers", nil))
				if !slices.ContainsFunc(list, func(s serverAnswer) bool { return s.Host == "node-1" }) {
					claim(t, sim, pnapsim.Claim{Kind: pnapsim.ClaimServerUnusable, Server: simtest.Server1ID})
				}
			},
		},
	}
	for _, tr := range trials {
		tr.run(t)
	}
}

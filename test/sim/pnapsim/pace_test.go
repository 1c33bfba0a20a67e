package pnapsim_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

func ignore(*testing.T, *pnapsim.Sim, *plain) {}

const foreignBlock = "6047127fed34ecc3ba8402d9"

// foreign adds an assigned block of the portal's user with the tag that some controllers collect by.
func foreign(grants ...string) func(*pnapsim.AccountSeed) {
	return func(a *pnapsim.AccountSeed) {
		a.Blocks = append(a.Blocks, pnapsim.BlockSeed{
			ID: foreignBlock, Location: "ASH", CIDR: "198.51.100.0/29", Network: simtest.NetworkID,
			Tags: map[string]string{"delete": "false"}, Grants: grants,
		})
	}
}

//proves:known-bugs/kind-simulator
func TestNaivePurchases(t *testing.T) {
	one := 1
	lost := pnapsim.Fault{Method: http.MethodPost, Path: "/ips/v1/ip-blocks", Action: pnapsim.FaultLost}
	trials := []trial{
		{
			name: "buys again after a lost answer", rules: []string{"needless-purchase", "repeated-post"},
			naive: func(t *testing.T, sim *pnapsim.Sim, p *plain) {
				arm(t, sim, lost)
				for range 2 {
					if p.do(http.MethodPost, "/ips/v1/ip-blocks", purchase()).status != 0 {
						break
					}
				}
			},
			careful: func(t *testing.T, sim *pnapsim.Sim, p *plain) {
				arm(t, sim, lost)
				if p.do(http.MethodPost, "/ips/v1/ip-blocks", purchase()).status != 0 {
					t.Error("the answer was not lost")
				}
				sim.Advance(time.Minute)
				if got := p.blocks(); len(got) != 2 { // the node block, and the one to adopt
					t.Errorf("blocks %v, want two", got)
				}
			},
		},
		{
			name: "two controllers buy for the same Service", rules: []string{"needless-purchase"},
			naive: func(_ *testing.T, _ *pnapsim.Sim, p *plain) {
				first := len(p.blocks())
				second := len(p.blocks()) // both look before either buys
				if first == 1 {
					p.buy()
				}
				if second == 1 {
					p.buy()
				}
			},
			careful: func(_ *testing.T, _ *pnapsim.Sim, p *plain) {
				for range 2 {
					if len(p.blocks()) == 1 {
						p.buy()
					}
				}
			},
		},
		{
			name: "spends more than it declared", rules: []string{"money"},
			account: func(a *pnapsim.AccountSeed) { a.Clients[0].MaxPurchases = &one },
			naive: func(_ *testing.T, sim *pnapsim.Sim, p *plain) {
				p.buyAssigned(sim)
				p.buyAssigned(sim)
			},
			careful: func(_ *testing.T, sim *pnapsim.Sim, p *plain) { p.buyAssigned(sim) },
		},
		{
			name: "collects a foreign block", account: foreign(), rules: []string{"foreign-object"},
			naive: func(_ *testing.T, sim *pnapsim.Sim, p *plain) {
				for _, b := range p.blocks() {
					if len(b.Tags) > 0 && b.Tags[0].Name == "delete" {
						p.unassign(b.ID)
						sim.Advance(time.Minute)
						p.delete(b.ID)
					}
				}
			},
			careful: func(t *testing.T, _ *pnapsim.Sim, p *plain) {
				if got := p.block(foreignBlock).Status; got != "assigned" {
					t.Errorf("status %q", got)
				}
			},
		},
		{
			name:    "deletes a brought block that it may only use",
			account: foreign(pnapsim.GrantAssign, pnapsim.GrantUnassign),
			rules:   []string{"foreign-object"},
			naive: func(_ *testing.T, sim *pnapsim.Sim, p *plain) {
				p.unassign(foreignBlock)
				sim.Advance(time.Minute)
				p.delete(foreignBlock)
			},
			careful: func(_ *testing.T, sim *pnapsim.Sim, p *plain) {
				p.unassign(foreignBlock)
				sim.Advance(time.Minute)
				p.assign(foreignBlock)
			},
		},
		{
			name: "meddles with servers and networks of others", rules: []string{"foreign-object"},
			naive: func(_ *testing.T, _ *pnapsim.Sim, p *plain) {
				p.do(http.MethodPost, "/bmc/v1/servers/"+simtest.Server1ID+"/actions/reboot", nil)
				p.do(http.MethodDelete, membershipPath(simtest.Server2ID)+"/"+simtest.NetworkID, nil)
				p.do(http.MethodPatch, "/networks/v1/public-networks/"+simtest.NetworkID,
					map[string]any{"name": "mine"})
			},
			careful: ignore,
		},
	}
	for _, tr := range trials {
		tr.run(t)
	}
}

func membershipPath(server string) string {
	return "/bmc/v1/servers/" + server + "/network-configuration/public-network-configuration/public-networks"
}

func TestNaivePace(t *testing.T) {
	list := "/ips/v1/ip-blocks"
	failing := func(status, times int) pnapsim.Fault {
		return pnapsim.Fault{Method: http.MethodGet, Path: list, Action: pnapsim.FaultStatus, Status: status,
			RetryAfter: 30, Times: times}
	}
	get := func(p *plain, pause func()) {
		for range 4 {
			if p.do(http.MethodGet, list, nil).status == http.StatusOK {
				return
			}
			pause()
		}
	}
	trials := []trial{
		{
			name: "keeps a token that is over", cfg: pnapsim.Config{TokenLifetime: 5 * time.Second},
			rules: []string{"stale-token"},
			naive: func(_ *testing.T, sim *pnapsim.Sim, p *plain) {
				sim.Advance(5 * time.Second)
				get(p, func() { sim.Advance(time.Second) })
			},
			careful: func(t *testing.T, sim *pnapsim.Sim, p *plain) {
				sim.Advance(5 * time.Second)
				if got := p.do(http.MethodGet, list, nil); got.status != http.StatusUnauthorized {
					t.Errorf("an expired token: %d, want 401", got.status)
				}
				p.login()
				p.must(http.StatusOK, http.MethodGet, list, nil)
			},
		},
		{
			name: "comes before Retry-After", rules: []string{"retry-after"},
			naive: func(t *testing.T, sim *pnapsim.Sim, p *plain) {
				arm(t, sim, failing(http.StatusTooManyRequests, 2))
				get(p, func() { sim.Advance(29 * time.Second) })
			},
			careful: func(t *testing.T, sim *pnapsim.Sim, p *plain) {
				arm(t, sim, failing(http.StatusTooManyRequests, 2))
				get(p, func() { sim.Advance(30 * time.Second) })
			},
		},
		{
			name: "hammers after failures", rules: []string{"retry-backoff"},
			naive: func(t *testing.T, sim *pnapsim.Sim, p *plain) {
				arm(t, sim, failing(http.StatusServiceUnavailable, 3))
				get(p, func() { sim.Advance(300 * time.Millisecond) }) // constant
			},
			careful: func(t *testing.T, sim *pnapsim.Sim, p *plain) {
				arm(t, sim, failing(http.StatusServiceUnavailable, 3))
				pause := 250 * time.Millisecond
				get(p, func() { sim.Advance(pause); pause *= 2 })
			},
		},
		{
			name: "repeats at once after 409", account: func(a *pnapsim.AccountSeed) { busyByPortal(a) },
			rules: []string{"retry-conflict"},
			naive: func(t *testing.T, sim *pnapsim.Sim, p *plain) {
				edit(t, sim, pnapsim.Edit{Kind: pnapsim.EditNetworkStatus, Network: simtest.NetworkID, Status: "BUSY"})
				p.assign(ownBlock)
				p.assign(ownBlock)
			},
			careful: func(t *testing.T, sim *pnapsim.Sim, p *plain) {
				edit(t, sim, pnapsim.Edit{Kind: pnapsim.EditNetworkStatus, Network: simtest.NetworkID, Status: "BUSY"})
				p.assign(ownBlock)
				sim.Advance(time.Second)
				p.assign(ownBlock)
			},
		},
		{
			name: "changes a network twice at a time", rules: []string{"concurrent-change"},
			naive: func(_ *testing.T, sim *pnapsim.Sim, p *plain) {
				a := p.buyAssigned(sim)
				b := p.buy()
				sim.Advance(time.Second)
				p.assign(b.ID)
				p.unassign(a.ID)
			},
			careful: func(_ *testing.T, sim *pnapsim.Sim, p *plain) {
				a := p.buyAssigned(sim)
				p.buyAssigned(sim)
				p.unassign(a.ID)
			},
		},
		{
			name: "forces what it did not declare", rules: []string{"force"},
			naive: func(_ *testing.T, sim *pnapsim.Sim, p *plain) {
				b := p.buyAssigned(sim)
				p.do(http.MethodDelete, assignPath()+"/"+b.ID+"?force=true", nil)
			},
			careful: func(_ *testing.T, sim *pnapsim.Sim, p *plain) {
				b := p.buyAssigned(sim)
				p.do(http.MethodDelete, assignPath()+"/"+b.ID+"?force=false", nil)
			},
		},
		{
			name: "asks for every node", account: func(a *pnapsim.AccountSeed) { a.Clients[0].RequestsPerMinute = 2 },
			rules: []string{"request-budget"},
			naive: func(_ *testing.T, _ *pnapsim.Sim, p *plain) {
				for range 3 {
					p.do(http.MethodGet, "/bmc/v1/servers", nil)
				}
			},
			careful: func(_ *testing.T, sim *pnapsim.Sim, p *plain) {
				for range 4 {
					p.do(http.MethodGet, "/bmc/v1/servers", nil)
					sim.Advance(30 * time.Second)
				}
			},
		},
		{
			name: "sends a secret where none belongs", rules: []string{"secret"},
			naive: func(_ *testing.T, _ *pnapsim.Sim, p *plain) {
				body := purchase()
				body["description"] = "bought with " + p.token
				p.do(http.MethodPost, list, body)
			},
			careful: func(_ *testing.T, _ *pnapsim.Sim, p *plain) { p.buy() },
		},
		{
			name: "sends what the documents do not know", rules: []string{"openapi-request"},
			naive: func(t *testing.T, _ *pnapsim.Sim, p *plain) {
				for _, path := range []string{list + "?page=2", "/ips/v1/blocks"} {
					p.do(http.MethodGet, path, nil)
				}
				if got := p.do(http.MethodPost, list,
					map[string]any{"location": "ASH"}); got.status != http.StatusBadRequest {
					t.Errorf("a body without cidrBlockSize: %d, want 400", got.status)
				}
			},
			careful: func(_ *testing.T, _ *pnapsim.Sim,
				p *plain) {
				p.do(http.MethodGet, list+"?tag=a.b&tag=c.d", nil)
			},
		},
	}
	for _, tr := range trials {
		tr.run(t)
	}
}

const ownBlock = "6047127fed34ecc3ba8402da"

func busyByPortal(a *pnapsim.AccountSeed) {
	a.Blocks = append(a.Blocks, pnapsim.BlockSeed{ID: ownBlock, Owner: simtest.ClientID, Location: "ASH",
		CIDR: "198.51.100.0/29"})
}

// TestSecretsStayOut: neither log nor violations repeat a secret that a client gave away.
func TestSecretsStayOut(t *testing.T) {
	sim, base := simtest.Unjudged(t, pnapsim.Config{}, simtest.Seed())
	p := newPlain(t, base)
	p.do(http.MethodGet, "/ips/v1/ip-blocks?tag="+url.QueryEscape(simtest.ClientSecret), nil)
	p.do(http.MethodPost, "/ips/v1/ip-blocks", map[string]any{"description": p.token})
	shown := fmt.Sprint(sim.Log(0), sim.Violations())
	if names := sim.FindSecrets(shown); names != nil {
		t.Errorf("log and violations hold %v", names)
	}
	if !slices.Equal(sim.FindSecrets(simtest.ClientSecret+p.token),
		[]string{"a token of client test-client", "the secret of client test-client"}) {
		t.Error("the secrets themselves are not found")
	}
	falsehoods, err := sim.Claim(pnapsim.Claim{Client: simtest.ClientID, Kind: pnapsim.ClaimLog,
		Text: "Authorization: Bearer " + p.token})
	if err != nil || len(falsehoods) != 1 {
		t.Errorf("a log with a token: %v, %v", falsehoods, err)
	}
}

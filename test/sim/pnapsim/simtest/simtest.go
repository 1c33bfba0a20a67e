// Package simtest serves a simulated phoenixNAP API to a Go test and fails the test for every broken rule.
package simtest

import (
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// loadSpecs reads the OpenAPI documents once in a test binary: that takes most of a second.
var loadSpecs = sync.OnceValues(func() (*pnapsim.Specs, error) {
	return pnapsim.LoadSpecs("")
})

// Specs returns the OpenAPI documents of the SDK modules.
func Specs(tb testing.TB) *pnapsim.Specs {
	tb.Helper()
	specs, err := loadSpecs()
	if err != nil {
		tb.Fatal(err)
	}
	return specs
}

// New makes a simulation with the OpenAPI documents and serves it until the test ends. It returns the
// base URL. Every violation fails the test.
func New(tb testing.TB, cfg pnapsim.Config, seed pnapsim.Seed) (*pnapsim.Sim, string) {
	tb.Helper()
	sim, url := Unjudged(tb, cfg, seed)
	tb.Cleanup(func() {
		for _, violation := range sim.Violations() {
			tb.Errorf("violation: %s", violation)
		}
	})
	return sim, url
}

// Unjudged is New for a test that checks the violations itself; only those of the simulator fail it.
func Unjudged(tb testing.TB, cfg pnapsim.Config, seed pnapsim.Seed) (*pnapsim.Sim, string) {
	tb.Helper()
	if cfg.Specs == nil {
		cfg.Specs = Specs(tb)
	}
	sim := pnapsim.New(cfg)
	if err := sim.Seed(seed); err != nil {
		tb.Fatal(err)
	}
	server := httptest.NewServer(sim.Handler())
	tb.Cleanup(func() {
		server.CloseClientConnections() // requests may hang on purpose
		server.Close()
		for _, violation := range sim.Violations() {
			if violation.Rule == "simulator" || violation.Rule == "openapi-response" {
				tb.Errorf("fault of the simulator: %s", violation)
			}
		}
	})
	return sim, server.URL
}

// Example IDs of the account that Account makes.
const (
	AccountID    = "test"
	ClientID     = "test-client"
	ClientSecret = "wJ0oZ1Jm0Qm3kq7v"
	NetworkID    = "60473c2509268bc77fd06d29"
	NodeBlockID  = "6047127fed34ecc3ba8402d2"
	Server1ID    = "5fa54d1e91867c03a0a7b4a4"
	Server2ID    = "5fa54d1e91867c03a0a7b4a5"
)

// Account is an account with a judged client, a location ASH, a public network on VLAN 20 with a /28 node
// block, and two private-only servers that are its members.
func Account() pnapsim.AccountSeed {
	member := func(id, name, private, public string) pnapsim.ServerSeed {
		return pnapsim.ServerSeed{
			ID: id, Hostname: name, Location: "ASH", NetworkType: "PRIVATE_ONLY", PrivateIPs: []string{private},
			Networks: []pnapsim.MembershipSeed{{Network: NetworkID, IPs: []string{public}}},
		}
	}
	return pnapsim.AccountSeed{
		ID:       AccountID,
		Clients:  []pnapsim.ClientSeed{{ID: ClientID, Secret: ClientSecret, Judged: true}},
		Networks: []pnapsim.NetworkSeed{{ID: NetworkID, Name: "public", Location: "ASH", VLAN: 20}},
		Blocks: []pnapsim.BlockSeed{{ID: NodeBlockID, Name: "nodes", Location: "ASH", CIDR: "203.0.113.0/28",
			Network: NetworkID}},
		Servers: []pnapsim.ServerSeed{
			member(Server1ID, "node-1", "10.0.0.11", "203.0.113.2"),
			member(Server2ID, "node-2", "10.0.0.12", "203.0.113.3"),
		},
	}
}

// Seed is the seed with only that account.
func Seed() pnapsim.Seed { return pnapsim.Seed{Accounts: []pnapsim.AccountSeed{Account()}} }

// Start is the time at which a manual clock for tests begins.
func Start() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

package pnap_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

const thirdServer = "5fa54d1e91867c03a0a7b4a6"

// world is an account with a server that is in no network yet, on a clock that the test moves.
func world(t *testing.T) (*pnapsim.Sim, *pnap.Client) {
	t.Helper()
	account := simtest.Account()
	account.Clients[0].AllowForce = []string{pnapsim.ForceJoin}
	account.Servers = append(account.Servers, pnapsim.ServerSeed{
		ID: thirdServer, Hostname: "node-3", Location: "ASH", NetworkType: "PRIVATE_ONLY",
		PrivateIPs: []string{"10.0.0.13"},
	})
	sim, url := simtest.New(t, pnapsim.Config{Clock: pnapsim.NewManualClock(simtest.Start())},
		pnapsim.Seed{Accounts: []pnapsim.AccountSeed{account}})
	client, err := pnap.New(pnap.Config{
		BaseURL: url, TokenURL: url + pnap.TokenPath, Now: sim.Clock().Now,
		Credentials: func() (string, string, error) { return simtest.ClientID, simtest.ClientSecret, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return sim, client
}

// memberships returns the server's memberships in the API.
func memberships(t *testing.T, client *pnap.Client) []pnap.Membership {
	t.Helper()
	server, err := client.Server(t.Context(), thirdServer)
	if err != nil {
		t.Fatal(err)
	}
	return server.PublicNetworks
}

func TestJoinAndLeave(t *testing.T) {
	for name, ips := range map[string][]netip.Addr{"with an address": {netip.MustParseAddr("203.0.113.4")},
		"without": nil} {
		t.Run(name, func(t *testing.T) {
			sim, client := world(t)
			if err := client.JoinNetwork(t.Context(), thirdServer, simtest.NetworkID, ips, len(ips) == 0); err != nil {
				t.Fatal(err)
			}
			if got := memberships(t, client); len(got) != 1 || got[0].Status == pnap.MembershipAssigned {
				t.Errorf("at first: %+v, want one that is in progress", got)
			}
			sim.Advance(10 * time.Minute)
			got := memberships(t, client)
			if len(got) != 1 || got[0].Network != simtest.NetworkID || got[0].Status != pnap.MembershipAssigned ||
				len(got[0].IPs) != len(ips) {
				t.Fatalf("in the end: %+v", got)
			}
			if again := client.JoinNetwork(t.Context(), thirdServer, simtest.NetworkID, ips,
				len(ips) == 0); !pnap.IsConflict(again) {
				t.Errorf("joining twice: got %v, want a conflict", again)
			}
			if err := client.LeaveNetwork(t.Context(), thirdServer, simtest.NetworkID); err != nil {
				t.Fatal(err)
			}
			sim.Advance(10 * time.Minute)
			if got := memberships(t, client); len(got) != 0 {
				t.Errorf("after leaving: %+v", got)
			}
		})
	}
}

func TestJoinIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		server, ip string
		force      bool
		is         func(error) bool
	}{
		"address of another member":       {thirdServer, "203.0.113.2", false, pnap.IsConflict},
		"gateway":                         {thirdServer, "203.0.113.1", false, pnap.IsRefused},
		"address of no block":             {thirdServer, "198.51.100.4", false, pnap.IsRefused},
		"no address, not forced":          {thirdServer, "", false, pnap.IsRefused},
		"server that is a member already": {simtest.Server1ID, "203.0.113.4", false, pnap.IsConflict},
		"unknown server":                  {"000000000000000000000000", "203.0.113.4", false, pnap.IsInaccessible},
	} {
		t.Run(name, func(t *testing.T) {
			_, client := world(t)
			var ips []netip.Addr
			if c.ip != "" {
				ips = append(ips, netip.MustParseAddr(c.ip))
			}
			err := client.JoinNetwork(t.Context(), c.server, simtest.NetworkID, ips, c.force)
			if err == nil || !c.is(err) {
				t.Errorf("got %v", err)
			}
		})
	}
}

package instances

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

const strangerID = "stranger-client"

// twoAccounts are the account of a cluster and another one with its own servers and a client with the same secret.
func twoAccounts(servers, strangers int) (seed pnapsim.Seed, ids []string) {
	seed = simtest.Seed()
	seed.Accounts[0].Servers = nil
	server := func(account, number int) pnapsim.ServerSeed {
		return pnapsim.ServerSeed{
			ID:       fmt.Sprintf("5fa54d1e91867c03a0a7%02x%02x", account, number),
			Hostname: fmt.Sprintf("a%dn%d", account, number),
			Location: "ASH", NetworkType: "PRIVATE_ONLY",
			PrivateIPs: []string{fmt.Sprintf("10.%d.0.%d", account, 20+number)},
		}
	}
	for i := range servers {
		seed.Accounts[0].Servers = append(seed.Accounts[0].Servers, server(0, i))
		ids = append(ids, seed.Accounts[0].Servers[i].ID)
	}
	stranger := pnapsim.AccountSeed{ID: "stranger",
		Clients: []pnapsim.ClientSeed{{ID: strangerID, Secret: simtest.ClientSecret, Judged: true}}}
	for i := range strangers {
		stranger.Servers = append(stranger.Servers, server(1, i))
	}
	seed.Accounts = append(seed.Accounts, stranger)
	return seed, ids
}

// With credentials of another account, from the start or later, and whatever the size of the cluster and of that
// account, with or without a public network: no Node is deleted, and events describe the solution.
func TestCredentialsOfAnotherAccountDeleteNoNode(t *testing.T) {
	for _, network := range []string{simtest.NetworkID, ""} {
		for _, count := range []int{1, 2, 10} {
			for _, from := range []time.Duration{0, time.Minute} {
				t.Run(fmt.Sprintf("network %q, %d Nodes, after %s", network, count, from), func(t *testing.T) {
					seed, ids := twoAccounts(count, 3)
					sim, url := simtest.New(t, pnapsim.Config{}, seed)
					w := newWorldAt(t, sim, url, time.Minute)
					w.config.Network.ID = network
					var nodes []*corev1.Node
					for i, id := range ids {
						nodes = append(nodes, w.node(fmt.Sprintf("n%d", i), id))
					}
					if deleted := w.watch(from, monitorPeriod, nodes...); len(deleted) > 0 {
						t.Fatalf("with the right credentials: deleted %v", deleted)
					}
					w.api.Client = newClient(t, sim, url, time.Minute, strangerID)
					if deleted := w.watch(15*time.Minute, 3*monitorPeriod, nodes...); len(deleted) > 0 {
						t.Errorf("deleted %v", deleted)
					}
					w.expectEvent("Warning PossibleNodeDeletion", "the Node is kept", "credentials")
				})
			}
		}
	}
}

// Without load balancers no public network is configured: then a server of the cluster in the list proves the account.
func TestAnotherServerProvesTheAccount(t *testing.T) {
	w := newWorld(t, simtest.Seed())
	w.config.Network.ID = ""
	node := w.node("node-1", simtest.Server1ID)
	w.edit(pnapsim.Edit{Kind: pnapsim.EditDeleteServer, Server: simtest.Server1ID})
	w.sim.Advance(10 * time.Minute)
	if _, err := w.exists(node, simtest.Server1ID); err == nil ||
		!strings.Contains(err.Error(), "no server of this cluster") {
		t.Fatalf("with a list of unknown servers: error %v", err)
	}
	w.expectEvent("Warning PossibleNodeDeletion", "the Node is kept")
	w.node("node-2", simtest.Server2ID)
	checkGone(t, w, node)
}

// A network that cannot be read for another reason proves nothing either.
func TestUnreadableNetworkKeepsNodes(t *testing.T) {
	for _, status := range []int{401, 403, 404, 500} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			w := newWorld(t, simtest.Seed())
			node := w.node("node-1", simtest.Server1ID)
			w.node("node-2", simtest.Server2ID)
			w.edit(pnapsim.Edit{Kind: pnapsim.EditDeleteServer, Server: simtest.Server1ID})
			w.arm(pnapsim.Fault{Path: "/networks/v1/public-networks/*", Action: pnapsim.FaultStatus, Status: status,
				Times: -1})
			w.sim.Advance(10 * time.Minute)
			if deleted := w.watch(5*time.Minute, monitorPeriod, node); len(deleted) > 0 {
				t.Errorf("deleted %v", deleted)
			}
			w.sim.Disarm()
			if deleted := w.watch(5*time.Minute, monitorPeriod, node); len(deleted) != 1 {
				t.Errorf("once the network is readable: deleted %v", deleted)
			}
		})
	}
}

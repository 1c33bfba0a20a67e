package controller

import (
	"fmt"
	"net/netip"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/sim/pnapsim"
)

// What the simulated account is called.
const (
	accountID    = "bench"
	clientID     = "bench-client"
	clientSecret = "dN3vQw8Zr1Lx5Tf0"
	networkID    = "60473c2509268bc77fd06d29"
	location     = "ASH"
)

// nodeBlock is large enough to hold an address for each of many members.
var nodeBlock = netip.MustParsePrefix("10.240.0.0/20")

// serverName is the hostname of a server and the name of its Node.
func serverName(i int) string { return fmt.Sprintf("node-%04d", i) }

// account has that many servers, all of them members of the public network.
func account(servers int, clusterUID string) pnapsim.Seed {
	seed := pnapsim.AccountSeed{
		ID: accountID, MaxServers: servers,
		Clients: []pnapsim.ClientSeed{{
			ID: clientID, Secret: clientSecret, Judged: true,
			OwnershipTags: map[string]string{contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: clusterUID},
		}},
		Networks: []pnapsim.NetworkSeed{{ID: networkID, Name: "public", Location: location, VLAN: 20}},
		Blocks: []pnapsim.BlockSeed{{Name: "nodes", Location: location, CIDR: nodeBlock.String(), Network: networkID,
			BringYourOwn: true}},
	}
	own := nodeBlock.Addr().Next().Next() // after network and gateway
	private := netip.MustParseAddr("10.0.0.11")
	for i := range servers {
		seed.Servers = append(seed.Servers, pnapsim.ServerSeed{
			Hostname: serverName(i), Location: location, NetworkType: "PRIVATE_ONLY",
			PrivateIPs: []string{private.String()},
			Networks:   []pnapsim.MembershipSeed{{Network: networkID, IPs: []string{own.String()}}},
		})
		own, private = own.Next(), private.Next()
	}
	return pnapsim.Seed{Accounts: []pnapsim.AccountSeed{seed}}
}

package pnapsim_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/phoenixnap/go-sdk-bmc/bmcapi/v3"
	"github.com/phoenixnap/go-sdk-bmc/ipapi/v3"
	"github.com/phoenixnap/go-sdk-bmc/locationapi/v4"
	"github.com/phoenixnap/go-sdk-bmc/networkapi/v4"
	"github.com/phoenixnap/go-sdk-bmc/tagapi/v3"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// sdk is the real SDK against a simulation.
type sdk struct {
	servers   *bmcapi.APIClient
	blocks    *ipapi.APIClient
	networks  *networkapi.APIClient
	tags      *tagapi.APIClient
	locations *locationapi.APIClient
}

func newSDK(ctx context.Context, baseURL string) *sdk {
	credentials := clientcredentials.Config{
		ClientID: simtest.ClientID, ClientSecret: simtest.ClientSecret,
		TokenURL:  baseURL + "/auth/realms/BMC/protocol/openid-connect/token",
		Scopes:    []string{"bmc", "bmc.read", "tags", "tags.read"},
		AuthStyle: oauth2.AuthStyleInParams,
	}
	client := credentials.Client(ctx)
	b := bmcapi.NewConfiguration()
	i := ipapi.NewConfiguration()
	n := networkapi.NewConfiguration()
	tg := tagapi.NewConfiguration()
	l := locationapi.NewConfiguration()
	b.HTTPClient = client
	i.HTTPClient = client
	n.HTTPClient = client
	tg.HTTPClient = client
	l.HTTPClient = client
	b.Servers = bmcapi.ServerConfigurations{{URL: baseURL + "/bmc/v1"}}
	i.Servers = ipapi.ServerConfigurations{{URL: baseURL + "/ips/v1"}}
	n.Servers = networkapi.ServerConfigurations{{URL: baseURL + "/networks/v1"}}
	tg.Servers = tagapi.ServerConfigurations{{URL: baseURL + "/tag-manager/v1"}}
	l.Servers = locationapi.ServerConfigurations{{URL: baseURL + "/location-api/v1"}}
	return &sdk{bmcapi.NewAPIClient(b), ipapi.NewAPIClient(i), networkapi.NewAPIClient(n), tagapi.NewAPIClient(tg),
		locationapi.NewAPIClient(l)}
}

//nolint:bodyclose // the SDK has read and closed it
func TestSDKLifeOfABlock(t *testing.T) {
	ctx := t.Context()
	sim, url := simtest.New(t, pnapsim.Config{}, simtest.Seed())
	api := newSDK(ctx, url)

	if _, _, err := api.tags.TagsAPI.TagsPost(ctx).TagCreate(*tagapi.NewTagCreate("cluster",
		false)).Execute(); err != nil {
		t.Fatal(err)
	}
	sim.Advance(5 * time.Second)
	create := ipapi.NewIpBlockCreate("ASH", "/29")
	create.SetTags([]ipapi.TagAssignmentRequest{{Name: "cluster", Value: ipapi.PtrString("c1")}})
	block, resp, err := api.blocks.IPBlocksAPI.IpBlocksPost(ctx).IpBlockCreate(*create).Execute()
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusCreated || block.GetStatus() != "creating" ||
		block.GetCidr() != "203.0.113.16/29" {
		t.Fatalf("bought %d %s %s, want 201 creating 203.0.113.16/29", resp.StatusCode, block.GetStatus(),
			block.GetCidr())
	}
	wantStatus := func(want string) {
		t.Helper()
		got, _, err := api.blocks.IPBlocksAPI.IpBlocksIpBlockIdGet(ctx, block.GetId()).Execute()
		if err != nil || got.GetStatus() != want {
			t.Fatalf("status %q (%v), want %q", got.GetStatus(), err, want)
		}
	}
	sim.Advance(time.Second)
	wantStatus("unassigned")

	_, resp, err = api.networks.PublicNetworksAPI.PublicNetworksNetworkIdIpBlocksPost(ctx, simtest.NetworkID).
		PublicNetworkIpBlockCreate(*networkapi.NewPublicNetworkIpBlockCreate(block.GetId())).Execute()
	if err != nil || resp.StatusCode != http.StatusAccepted {
		t.Fatal(resp, err)
	}
	wantStatus("assigning")
	network, _, err := api.networks.PublicNetworksAPI.PublicNetworksNetworkIdGet(ctx, simtest.NetworkID).Execute()
	if err != nil || network.Status != "BUSY" || len(network.IpBlocks) != 2 {
		t.Fatalf("network %+v, %v", network, err)
	}
	sim.Advance(30 * time.Second)
	wantStatus("assigned")
	if got := sim.DataPlane().Networks[0]; len(got.Blocks) != 2 || len(got.Members) != 2 {
		t.Fatalf("data plane %+v", got)
	}
	list, _, err := api.blocks.IPBlocksAPI.IpBlocksGet(ctx).Tag([]string{"cluster.c1"}).Execute()
	if err != nil || len(list) != 1 {
		t.Fatalf("list %v, %v", list, err)
	}

	_, _, err = api.networks.PublicNetworksAPI.PublicNetworksNetworkIdIpBlocksIpBlockIdDelete(ctx, simtest.NetworkID,
		block.GetId()).Execute()
	if err != nil {
		t.Fatal(err)
	}
	wantStatus("unassigning")
	if got := sim.DataPlane().Networks[0]; len(got.Blocks) != 1 {
		t.Fatalf("a block that is unassigning has no gateway any more: %+v", got)
	}
	sim.Advance(30 * time.Second)
	if _, _, err := api.blocks.IPBlocksAPI.IpBlocksIpBlockIdDelete(ctx, block.GetId()).Execute(); err != nil {
		t.Fatal(err)
	}
	_, resp, err = api.blocks.IPBlocksAPI.IpBlocksIpBlockIdGet(ctx, block.GetId()).Execute()
	if err == nil || resp.StatusCode != http.StatusForbidden {
		t.Fatalf("a deleted block: %v, want 403", err)
	}
	if leaks := sim.LeakCheck(simtest.ClientID); len(leaks) != 0 {
		t.Errorf("leaks %v", leaks)
	}
	if bill := sim.Money(simtest.AccountID); bill.Purchases != 1 || bill.Deletions != 1 || bill.BlockSeconds != 61 ||
		bill.LiveBlocks != 1 {
		t.Errorf("bill %+v", bill)
	}
}

//nolint:bodyclose // the SDK has read and closed it
func TestSDKReadsServersLocationsQuotas(t *testing.T) {
	ctx := t.Context()
	_, url := simtest.New(t, pnapsim.Config{}, simtest.Seed())
	api := newSDK(ctx, url)
	servers, _, err := api.servers.ServersAPI.ServersGet(ctx).Execute()
	if err != nil || len(servers) != 2 {
		t.Fatalf("servers %v, %v", servers, err)
	}
	if got := servers[0]; got.Hostname != "node-1" || got.PublicIpAddresses[0] != "203.0.113.2" ||
		got.PrivateIpAddresses[0] != "10.0.0.11" {
		t.Errorf("server %+v", got)
	}
	for place, want := range map[string]int{"ASH": 2, "PHX": 0} {
		there, _, err := api.servers.ServersAPI.ServersGet(ctx).Location([]string{place}).Execute()
		if err != nil || len(there) != want {
			t.Errorf("%d servers in %s (%v), want %d", len(there), place, err, want)
		}
	}
	one, _, err := api.servers.ServersAPI.ServersServerIdGet(ctx, simtest.Server2ID).Execute()
	if err != nil {
		t.Fatal(err)
	}
	if got := one.NetworkConfiguration.PublicNetworkConfiguration.PublicNetworks[0]; got.GetVlanId() != 20 ||
		got.GetStatusDescription() != "assigned" {
		t.Errorf("membership %+v, want assigned on VLAN 20", got)
	}
	sites, _, err := api.locations.LocationsAPI.GetLocations(ctx).Execute()
	if err != nil || len(sites) != 6 {
		t.Errorf("locations %v, %v", sites, err)
	}
	quotas, _, err := api.servers.QuotasAPI.QuotasGet(ctx).Execute()
	if err != nil || len(quotas) != 2 || quotas[0].Used != 2 {
		t.Errorf("quotas %v, %v", quotas, err)
	}
}

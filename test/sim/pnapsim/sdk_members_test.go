package pnapsim_test

import (
	"net/http"
	"time"

	"github.com/phoenixnap/go-sdk-bmc/bmcapi/v3"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

func update(ips ...string) bmcapi.ServerNetworkUpdate {
	body := bmcapi.NewServerNetworkUpdate()
	body.SetIps(ips)
	return *body
}

func serverNetworkUses() []use {
	return append([]use{
		{"ServersServerIdPublicNetworksDelete", "delete server-public-network", "", func(r *sdkRun) {
			leave := r.serverAPI().ServersServerIdPublicNetworksDelete(r.ctx, r.server, r.network)
			ask(r, http.StatusAccepted, leave.Execute)
			ask(r, http.StatusConflict, leave.Execute) // a change is in progress
			r.wait(time.Minute)
			ask(r, http.StatusForbidden, leave.Execute)
		}},
		{"ServersServerIdPublicNetworksPost", "create server-public-network", "", func(r *sdkRun) {
			join := r.serverAPI().ServersServerIdPublicNetworksPost(r.ctx, r.server)
			taken := *bmcapi.NewServerPublicNetwork(r.network, []string{"203.0.113.3"})
			ask(r, http.StatusConflict, join.ServerPublicNetwork(taken).Force(false).Execute)
			free := *bmcapi.NewServerPublicNetwork(r.network, []string{"203.0.113.2"})
			r.same("status",
				ask(r, http.StatusAccepted, join.ServerPublicNetwork(free).Force(false).Execute).GetStatusDescription(),
				"in-progress")
			r.wait(time.Minute)
		}},
		{"ServersServerIdPublicNetworksPatch", "patch server public-network", "", func(r *sdkRun) {
			patch := r.serverAPI().ServersServerIdPublicNetworksPatch(r.ctx, r.server, r.network)
			got := ask(r, http.StatusOK, patch.ServerNetworkUpdate(update("203.0.113.4 - 203.0.113.5")).Execute)
			r.same("addresses", got.Ips, []string{"203.0.113.4 - 203.0.113.5"})
			ask(r, http.StatusBadRequest, patch.ServerNetworkUpdate(update("198.51.100.4")).Execute)
		}},
		{"ServersServerIdIpBlocksPost", "create server-ip-block", "", func(r *sdkRun) {
			r.block = r.buy("/31", "V4")
			attach := r.serverAPI().ServersServerIdIpBlocksPost(r.ctx, r.server)
			ask(r, http.StatusAccepted, attach.ServerIpBlock(*bmcapi.NewServerIpBlock(r.block)).Execute)
			r.wait(time.Minute)
			r.same("block", r.status(r.block), "assigned")
			more := *bmcapi.NewServerIpBlock(r.buy("/31", "V4"))
			ask(r, http.StatusConflict, attach.ServerIpBlock(more).Execute) // one of each version
		}},
		{"ServersServerIdIpBlocksIpBlockIdDelete", "delete server-ip-block", "", func(r *sdkRun) {
			too := bmcapi.NewRelinquishIpBlock()
			too.SetDeleteIpBlocks(true)
			detach := r.serverAPI().ServersServerIdIpBlocksIpBlockIdDelete(r.ctx, r.server, r.block)
			ask(r, http.StatusAccepted, detach.RelinquishIpBlock(*too).Execute)
			r.wait(time.Minute)
			ask(r, http.StatusForbidden, r.blocks.IPBlocksAPI.IpBlocksIpBlockIdGet(r.ctx, r.block).Execute)
		}},
	}, serverPrivateNetworkUses()...)
}

func serverPrivateNetworkUses() []use {
	return []use{
		{"ServersServerIdPrivateNetworksPost", "create server-private-network", "", joinPrivateNetwork},
		{"ServersServerIdPrivateNetworksPatch", "patch server private-network", "", func(r *sdkRun) {
			patch := r.serverAPI().ServersServerIdPrivateNetworksPatch(r.ctx, r.server, r.network)
			got := ask(r, http.StatusOK, patch.ServerNetworkUpdate(update("10.0.0.7")).Force(false).Execute)
			r.same("addresses", got.Ips, []string{"10.0.0.7"})
			r.same("of the server", r.current().PrivateIpAddresses, []string{"10.0.0.11", "10.0.0.7"})
			ask(r, http.StatusBadRequest, patch.ServerNetworkUpdate(update("10.0.0.1")).Execute) // the gateway's
			ask(r, http.StatusOK, patch.ServerNetworkUpdate(update("10.0.0.1")).Force(true).Execute)
		}},
		{"DeletePrivateNetwork", "delete server-private-network", "", func(r *sdkRun) {
			leave := r.serverAPI().DeletePrivateNetwork(r.ctx, r.server, r.network)
			ask(r, http.StatusAccepted, leave.Execute)
			ask(r, http.StatusConflict, leave.Execute)
			r.done(http.StatusBadRequest, r.privateAPI().PrivateNetworksNetworkIdDelete(r.ctx, r.network).Execute)
			r.wait(time.Minute)
			r.done(http.StatusNoContent, r.privateAPI().PrivateNetworksNetworkIdDelete(r.ctx, r.network).Execute)
		}},
	}
}

// joinPrivateNetwork joins one server with the next free address and another by DHCP.
func joinPrivateNetwork(r *sdkRun) {
	r.network = r.makePrivateNetwork("back").Id
	join := r.serverAPI().ServersServerIdPrivateNetworksPost(r.ctx, r.server).
		ServerPrivateNetwork(*bmcapi.NewServerPrivateNetwork(r.network)).Force(false)
	r.same("next free address", ask(r, http.StatusAccepted, join.Execute).Ips, []string{"10.0.0.2"})
	ask(r, http.StatusBadRequest, join.Execute) // the document lists no 409
	r.wait(time.Minute)
	dynamic := bmcapi.NewServerPrivateNetwork(r.network)
	dynamic.SetDhcp(true)
	other := r.serverAPI().ServersServerIdPrivateNetworksPost(r.ctx, simtest.Server2ID)
	r.same("by DHCP", ask(r, http.StatusAccepted, other.ServerPrivateNetwork(*dynamic).Execute).Ips, []string{})
	r.wait(time.Minute)
	got := ask(r, http.StatusOK, r.privateAPI().PrivateNetworksNetworkIdGet(r.ctx, r.network).Execute)
	r.same("members", []any{len(got.Memberships), got.Memberships[0].ResourceId, got.Memberships[0].Ips},
		[]any{2, r.server, []string{"10.0.0.2"}})
	ask(r, http.StatusAccepted, r.serverAPI().DeletePrivateNetwork(r.ctx, simtest.Server2ID, r.network).Execute)
	r.wait(time.Minute)
}

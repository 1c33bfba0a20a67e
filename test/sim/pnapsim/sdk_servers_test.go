package pnapsim_test

import (
	"net/http"
	"time"

	"github.com/phoenixnap/go-sdk-bmc/bmcapi/v3"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// unregistered commands are in the source of pnapctl 1.13.0, though it does not offer them.
const unregistered = " (not offered)"

func (r *sdkRun) serverAPI() bmcapi.ServersAPI { return r.servers.ServersAPI }

// current is the server of the story.
func (r *sdkRun) current() *bmcapi.Server {
	r.Helper()
	return ask(r, http.StatusOK, r.serverAPI().ServersServerIdGet(r.ctx, r.server).Execute)
}

// makeServer makes a server in ASH and waits until it is powered on.
func (r *sdkRun) makeServer(create *bmcapi.ServerCreate) *bmcapi.Server {
	r.Helper()
	made := ask(r, http.StatusOK, r.serverAPI().ServersPost(r.ctx).ServerCreate(*create).Force(false).Execute)
	r.same("status", made.Status, "creating")
	r.server = made.Id
	r.wait(5 * time.Minute)
	return r.current()
}

func newServer(hostname string) *bmcapi.ServerCreate {
	return bmcapi.NewServerCreate(hostname, "ubuntu/noble", "s1.c1.small", "ASH")
}

func serverUses() []use {
	return []use{
		{"ServersPost", "create server", "pnap_server", createServer},
		{"ServersGet", "get servers", "pnap_server (data)", func(r *sdkRun) {
			list := r.serverAPI().ServersGet(r.ctx)
			r.same("all", len(ask(r, http.StatusOK, list.Tag(nil).Location(nil).Execute)), 3)
			r.same("elsewhere", len(ask(r, http.StatusOK, list.Location([]string{"PHX", "SEA"}).Execute)), 0)
			r.same("tagged", len(ask(r, http.StatusOK, list.Tag([]string{"team.shop"}).Execute)), 0)
		}},
		{"ServersServerIdPatch", "patch server", "pnap_server", func(r *sdkRun) {
			change := bmcapi.NewServerPatch()
			change.SetHostname("store")
			patch := r.serverAPI().ServersServerIdPatch(r.ctx, r.server).ServerPatch(*change)
			r.same("hostname", ask(r, http.StatusOK, patch.Execute).Hostname, "store")
			r.same("unchanged", r.current().GetDescription(), "sells")
		}},
		{"ServersServerIdTagsPut", "tag server", "pnap_server", func(r *sdkRun) {
			r.makeTag("team")
			tag := bmcapi.NewTagAssignmentRequest("team")
			tag.SetValue("shop")
			put := r.serverAPI().ServersServerIdTagsPut(r.ctx, r.server)
			got := ask(r, http.StatusOK, put.TagAssignmentRequest([]bmcapi.TagAssignmentRequest{*tag}).Execute)
			r.same("value", got.Tags[0].GetValue(), "shop")
			of := r.tags.TagsAPI.TagsTagIdGet(r.ctx, r.tag)
			r.same("assigned", ask(r, http.StatusOK, of.Execute).ResourceAssignments[0].ResourceName,
				"/bmc/servers/"+r.server)
		}},
		{"ServersServerIdGet", "get server", "pnap_server", func(r *sdkRun) {
			got := r.current()
			r.same("state", []any{got.Status, got.GetNetworkType(), len(got.GetPublicIpAddresses())},
				[]any{"powered-on", "PUBLIC_AND_PRIVATE", 2})
		}},
		{"ServersServerIdDelete", "delete server" + unregistered, "", func(r *sdkRun) {
			r.same("ID", ask(r, http.StatusOK, r.serverAPI().ServersServerIdDelete(r.ctx, r.server).Execute).ServerId,
				r.server)
			ask(r, http.StatusForbidden, r.serverAPI().ServersServerIdDelete(r.ctx, r.network).Execute)
			r.wait(time.Minute)
			ask(r, http.StatusForbidden, r.serverAPI().ServersServerIdGet(r.ctx, r.server).Execute)
			ask(r, http.StatusForbidden, r.blocks.IPBlocksAPI.IpBlocksIpBlockIdGet(r.ctx, r.block).Execute)
		}},
	}
}

// createServer makes a server in networks and with a block of the user's, as the Terraform provider does.
func createServer(r *sdkRun) {
	private := r.makePrivateNetwork("back")
	r.block = r.buy("/31", "V4")
	create := newServer("shop")
	create.SetDescription("sells")
	create.SetNetworkType("USER_DEFINED")
	create.SetNetworkConfiguration(bmcapi.NetworkConfiguration{
		PrivateNetworkConfiguration: &bmcapi.PrivateNetworkConfiguration{
			ConfigurationType: bmcapi.PtrString("USER_DEFINED"),
			PrivateNetworks:   []bmcapi.ServerPrivateNetwork{*bmcapi.NewServerPrivateNetwork(private.Id)},
		},
		PublicNetworkConfiguration: &bmcapi.PublicNetworkConfiguration{
			PublicNetworks: []bmcapi.ServerPublicNetwork{
				*bmcapi.NewServerPublicNetwork(simtest.NetworkID, []string{"203.0.113.9"})},
		},
		IpBlocksConfiguration: &bmcapi.IpBlocksConfiguration{
			ConfigurationType: bmcapi.PtrString("USER_DEFINED"),
			IpBlocks:          []bmcapi.ServerIpBlock{*bmcapi.NewServerIpBlock(r.block)},
		},
	})
	made := r.makeServer(create)
	r.same("private addresses", made.PrivateIpAddresses, []string{"10.0.0.2"})
	public := made.NetworkConfiguration.PublicNetworkConfiguration.PublicNetworks[0]
	r.same("member", []any{public.GetStatusDescription(), public.GetVlanId()}, []any{"assigned", int32(20)})
	r.same("own block", []any{r.status(r.block), made.NetworkConfiguration.IpBlocksConfiguration.IpBlocks[0].Id},
		[]any{"assigned", r.block})
	create.NetworkConfiguration.PublicNetworkConfiguration = nil
	ask(r, http.StatusConflict, r.serverAPI().ServersPost(r.ctx).ServerCreate(*create).Execute) // the block is taken
}

// power is an action and the status that the server has then.
func (r *sdkRun) power(execute func() (*bmcapi.ActionResult, *http.Response, error), status string) {
	r.Helper()
	ask(r, http.StatusOK, execute)
	r.same("status", r.current().Status, status)
}

func serverActionUses() []use {
	return []use{
		{"ServersServerIdActionsPowerOffPost", "power-off server", "pnap_server", func(r *sdkRun) {
			off := r.serverAPI().ServersServerIdActionsPowerOffPost(r.ctx, r.server)
			r.power(off.Execute, "powered-off")
			ask(r, http.StatusConflict, off.Execute)
		}},
		{"ServersServerIdActionsPowerOnPost", "power-on server", "pnap_server", func(r *sdkRun) {
			r.power(r.serverAPI().ServersServerIdActionsPowerOnPost(r.ctx, r.server).Execute, "powered-on")
		}},
		{"ServersServerIdActionsRebootPost", "reboot server", "pnap_server", func(r *sdkRun) {
			reboot := r.serverAPI().ServersServerIdActionsRebootPost(r.ctx, r.server)
			without := bmcapi.NewRebootRequest()
			without.SetBootType("IPXE")
			ask(r, http.StatusBadRequest, reboot.RebootRequest(*without).Execute) // no URL is stored
			r.power(reboot.Execute, "rebooting")
			ask(r, http.StatusConflict, reboot.Execute)
			r.wait(time.Minute)
			r.same("status", r.current().Status, "powered-on")
		}},
		{"ServersServerIdActionsResetPost", "reset server", "pnap_server", func(r *sdkRun) {
			reset := r.serverAPI().ServersServerIdActionsResetPost(r.ctx, r.server)
			ask(r, http.StatusOK, reset.ServerReset(*bmcapi.NewServerReset()).Execute)
			r.same("status", r.current().Status, "resetting")
			r.wait(time.Minute)
		}},
		{"ServersServerIdActionsShutdownPost", "shutdown server", "pnap_server", func(r *sdkRun) {
			r.power(r.serverAPI().ServersServerIdActionsShutdownPost(r.ctx, r.server).Execute, "powered-off")
		}},
		{"ServersServerIdActionsReservePost", "reserve server", "pnap_server", func(r *sdkRun) {
			terms := *bmcapi.NewServerReserve("ONE_MONTH_RESERVATION")
			reserve := r.serverAPI().ServersServerIdActionsReservePost(r.ctx, r.server).ServerReserve(terms)
			r.same("terms", ask(r, http.StatusOK, reserve.Execute).PricingModel, terms.PricingModel)
			ask(r, http.StatusConflict, reserve.Execute)
		}},
		{"ServersServerIdActionsDeprovisionPost", "deprovision server", "pnap_server", func(r *sdkRun) {
			end := r.serverAPI().ServersServerIdActionsDeprovisionPost(r.ctx, r.server)
			ask(r, http.StatusAccepted, end.RelinquishIpBlock(*bmcapi.NewRelinquishIpBlock()).Execute)
			r.wait(time.Minute)
			r.same("a reserved server stays", r.current().Status, "reserved")
			ask(r, http.StatusConflict, end.RelinquishIpBlock(*bmcapi.NewRelinquishIpBlock()).Execute)
		}},
		{"ServersServerIdActionsProvisionPost", "provision server" + unregistered, "", provisionServer},
		{"ServersServerIdOsConfigurationIpxePut", "update server os-configuration ipxe", "pnap_server", putIPXE},
		{"ServersServerIdActionsTransferReservation", "transfer-reservation server", "pnap_server",
			transferReservation},
	}
}

// provisionServer installs the reserved server so that it boots a script.
func provisionServer(r *sdkRun) {
	again := bmcapi.NewServerProvision("store", "ipxe")
	provision := r.serverAPI().ServersServerIdActionsProvisionPost(r.ctx, r.server)
	ask(r, http.StatusBadRequest, provision.ServerProvision(*again).Execute) // without the script
	boot := bmcapi.NewOsConfigurationIPXE("https://example.com/boot.ipxe")
	again.SetOsConfiguration(bmcapi.OsConfiguration{IPXE: boot})
	again.SetNetworkConfiguration(bmcapi.NetworkConfiguration{
		PublicNetworkConfiguration: &bmcapi.PublicNetworkConfiguration{PublicNetworks: []bmcapi.ServerPublicNetwork{
			*bmcapi.NewServerPublicNetwork(simtest.NetworkID, []string{"203.0.113.2"})}},
	})
	r.same("status", ask(r, http.StatusAccepted, provision.ServerProvision(*again).Execute).Status, "creating")
	r.wait(5 * time.Minute)
	got := r.current()
	r.same("installed", []any{got.Hostname, got.Status, got.OsConfiguration.IPXE.Url},
		[]any{"store", "powered-on", boot.Url})
}

// putIPXE moves the script of the server, and boots over its public network.
func putIPXE(r *sdkRun) {
	native := bmcapi.NewOsConfigurationIPXENativeVlanConfiguration()
	native.SetVlanId(20)
	boot := bmcapi.NewOsConfigurationIPXE("https://example.com/new.ipxe")
	boot.SetNativeVlanConfiguration(*native)
	put := r.serverAPI().ServersServerIdOsConfigurationIpxePut(r.ctx, r.server)
	got := ask(r, http.StatusAccepted, put.OsConfigurationIPXE(*boot).Execute).NativeVlanConfiguration
	r.same("first free address", []string{got.GetStaticDhcpAddressV4(), got.GetStatus()},
		[]string{"203.0.113.4", "in-progress"})
	ask(r, http.StatusConflict, put.OsConfigurationIPXE(*boot).Execute) // a change is in progress
	r.wait(time.Minute)
	r.same("status", r.current().OsConfiguration.IPXE.NativeVlanConfiguration.GetStatus(), "assigned")
	native.SetVlanId(21)
	boot.SetNativeVlanConfiguration(*native)
	ask(r, http.StatusBadRequest, put.OsConfigurationIPXE(*boot).Execute) // no network of the server
	plain := bmcapi.NewOsConfigurationIPXE("https://example.com/last.ipxe")
	ask(r, http.StatusOK, put.OsConfigurationIPXE(*plain).Execute)
	other := r.serverAPI().ServersServerIdOsConfigurationIpxePut(r.ctx, simtest.Server2ID)
	ask(r, http.StatusConflict, other.OsConfigurationIPXE(*plain).Execute) // another operating system
}

// transferReservation moves the reservation of a broken server to the other one.
func transferReservation(r *sdkRun) {
	to := bmcapi.NewReservationTransferDetails(simtest.Server2ID)
	transfer := r.serverAPI().ServersServerIdActionsTransferReservation(r.ctx, r.server).ReservationTransferDetails(*to)
	ask(r, http.StatusConflict, transfer.Execute) // it works
	reservation := r.current().GetReservationId()
	edit(r.T, r.sim, pnapsim.Edit{Kind: pnapsim.EditServerStatus, Server: r.server, Status: "error"})
	r.same("successor", ask(r, http.StatusOK, transfer.Execute).GetSupersededBy(), simtest.Server2ID)
	old := r.server
	r.server = simtest.Server2ID
	got := r.current()
	r.same("moved", []string{got.GetReservationId(), got.PricingModel, got.GetSupersedes()},
		[]string{reservation, "ONE_MONTH_RESERVATION", old})
}

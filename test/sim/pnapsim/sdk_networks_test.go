package pnapsim_test

import (
	"net/http"
	"strings"
	"time"

	"github.com/phoenixnap/go-sdk-bmc/networkapi/v4"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

func publicNetworkUses() []use {
	return []use{
		{"PublicNetworksPost", "create public-network", "pnap_public_network", func(r *sdkRun) {
			r.block = r.buy("/29", "V4")
			create := networkapi.NewPublicNetworkCreate("shop", "ASH")
			create.SetIpBlocks([]networkapi.PublicNetworkIpBlockCreate{{Id: r.block}})
			list := r.networks.PublicNetworksAPI.PublicNetworksPost(r.ctx).PublicNetworkCreate(*create)
			made := ask(r, http.StatusCreated, list.Execute)
			r.same("status", made.Status, "BUSY")
			ask(r, http.StatusConflict, list.Execute)
			r.network = made.Id
			r.wait(time.Minute)
		}},
		{"PublicNetworksGet", "get public-networks", "pnap_public_network (data)", func(r *sdkRun) {
			list := r.networks.PublicNetworksAPI.PublicNetworksGet(r.ctx)
			r.same("all", len(ask(r, http.StatusOK, list.Execute)), 2)
			r.same("elsewhere", len(ask(r, http.StatusOK, list.Location("PHX").Execute)), 0)
		}},
		{"PublicNetworksNetworkIdGet", "get public-network", "pnap_public_network", func(r *sdkRun) {
			got := ask(r, http.StatusOK,
				r.networks.PublicNetworksAPI.PublicNetworksNetworkIdGet(r.ctx, r.network).Execute)
			r.same("state", []any{got.Status, got.IpBlocks[0].Id, got.VlanId}, []any{"READY", r.block, int32(2)})
		}},
		{"PublicNetworksNetworkIdPatch", "patch public-network", "pnap_public_network", func(r *sdkRun) {
			change := networkapi.NewPublicNetworkModify()
			change.SetName("store")
			patch := r.networks.PublicNetworksAPI.PublicNetworksNetworkIdPatch(r.ctx, r.network)
			r.same("name", ask(r, http.StatusOK, patch.PublicNetworkModify(*change).Execute).Name, "store")
			change.SetRaEnabled(true)
			ask(r, http.StatusBadRequest, patch.PublicNetworkModify(*change).Execute) // without an IPv6 block
		}},
		{"PublicNetworksNetworkIdIpBlocksIpBlockIdDelete", "delete public-network ip-block", "pnap_public_network",
			func(r *sdkRun) {
				api := r.networks.PublicNetworksAPI
				remove := api.PublicNetworksNetworkIdIpBlocksIpBlockIdDelete(r.ctx, r.network, r.block)
				ask(r, http.StatusAccepted, remove.Force(false).Execute)
				ask(r, http.StatusConflict, remove.Force(false).Execute) // the network is BUSY
				r.wait(time.Minute)
				r.same("block", r.status(r.block), "unassigned")
			}},
		{"PublicNetworksNetworkIdIpBlocksPost", "create public-network ip-block", "pnap_public_network",
			func(r *sdkRun) {
				r.block = r.buy("/64", "V6")
				post := r.networks.PublicNetworksAPI.PublicNetworksNetworkIdIpBlocksPost(r.ctx, r.network).
					PublicNetworkIpBlockCreate(*networkapi.NewPublicNetworkIpBlockCreate(r.block))
				r.same("block", ask(r, http.StatusAccepted, post.Execute).Id, r.block)
				r.wait(time.Minute)
				advertise := networkapi.NewPublicNetworkModify()
				advertise.SetRaEnabled(true)
				patch := r.networks.PublicNetworksAPI.PublicNetworksNetworkIdPatch(r.ctx, r.network)
				ask(r, http.StatusAccepted, patch.PublicNetworkModify(*advertise).Execute)
				r.wait(time.Minute)
			}},
		{"PublicNetworksNetworkIdDelete", "delete public-network", "pnap_public_network", func(r *sdkRun) {
			r.done(http.StatusNoContent,
				r.networks.PublicNetworksAPI.PublicNetworksNetworkIdDelete(r.ctx, r.network).Execute)
			r.wait(time.Minute)
			r.same("its block", r.status(r.block), "unassigned")
			r.done(http.StatusConflict, // it has members
				r.networks.PublicNetworksAPI.PublicNetworksNetworkIdDelete(r.ctx, simtest.NetworkID).Execute)
		}},
	}
}

func (r *sdkRun) privateAPI() networkapi.PrivateNetworksAPI { return r.networks.PrivateNetworksAPI }

// makePrivateNetwork makes the default private network of ASH and waits until it is READY.
func (r *sdkRun) makePrivateNetwork(name string) *networkapi.PrivateNetwork {
	r.Helper()
	create := networkapi.NewPrivateNetworkCreate(name, "ASH")
	create.SetLocationDefault(true)
	made := ask(r, http.StatusCreated,
		r.privateAPI().PrivateNetworksPost(r.ctx).PrivateNetworkCreate(*create).Force(false).Execute)
	r.wait(time.Minute)
	return made
}

func privateNetworkUses() []use {
	return []use{
		{"PrivateNetworksPost", "create private-network", "pnap_private_network", func(r *sdkRun) {
			made := r.makePrivateNetwork("back")
			r.network = made.Id
			r.same("chosen", []any{made.GetCidr(), made.VlanId, made.LocationDefault},
				[]any{"10.0.0.0/24", int32(2), true})
			post := r.privateAPI().PrivateNetworksPost(r.ctx)
			again := networkapi.NewPrivateNetworkCreate("back", "ASH")
			ask(r, http.StatusBadRequest, post.PrivateNetworkCreate(*again).Execute)
			again.SetName("storage")
			again.SetCidr("10.0.0.128/25")
			ask(r, http.StatusBadRequest, post.PrivateNetworkCreate(*again).Execute) // overlaps
			again.SetCidr("172.16.0.0/16")
			r.group = ask(r, http.StatusCreated, post.PrivateNetworkCreate(*again).Execute).Id
			r.wait(time.Minute)
		}},
		{"PrivateNetworksGet", "get private-networks", "pnap_private_network (data)", func(r *sdkRun) {
			list := r.privateAPI().PrivateNetworksGet(r.ctx)
			r.same("all", len(ask(r, http.StatusOK, list.Execute)), 2)
			r.same("elsewhere", len(ask(r, http.StatusOK, list.Location("SEA").Execute)), 0)
		}},
		{"PrivateNetworksNetworkIdPut", "update private-network", "pnap_private_network", func(r *sdkRun) {
			put := r.privateAPI().PrivateNetworksNetworkIdPut(r.ctx, r.group)
			ask(r, http.StatusOK, put.PrivateNetworkModify(*networkapi.NewPrivateNetworkModify("disks", true)).Execute)
			ask(r, http.StatusBadRequest,
				put.PrivateNetworkModify(*networkapi.NewPrivateNetworkModify("back", true)).Execute)
		}},
		{"PrivateNetworksNetworkIdGet", "get private-network", "pnap_private_network", func(r *sdkRun) {
			got := ask(r, http.StatusOK, r.privateAPI().PrivateNetworksNetworkIdGet(r.ctx, r.group).Execute)
			r.same("new default", []any{got.Name, got.LocationDefault, got.Status}, []any{"disks", true, "READY"})
			was := ask(r, http.StatusOK, r.privateAPI().PrivateNetworksNetworkIdGet(r.ctx, r.network).Execute)
			r.same("there is one default", was.LocationDefault, false)
		}},
		{"PrivateNetworksNetworkIdDelete", "delete private-network", "pnap_private_network", func(r *sdkRun) {
			r.done(http.StatusBadRequest, r.privateAPI().PrivateNetworksNetworkIdDelete(r.ctx, r.group).Execute)
			r.done(http.StatusNoContent, r.privateAPI().PrivateNetworksNetworkIdDelete(r.ctx, r.network).Execute)
			r.done(http.StatusNoContent, r.privateAPI().PrivateNetworksNetworkIdDelete(r.ctx, r.group).Execute)
			ask(r, http.StatusForbidden, r.privateAPI().PrivateNetworksNetworkIdGet(r.ctx, r.group).Execute)
		}},
	}
}

func (r *sdkRun) groupAPI() networkapi.BGPPeerGroupsAPI { return r.networks.BGPPeerGroupsAPI }

func (r *sdkRun) peerGroup() *networkapi.BgpPeerGroup {
	r.Helper()
	return ask(r, http.StatusOK, r.groupAPI().BgpPeerGroupsPeerGroupIdGet(r.ctx, r.group).Execute)
}

func peerGroupUses() []use {
	return []use{
		{"BgpPeerGroupsPost", "create bgp-peer-group", "pnap_bgp_peer_group", func(r *sdkRun) {
			create := networkapi.NewBgpPeerGroupCreate("ASH", 65401, "NONE")
			post := r.groupAPI().BgpPeerGroupsPost(r.ctx).BgpPeerGroupCreate(*create)
			made := ask(r, http.StatusAccepted, post.Execute)
			r.group = made.Id
			r.same("made", []any{made.Status, made.TargetAsnDetails.VerificationStatus, made.ActiveAsnDetails == nil},
				[]any{"PENDING", "VERIFIED", true})
			ask(r, http.StatusConflict, post.Execute) // one per location
		}},
		{"BgpPeerGroupsPeerGroupIdGet", "get bgp-peer-group", "pnap_bgp_peer_group", func(r *sdkRun) {
			r.wait(time.Minute)
			r.same("status", r.peerGroup().Status, "BUSY")
			r.wait(time.Minute)
			v6 := r.buy("/64", "V6")
			got := r.peerGroup()
			r.same("ready", []any{got.Status, got.ActiveAsnDetails.Asn}, []any{"READY", int64(65401)})
			var prefixes [][]string
			for _, p := range got.IpPrefixes {
				prefixes = append(prefixes, []string{p.IpAllocationId, p.Cidr, p.IpVersion, p.Status})
			}
			r.same("prefixes", prefixes, [][]string{
				{simtest.NodeBlockID, "203.0.113.0/28", "V4", "READY"}, {v6, "2001:db8:2::/64", "V6", "READY"}})
			r.same("in use", []any{len(got.Ipv4Prefixes), got.Ipv4Prefixes[0].InUse}, []any{1, true})
			r.same("routers", got.PeeringLoopbacksV4, []string{"169.254.247.0", "169.254.247.1"})
		}},
		{"BgpPeerGroupsGet", "get bgp-peer-groups", "pnap_bgp_peer_group (data)", func(r *sdkRun) {
			list := r.groupAPI().BgpPeerGroupsGet(r.ctx)
			r.same("all", len(ask(r, http.StatusOK, list.Execute)), 1)
			r.same("elsewhere", len(ask(r, http.StatusOK, list.Location("PHX").Execute)), 0)
		}},
		{"BgpPeerGroupsPeerGroupIdPatch", "", "pnap_bgp_peer_group", patchPeerGroup},
		{"BgpPeerGroupsPeerGroupIdDelete", "delete bgp-peer-group", "pnap_bgp_peer_group", func(r *sdkRun) {
			remove := r.groupAPI().BgpPeerGroupsPeerGroupIdDelete(r.ctx, r.group)
			r.same("status", ask(r, http.StatusAccepted, remove.Execute).Status, "PENDING_DELETION")
			ask(r, http.StatusConflict, remove.Execute)
			r.wait(time.Minute)
			r.same("status", r.peerGroup().IpPrefixes[0].Status, "DELETING")
			r.wait(time.Minute)
			ask(r, http.StatusForbidden, r.groupAPI().BgpPeerGroupsPeerGroupIdGet(r.ctx, r.group).Execute)
		}},
	}
}

// patchPeerGroup gives a group a number of the account's own, once in vain.
func patchPeerGroup(r *sdkRun) {
	arm(r.T, r.sim, pnapsim.Fault{
		Method: http.MethodPatch, Action: pnapsim.FaultOutcome, Outcome: pnapsim.OutcomeError})
	change := networkapi.NewBgpPeerGroupPatch()
	change.SetAsn(64512)
	change.SetPassword("E!73423ghijfge45")
	patch := r.groupAPI().BgpPeerGroupsPeerGroupIdPatch(r.ctx, r.group)
	got := ask(r, http.StatusAccepted, patch.BgpPeerGroupPatch(*change).Execute)
	r.same("own", []any{got.TargetAsnDetails.IsBringYourOwn, got.TargetAsnDetails.VerificationStatus, got.Password},
		[]any{true, "PENDING_VERIFICATION", "E!73423ghijfge45"})
	ask(r, http.StatusConflict, patch.BgpPeerGroupPatch(*change).Execute)
	for _, entry := range r.sim.Log(0) {
		if strings.Contains(entry.Body, change.GetPassword()) {
			r.Errorf("the log has the password: %s", entry.Body)
		}
	}
	r.wait(2 * time.Minute)
	failed := r.peerGroup()
	r.same("failed", []any{failed.Status, failed.TargetAsnDetails.VerificationStatus, failed.ActiveAsnDetails.Asn},
		[]any{"ERROR", "FAILED_VERIFICATION", int64(65401)})
	ask(r, http.StatusAccepted, patch.BgpPeerGroupPatch(*change).Execute)
	r.wait(2 * time.Minute)
	r.same("verified", r.peerGroup().ActiveAsnDetails.Asn, int64(64512))
	wrong := networkapi.NewBgpPeerGroupPatch()
	wrong.SetAdvertisedRoutes("ALL")
	ask(r, http.StatusBadRequest, patch.BgpPeerGroupPatch(*wrong).Execute)
}

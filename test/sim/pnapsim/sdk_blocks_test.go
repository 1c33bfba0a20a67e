package pnapsim_test

import (
	"net/http"
	"time"

	"github.com/phoenixnap/go-sdk-bmc/ipapi/v3"
	"github.com/phoenixnap/go-sdk-bmc/locationapi/v4"
	"github.com/phoenixnap/go-sdk-bmc/tagapi/v3"
)

func locationUses() []use {
	return []use{{"GetLocations", "get locations", "pnap_locations", func(r *sdkRun) {
		list := r.locations.LocationsAPI.GetLocations(r.ctx)
		var names []string
		for _, one := range ask(r, http.StatusOK, list.Execute) {
			names = append(names, string(one.Location))
		}
		r.same("all", names, []string{"PHX", "ASH", "NLD", "SGP", "CHI", "SEA"})
		chicago := ask(r, http.StatusOK, list.Location(locationapi.PRODUCTLOCATIONENUM_CHI).Execute)
		r.same("one", len(chicago), 1)
		r.same("its description", chicago[0].GetLocationDescription(), "Chicago, USA")
		r.same("that sell servers",
			len(ask(r, http.StatusOK, list.ProductCategory(locationapi.PRODUCTCATEGORYENUM_SERVER).Execute)), 6)
		r.same("that sell bandwidth",
			len(ask(r, http.StatusOK, list.ProductCategory(locationapi.PRODUCTCATEGORYENUM_BANDWIDTH).Execute)), 0)
	}}}
}

func tagUses() []use {
	return []use{
		{"TagsPost", "create tag", "pnap_tag", func(r *sdkRun) {
			create := tagapi.NewTagCreate("team", false)
			create.SetDescription("who pays")
			r.tag = ask(r, http.StatusCreated, r.tags.TagsAPI.TagsPost(r.ctx).TagCreate(*create).Execute).Id
			ask(r, http.StatusConflict, r.tags.TagsAPI.TagsPost(r.ctx).TagCreate(*create).Execute)
		}},
		{"TagsGet", "get tags", "pnap_tag (data)", func(r *sdkRun) {
			r.same("all", len(ask(r, http.StatusOK, r.tags.TagsAPI.TagsGet(r.ctx).Execute)), 1)
			r.same("others", len(ask(r, http.StatusOK, r.tags.TagsAPI.TagsGet(r.ctx).Name("usage").Execute)), 0)
		}},
		{"TagsTagIdPatch", "patch tag", "pnap_tag", func(r *sdkRun) {
			patch := r.tags.TagsAPI.TagsTagIdPatch(r.ctx, r.tag).TagUpdate(*tagapi.NewTagUpdate("group", true))
			r.same("name", ask(r, http.StatusOK, patch.Execute).Name, "group")
		}},
		{"TagsTagIdGet", "get tag", "pnap_tag", func(r *sdkRun) {
			got := ask(r, http.StatusOK, r.tags.TagsAPI.TagsTagIdGet(r.ctx, r.tag).Execute)
			r.same("changed", []any{got.Name, got.IsBillingTag, got.GetDescription()}, []any{"group", true, ""})
		}},
		{"TagsTagIdDelete", "delete tag", "pnap_tag", func(r *sdkRun) {
			r.same("ID", ask(r, http.StatusOK, r.tags.TagsAPI.TagsTagIdDelete(r.ctx, r.tag).Execute).TagId, r.tag)
			ask(r, http.StatusForbidden, r.tags.TagsAPI.TagsTagIdGet(r.ctx, r.tag).Execute)
		}},
	}
}

// makeTag makes a tag and waits until it can be assigned.
func (r *sdkRun) makeTag(name string) {
	r.Helper()
	r.tag = ask(r, http.StatusCreated,
		r.tags.TagsAPI.TagsPost(r.ctx).TagCreate(*tagapi.NewTagCreate(name, false)).Execute).Id
	r.wait(5 * time.Second)
}

// buy buys a block in ASH and waits until it is unassigned.
func (r *sdkRun) buy(size, version string) string {
	r.Helper()
	create := ipapi.NewIpBlockCreate("ASH", size)
	create.SetIpVersion(version)
	bought := ask(r, http.StatusCreated, r.blocks.IPBlocksAPI.IpBlocksPost(r.ctx).IpBlockCreate(*create).Execute)
	r.wait(time.Second)
	return bought.GetId()
}

// status is that of a block.
func (r *sdkRun) status(block string) string {
	r.Helper()
	got := ask(r, http.StatusOK, r.blocks.IPBlocksAPI.IpBlocksIpBlockIdGet(r.ctx, block).Execute)
	return got.GetStatus()
}

func blockUses() []use {
	return []use{
		{"IpBlocksPost", "create ip-block", "pnap_ip_block", func(r *sdkRun) {
			r.block = r.buy("/29", "V4")
			wrong := ipapi.NewIpBlockCreate("ASH", "/12")
			ask(r, http.StatusBadRequest, r.blocks.IPBlocksAPI.IpBlocksPost(r.ctx).IpBlockCreate(*wrong).Execute)
		}},
		{"IpBlocksIpBlockIdGet", "get ip-block", "pnap_ip_block", func(r *sdkRun) {
			r.same("status", r.status(r.block), "unassigned")
		}},
		{"IpBlocksIpBlockIdPatch", "patch ip-block", "pnap_ip_block", func(r *sdkRun) {
			change := ipapi.NewIpBlockPatch()
			change.SetDescription("for the shop")
			patch := r.blocks.IPBlocksAPI.IpBlocksIpBlockIdPatch(r.ctx, r.block).IpBlockPatch(*change)
			r.same("description", ask(r, http.StatusOK, patch.Execute).GetDescription(), "for the shop")
			ask(r, http.StatusNotFound,
				r.blocks.IPBlocksAPI.IpBlocksIpBlockIdPatch(r.ctx, r.network).IpBlockPatch(*change).Execute)
		}},
		{"IpBlocksIpBlockIdTagsPut", "update ip-block tag", "pnap_ip_block", func(r *sdkRun) {
			r.makeTag("team")
			tag := ipapi.NewTagAssignmentRequest("team")
			tag.SetValue("shop")
			put := r.blocks.IPBlocksAPI.IpBlocksIpBlockIdTagsPut(r.ctx, r.block)
			got := ask(r, http.StatusOK, put.TagAssignmentRequest([]ipapi.TagAssignmentRequest{*tag}).Execute)
			r.same("value", got.Tags[0].GetValue(), "shop")
			unknown := []ipapi.TagAssignmentRequest{*ipapi.NewTagAssignmentRequest("nothing")}
			ask(r, http.StatusBadRequest, put.TagAssignmentRequest(unknown).Execute)
		}},
		{"IpBlocksGet", "get ip-blocks", "pnap_ip_block (data)", func(r *sdkRun) {
			list := r.blocks.IPBlocksAPI.IpBlocksGet(r.ctx)
			r.same("all", len(ask(r, http.StatusOK, list.Execute)), 2)
			r.same("tagged", len(ask(r, http.StatusOK, list.Tag([]string{"team.shop"}).Execute)), 1)
		}},
		{"IpBlocksIpBlockIdDelete", "delete ip-block", "pnap_ip_block", func(r *sdkRun) {
			remove := r.blocks.IPBlocksAPI.IpBlocksIpBlockIdDelete(r.ctx, r.block)
			r.same("ID", ask(r, http.StatusOK, remove.Execute).GetIpBlockId(), r.block)
			ask(r, http.StatusForbidden, remove.Execute)
		}},
	}
}

package allocation_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/tools/record"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
)

// TestAnIPBlockReportsItsLife: what kubectl describe shows of a block, once each, also in the next process.
func TestAnIPBlockReportsItsLife(t *testing.T) {
	api := kubefake.NewStore()
	events := record.NewFakeRecorder(20)
	process := func() *allocation.Store {
		return allocation.NewStore(allocation.WithEvents(api.IPBlocks(), events), nil)
	}
	store := process()
	web := ipblock.Holder{Namespace: "shop", Name: "web", UID: "u1"}
	own := func() *allocation.Object {
		listing, err := store.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return allocation.ForService(store.Objects(), v1beta1.DefaultNetwork, web, listing.Records)
	}
	intent, err := own().Begin(t.Context(), time.Now(), 29)
	if err != nil {
		t.Fatal(err)
	}
	if err := own().Bought(t.Context(), intent, "b1"); err != nil {
		t.Fatal(err)
	}
	for _, assigned := range []ipblock.Condition{
		{Reason: string(ipblock.BlockCreating), Message: "creating"},
		{Reason: string(ipblock.BlockAssigning), Message: "assigning"},
		{True: true, Reason: string(ipblock.BlockAssigned), Message: "assigned"},
		{True: true, Reason: string(ipblock.BlockAssigned), Message: "assigned, in other words"},
		{Reason: string(ipblock.BlockElsewhere), Message: "it is elsewhere"},
		{Reason: string(ipblock.BlockUnassigning), Message: "unassigning"},
		{Reason: v1beta1.AssignedRetained, Message: "retained"},
	} {
		report := ipblock.Report{CIDR: netip.MustParsePrefix("198.51.100.0/29"), Assigned: assigned, Ready: assigned}
		if err := own().Report(t.Context(), report, time.Now()); err != nil {
			t.Fatal(err)
		}
		store = process()
		if err := own().Report(t.Context(), report, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"Normal IPBlockBought Bought IP block b1", "Normal IPBlockAssigning assigning",
		"Normal IPBlockAssigned assigned", "Warning IPBlockUnusable it is elsewhere",
		"Normal IPBlockUnassigning unassigning", "Normal IPBlockRetained retained",
	}
	var got []string
	for len(events.Events) > 0 {
		got = append(got, <-events.Events)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the events are\n%q, want\n%q", got, want)
	}
}

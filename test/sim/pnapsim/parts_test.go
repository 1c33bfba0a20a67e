package pnapsim_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// IDs of the blocks of untouchable.
const (
	dividedID = "6047127fed34ecc3ba840301"
	partID    = "6047127fed34ecc3ba840302"
	managedID = "6047127fed34ecc3ba840303"
	futureID  = "6047127fed34ecc3ba840304"
)

// untouchable is an account with a block that is divided, a part of it, one that phoenixNAP manages, and one with a
// status of the future. The client has bought all of them.
func untouchable() pnapsim.Seed {
	account := simtest.Account()
	for _, b := range []pnapsim.BlockSeed{
		{ID: dividedID, CIDR: "203.0.113.32/28"},
		{ID: partID, CIDR: "203.0.113.40/29", Parent: dividedID},
		{ID: managedID, CIDR: "203.0.113.48/29", SystemManaged: true},
		{ID: futureID, CIDR: "203.0.113.56/29", Status: "resting"},
	} {
		b.Location = "ASH"
		b.Owner = simtest.ClientID
		account.Blocks = append(account.Blocks, b)
	}
	return pnapsim.Seed{Accounts: []pnapsim.AccountSeed{account}}
}

// TestUntouchableBlocks: the API shows them, and the judge reports who changes one.
func TestUntouchableBlocks(t *testing.T) {
	const assign = "/networks/v1/public-networks/" + simtest.NetworkID + "/ip-blocks"
	for name, tc := range map[string]struct {
		id, status, parent string
		managed            bool
		rule               string
		deleted            int
	}{
		"divided": {id: dividedID, status: "subnetted", rule: "untouchable", deleted: http.StatusConflict},
		"part":    {id: partID, status: "unassigned", parent: dividedID, rule: "foreign-object", deleted: http.StatusOK},
		"managed": {id: managedID, status: "unassigned", managed: true, rule: "foreign-object",
			deleted: http.StatusOK},
		"future": {id: futureID, status: "resting", rule: "untouchable", deleted: http.StatusConflict},
	} {
		t.Run(name, func(t *testing.T) {
			sim, url := simtest.Unjudged(t, pnapsim.Config{}, untouchable())
			sim.Advance(2 * time.Minute)
			api := newSDK(t.Context(), url).blocks.IPBlocksAPI
			//nolint:bodyclose // the SDK has closed it
			got, _, err := api.IpBlocksIpBlockIdGet(t.Context(), tc.id).Execute()
			if err != nil {
				t.Fatal(err)
			}
			if got.GetStatus() != tc.status || got.GetParentIpBlockAllocationId() != tc.parent ||
				got.GetIsSystemManaged() != tc.managed {
				t.Errorf("status %q, parent %q, managed %t", got.GetStatus(), got.GetParentIpBlockAllocationId(),
					got.GetIsSystemManaged())
			}
			p := newPlain(t, url)
			p.do(http.MethodPost, assign, map[string]any{"id": tc.id})
			if rules := rules(sim); !slices.Equal(rules, []string{tc.rule}) {
				t.Errorf("an assignment breaks %q, want %s", rules, tc.rule)
			}
		})
		t.Run(name+" is deleted", func(t *testing.T) {
			sim, url := simtest.Unjudged(t, pnapsim.Config{}, untouchable())
			sim.Advance(2 * time.Minute)
			got := newPlain(t, url).do(http.MethodDelete, "/ips/v1/ip-blocks/"+tc.id, nil)
			if rules := rules(sim); got.status != tc.deleted || !slices.Equal(rules, []string{tc.rule}) {
				t.Errorf("%d %s, broken are %q; want %d and %s", got.status, got.body, rules, tc.deleted, tc.rule)
			}
		})
	}
}

// TestDivideAndJoin: the portal divides a block into halves. Without its parts it is one block again; all the while it
// is one block that is paid for.
func TestDivideAndJoin(t *testing.T) {
	sim, url := simtest.New(t, pnapsim.Config{}, simtest.Seed())
	p := newPlain(t, url)
	bought := p.buy()
	edit := func(e pnapsim.Edit) error { return sim.OutOfBand(e) }
	if err := edit(pnapsim.Edit{Kind: pnapsim.EditDivideBlock, Block: bought.ID}); err == nil {
		t.Error("a block is divided that is not unassigned yet")
	}
	sim.Advance(10 * time.Second)
	if err := edit(pnapsim.Edit{Kind: pnapsim.EditDivideBlock, Block: bought.ID,
		Tags: map[string]string{"half": "yes"}}); err != nil {
		t.Fatal(err)
	}
	blocks := func() map[string]string {
		cidrs := map[string]string{}
		for _, b := range sim.State(simtest.AccountID).Blocks {
			if b["id"] != simtest.NodeBlockID {
				cidrs[fmt.Sprint(b["cidr"])] = fmt.Sprint(b["status"])
			}
		}
		return cidrs
	}
	if got := blocks(); len(got) != 3 || got["203.0.113.16/29"] != "subnetted" ||
		got["203.0.113.16/30"] != "unassigned" || got["203.0.113.20/30"] != "unassigned" {
		t.Errorf("divided into %v", got)
	}
	for _, b := range sim.State(simtest.AccountID).Blocks {
		if b["parentIpBlockAllocationId"] == bought.ID {
			if err := edit(pnapsim.Edit{Kind: pnapsim.EditDeleteBlock, Block: fmt.Sprint(b["id"])}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := blocks(); len(got) != 1 || got["203.0.113.16/29"] != "unassigned" {
		t.Errorf("joined to %v", got)
	}
	if bill := sim.Money(simtest.AccountID); bill.Purchases != 1 || bill.Deletions != 0 || bill.BoughtAndLive != 1 {
		t.Errorf("bill %+v", bill)
	}
}

package orphans_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/orphans"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// lagging delays the list of blocks.
func lagging(lag time.Duration) option {
	return func(config *pnapsim.Config, _ *pnapsim.AccountSeed, _ *orphans.Config) {
		latency := pnapsim.DefaultLatency()
		latency.ListLag = pnapsim.Duration(lag)
		config.Latency = &latency
	}
}

// shown is what all IPBlocks say, and when the account was read.
func (w *world) shown() string {
	w.t.Helper()
	list, err := w.objects.List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	encoded, err := json.Marshal(list.Items)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.config.Account.LastReview().At.String() + "\n" + string(encoded)
}

// TestNothingIsConcludedFromAnotherAccount: the credentials become those of another account at each stage in the life
// of an orphan, and later again the right ones. In between nothing is reported, forgotten or said to be deleted.
func TestNothingIsConcludedFromAnotherAccount(t *testing.T) {
	for _, passes := range []int{0, 1, 2, 60, 61, 62, 63, 64} {
		t.Run(fmt.Sprint("after passes: ", passes), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, collecting,
				block(blockID, "203.0.113.8/29", "public", ours(contract.TagService, "shop_web")))
			for range 1 + passes {
				if err := w.look(); err != nil {
					t.Fatal(err)
				}
			}
			before, heard, writes := w.shown(), len(w.heard), w.writes()
			w.as = strangerID
			failed := 0
			for range 90 {
				if w.look() != nil {
					failed++
				}
			}
			if failed < 85 { // a token and a list may be reused for a moment
				t.Errorf("only %d passes of 90 noticed that the account is another", failed)
			}
			if now := w.shown(); now != before && failed == 90 {
				t.Errorf("shown was\n%s\nand is\n%s", before, now)
			}
			if review := w.config.Account.LastReview(); failed == 90 && !review.Since.IsZero() {
				t.Errorf("%+v: the account is said to be read", review)
			}
			aboutBlocks := func(event string) bool { return !strings.Contains(event, contract.AccountUnreadable) }
			if slices.ContainsFunc(w.heard[heard:], aboutBlocks) || w.writes() != writes {
				t.Errorf("heard %q, %d changes instead of %d", w.heard, w.writes(), writes)
			}
			w.as = clientID
			w.pass(3 * time.Hour)
			w.gone(blockID)
		})
	}
}

// TestOrphanIsFoundThoughTheListLacksIt: the index of the tag and its ID show it.
func TestOrphanIsFoundThoughTheListLacksIt(t *testing.T) {
	for _, lag := range []time.Duration{0, time.Minute, 30 * time.Minute, 1000 * time.Hour} {
		t.Run(lag.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, lagging(lag), collecting,
				block(blockID, "203.0.113.8/29", "public", ours(contract.TagService, "shop_web")))
			w.pass(15 * time.Minute)
			if n := w.count("OrphanedIPBlock", blockID); n != 1 {
				t.Errorf("%d reports, want one; heard %q", n, w.heard)
			}
			w.pass(2 * time.Hour)
			w.gone(blockID)
		})
	}
}

// TestDeletedBlockInALateListIsNoOrphan: the list still shows what someone deleted in the portal.
func TestDeletedBlockInALateListIsNoOrphan(t *testing.T) {
	for name, known := range map[string]time.Duration{"before it was suspected": 0, "afterwards": 15 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, lagging(5*time.Hour), collecting,
				block(blockID, "203.0.113.8/29", "", ours(contract.TagService, "shop_web")))
			w.clock.Advance(5 * time.Hour) // the list shows it
			w.pass(known)
			if err := w.sim.OutOfBand(pnapsim.Edit{Kind: pnapsim.EditDeleteBlock, Block: blockID}); err != nil {
				t.Fatal(err)
			}
			w.clock.Advance(10 * time.Minute) // no answer of before is reused
			w.heard = nil
			w.pass(4 * time.Hour)
			if len(w.heard) != 0 {
				t.Errorf("heard %q", w.heard)
			}
			w.untouched()
		})
	}
}

// oldList is an API whose list of blocks stays as it was.
type oldList struct {
	account.Cloud
	blocks []network.Block
}

func (o *oldList) Blocks(ctx context.Context, tags map[string]string) ([]network.Block, error) {
	if o.blocks != nil {
		return o.blocks, nil
	}
	var err error
	o.blocks, err = o.Cloud.Blocks(ctx, tags)
	return o.blocks, err
}

// TestOldTagsInALateListMakeNoOrphan: the list still shows the tags from before someone changed them.
func TestOldTagsInALateListMakeNoOrphan(t *testing.T) {
	retained := ours(contract.TagService, "shop_web")
	retained[contract.TagRetain] = contract.TagTrue
	taken := ours(contract.TagService, "shop_web")
	taken[contract.TagCluster] = otherCluster
	for name, tags := range map[string]map[string]string{"retained": retained, "of another cluster": taken} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, collecting, web)
			list := &oldList{Cloud: w.client}
			if _, err := list.Blocks(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			w.config.Account = account.New(account.Config{Cloud: list, Now: w.clock.Now})
			w.collector = orphans.New(w.config)
			edit := pnapsim.Edit{Kind: pnapsim.EditRetagBlock, Block: blockID, Tags: tags}
			if err := w.sim.OutOfBand(edit); err != nil {
				t.Fatal(err)
			}
			w.pass(4 * time.Hour)
			if len(w.heard) != 0 {
				t.Errorf("heard %q", w.heard)
			}
			w.untouched()
		})
	}
}

// TestAnOrphanIsNotForgottenWhileTheIndexNamesIt: neither the list nor its ID shows it for a while. Its grace goes on.
func TestAnOrphanIsNotForgottenWhileTheIndexNamesIt(t *testing.T) {
	w := newWorld(t, lagging(1000*time.Hour), collecting,
		block(blockID, "203.0.113.8/29", "public", ours(contract.TagService, "shop_web")))
	w.pass(30 * time.Minute)
	if err := w.sim.Arm(pnapsim.Fault{Method: http.MethodGet, Path: "/ips/v1/ip-blocks/*",
		Action: pnapsim.FaultStatus, Status: http.StatusNotFound, Times: -1}); err != nil {
		t.Fatal(err)
	}
	w.pass(10 * time.Minute)
	w.sim.Disarm()
	w.pass(35 * time.Minute)
	w.gone(blockID)
}

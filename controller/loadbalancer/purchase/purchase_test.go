package purchase_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

var (
	web   = network.Owner{Cluster: cluster, Namespace: "shop", Name: "web"}
	pool  = network.Owner{Cluster: cluster, Pool: v1beta1.DefaultNetwork}
	nodes = network.Owner{Cluster: cluster, Nodes: "default"}
)

func TestBuyForEveryOwner(t *testing.T) {
	for _, test := range []struct {
		owner network.Owner
		size  ipblock.Size
		bits  int
	}{{web, 0, 29}, {pool, 28, 28}, {nodes, 30, 30}} {
		t.Run(test.owner.String(), func(t *testing.T) {
			w := newWorld(t)
			w.oldTags()
			o := order(test.owner)
			o.Size = test.size
			block, err := w.buy(o)
			if err != nil {
				t.Fatal(err)
			}
			w.wantPurchases(1)
			seen, err := w.client.Block(t.Context(), block.ID)
			if err != nil {
				t.Fatal(err)
			}
			if !test.owner.Owns(seen) || seen.CIDR.Bits() != test.bits || seen.Location != "ASH" {
				t.Errorf("bought %+v", seen)
			}
			recorded := w.object.purchase()
			if recorded == nil || recorded.BlockID != block.ID || recorded.Time != w.clock.Now() {
				t.Fatalf("recorded is %+v", recorded)
			}
			if !strings.HasSuffix(seen.Description, "purchase "+recorded.Nonce) ||
				!strings.Contains(seen.Description, test.owner.String()) {
				t.Errorf("description is %q", seen.Description)
			}
		})
	}
}

func TestDescriptionFits(t *testing.T) {
	w := newWorld(t)
	w.oldTags()
	long := network.Owner{Cluster: cluster, Namespace: strings.Repeat("n", 63), Name: strings.Repeat("w", 253)}
	block, err := w.buy(order(long))
	if err != nil {
		t.Fatal(err)
	}
	seen, err := w.client.Block(t.Context(), block.ID)
	if err != nil {
		t.Fatal(err)
	}
	if len(seen.Description) > 250 || !strings.HasSuffix(seen.Description, w.object.purchase().Nonce) {
		t.Errorf("description of %d characters is %q", len(seen.Description), seen.Description)
	}
}

// TestPurchaseWithoutAnAnswer: the intent stays, counted from the end of the request.
//
//proves:known-bugs/lost-purchase-answer
func TestPurchaseWithoutAnAnswer(t *testing.T) {
	for _, fault := range []pnapsim.Fault{
		{Action: pnapsim.FaultLost}, {Action: pnapsim.FaultEmpty}, {Action: pnapsim.FaultTruncate},
		{Action: pnapsim.FaultReset},
		{Action: pnapsim.FaultStatus, Status: 500}, {Action: pnapsim.FaultStatus, Status: 504},
		{Action: pnapsim.FaultHTML},
	} {
		t.Run(fmt.Sprintf("%s %d", fault.Action, fault.Status), func(t *testing.T) {
			w := newWorld(t)
			w.oldTags()
			fault.Method = http.MethodPost
			fault.Path = blocksPath
			if err := w.sim.Arm(fault); err != nil {
				t.Fatal(err)
			}
			_, err := w.buy(order(web))
			var pause *purchase.Pause
			if !errors.As(err, &pause) || pause.Reason != ipblock.PurchaseUnanswered || pause.After <= 0 {
				t.Fatalf("said %v", err)
			}
			if recorded := w.object.purchase(); recorded == nil || recorded.BlockID != "" {
				t.Errorf("recorded is %+v", recorded)
			}
		})
	}
}

// TestTimeOfAPurchaseWithoutAnAnswer: the time without purchases counts from the lost answer, for the request may have
// been under way for long.
func TestTimeOfAPurchaseWithoutAnAnswer(t *testing.T) {
	w := newWorld(t)
	w.oldTags()
	if err := w.sim.Arm(pnapsim.Fault{Method: http.MethodPost, Path: blocksPath,
		Action: pnapsim.FaultLost}); err != nil {
		t.Fatal(err)
	}
	w.restart(meddling{w.client, func() { w.clock.Advance(45 * time.Second) }})
	_, _ = w.buy(order(web))
	if recorded := w.object.purchase(); recorded == nil || !recorded.Time.Equal(w.clock.Now()) {
		t.Errorf("recorded is %+v, and it is %s", recorded, w.clock.Now())
	}
}

func TestRefusalRemovesTheIntentAndBacksOff(t *testing.T) {
	w := newWorld(t)
	w.oldTags()
	if err := w.sim.Arm(pnapsim.Fault{Method: http.MethodPost, Path: blocksPath, Times: -1, Action: pnapsim.FaultStatus,
		Status: 406}); err != nil {
		t.Fatal(err)
	}
	want := func(tries int) {
		t.Helper()
		_, err := w.buy(order(web))
		var refused *purchase.Refused
		if !errors.As(err, &refused) || refused.Reason != ipblock.PurchaseRefused ||
			!strings.Contains(err.Error(), "406") {
			t.Fatalf("said %v", err)
		}
		if w.object.purchase() != nil {
			t.Error("the intent is still there")
		}
		if got := w.sim.Count("POST " + blocksPath); got != tries {
			t.Errorf("%d tries, want %d", got, tries)
		}
	}
	want(1)
	want(1)
	w.clock.Advance(time.Minute)
	want(2)
	w.clock.Advance(time.Minute)
	want(2) // the second pause is longer
	w.clock.Advance(time.Minute)
	want(3)

	w.sim.Disarm()
	other := order(web)
	other.Size = 28
	if _, err := w.buy(other); err != nil {
		t.Errorf("another size waits as well: %v", err)
	}
	successor := order(web)
	successor.Subject = "uid-2"
	if _, err := w.buyer.Buy(testlog.Context(t), successor, w.object.record()); err != nil {
		t.Errorf("a new Service of that name waits as well: %v", err)
	}
}

func TestAPIWantsAPause(t *testing.T) {
	w := newWorld(t)
	w.oldTags()
	if err := w.sim.Arm(pnapsim.Fault{Method: http.MethodPost, Path: blocksPath, Action: pnapsim.FaultStatus,
		Status: 429, RetryAfter: 40}); err != nil {
		t.Fatal(err)
	}
	for _, left := range []time.Duration{40 * time.Second, 30 * time.Second} {
		_, err := w.buy(order(web))
		var pause *purchase.Pause
		if !errors.As(err, &pause) || pause.Reason != purchase.APIPaused || pause.After != left {
			t.Fatalf("said %v, %+v; want a pause of %s", err, pause, left)
		}
		w.clock.Advance(10 * time.Second)
	}
	w.clock.Advance(20 * time.Second)
	if _, err := w.buy(order(web)); err != nil {
		t.Fatal(err)
	}
	w.wantPurchases(1)
}

// TestUnsentPurchaseIsBackedOff: the record of a purchase that is not sent is written and removed, which calls for
// the next try at once; that must not become a loop of writes.
func TestUnsentPurchaseIsBackedOff(t *testing.T) {
	var fence error
	w := newWorld(t, func(c *pnap.Config) { c.Fence = func() error { return fence } })
	w.oldTags()
	fence = errors.New("not now")
	for range 5 {
		if _, err := w.buy(order(web)); !errors.Is(err, fence) {
			t.Fatalf("said %v, want %v", err, fence)
		}
	}
	if w.object.writes != 3 || w.object.purchase() != nil {
		t.Errorf("5 tries wrote the record %d times, want 3: %+v", w.object.writes, w.object.purchase())
	}
	fence = nil
	w.clock.Advance(time.Minute)
	if _, err := w.buy(order(web)); err != nil {
		t.Fatal(err)
	}
	w.wantPurchases(1)
}

// TestFreshTags: tags that were created a moment ago may be refused; that heals by itself.
//
//proves:known-bugs/new-tags-refused
func TestFreshTags(t *testing.T) {
	w := newWorld(t)
	for range 20 {
		_, err := w.buy(order(web))
		if err == nil {
			w.wantPurchases(1)
			return
		}
		var pause *purchase.Pause
		if !errors.As(err, &pause) || pause.Reason != purchase.TagsFresh {
			t.Fatalf("said %v", err)
		}
		if w.object.purchase() != nil {
			t.Fatal("the intent is still there")
		}
		w.clock.Advance(pause.After)
	}
	t.Error("the tags never became usable")
}

// TestFreshPoolTag: the tag of the pool is new in an account that has served dedicated Services for long. That is no
// refusal, and takes seconds.
func TestFreshPoolTag(t *testing.T) {
	w := newWorld(t)
	w.oldTags(contract.TagUsage, contract.TagCluster, contract.TagService)
	if _, err := w.buy(order(web)); err != nil {
		t.Fatal(err)
	}
	w.clock.Advance(time.Hour)
	began := w.clock.Now()
	w.object = newObject()
	for w.clock.Now().Sub(began) < time.Minute {
		_, err := w.buy(order(pool))
		if err == nil {
			return
		}
		var pause *purchase.Pause
		if !errors.As(err, &pause) || pause.Reason != purchase.TagsFresh {
			t.Fatalf("said %v", err)
		}
		w.clock.Advance(pause.After)
	}
	t.Error("the tag did not become usable within a minute")
}

// TestRemediesFitRefusals: what to do depends on what was refused, and for whom.
func TestRemediesFitRefusals(t *testing.T) {
	const annotation = "annotation " + contract.ServiceIPBlockSize
	for name, test := range map[string]struct {
		status       int
		complaint    string
		owner        network.Owner
		want, absent string
		paused       bool
	}{
		"size":               {status: 400, complaint: "cidrBlockSize: want /28", owner: web, want: annotation},
		"size of the pool":   {status: 400, owner: pool, want: "ipBlockSize", absent: annotation},
		"size for the nodes": {status: 406, owner: nodes, want: "an IPBlock with purpose Nodes"},
		"nothing left":       {status: 406, owner: web, want: "has no IP block of size /29 left in location ASH"},
		"a tag that was lost": {status: 400, complaint: `Tag "usage" does not exist.`, owner: web, want: "tags",
			absent: "size"},
		"rights":                 {status: 403, owner: web, want: "credentials", absent: "size"},
		"credentials":            {status: 401, owner: web, want: "client secret", absent: "size"},
		"a pause without a time": {status: 429, owner: web, paused: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			failure := &pnap.Error{Op: "buy IP block", StatusCode: test.status, Message: test.complaint}
			w.restart(refusing{w.client, failure})
			_, err := w.buy(order(test.owner))
			var pause *purchase.Pause
			var refused *purchase.Refused
			if errors.As(err, &pause) != test.paused || errors.As(err, &refused) == test.paused {
				t.Fatalf("said %v", err)
			}
			said := err.Error()
			if !strings.Contains(said, test.want) || test.absent != "" && strings.Contains(said, test.absent) {
				t.Errorf("said %q, want %q and not %q", said, test.want, test.absent)
			}
		})
	}
}

// refusing refuses every purchase.
type refusing struct {
	*pnap.Client
	failure error
}

func (r refusing) BuyBlock(context.Context, pnap.BlockRequest) (network.Block, error) {
	return network.Block{}, r.failure
}

//proves:known-bugs/location-mismatch
func TestLocationNotOnSale(t *testing.T) {
	w := newWorld(t)
	o := order(web)
	o.Location = "XXX"
	_, err := w.buy(o)
	var refused *purchase.Refused
	if !errors.As(err, &refused) || refused.Reason != ipblock.LocationNotOnSale ||
		!strings.Contains(err.Error(), "use a public network in one of ") {
		t.Errorf("said %v", err)
	}
	if w.object.writes != 0 {
		t.Error("an intent was recorded")
	}
	w.wantPurchases(0)
}

func TestLocationsAreAskedOnce(t *testing.T) {
	w := newWorld(t)
	w.oldTags()
	o := order(web)
	want := func(asked int) {
		t.Helper()
		if _, err := w.buy(o); err != nil {
			t.Fatal(err)
		}
		if got := w.sim.Count("GET /location-api/v1/locations"); got != asked {
			t.Errorf("locations were asked for %d times, want %d", got, asked)
		}
	}
	for _, o.Size = range []ipblock.Size{28, 29} {
		want(1)
	}
	w.clock.Advance(2 * time.Hour)
	o.Size = 30
	want(2)
}

//proves:known-bugs/created-while-deleted
func TestNothingIsBoughtOnAnOldVersion(t *testing.T) {
	w := newWorld(t)
	w.oldTags()
	old := w.object.record()
	w.object.touch()
	if _, err := w.buyer.Buy(testlog.Context(t), order(web), old); !errors.Is(err, allocation.ErrConflict) {
		t.Errorf("said %v", err)
	}
	w.wantPurchases(0)
}

// TestFrozenProcessBuysNothing: between the recorded intent and the purchase lies a moment in which a
// process may be stopped for long; afterwards someone else may lead.
func TestFrozenProcessBuysNothing(t *testing.T) {
	w := newWorld(t)
	w.oldTags()
	w.object.before = func() { w.clock.Advance(11 * time.Second) }
	_, err := w.buy(order(web))
	var pause *purchase.Pause
	if !errors.As(err, &pause) || pause.Reason != ipblock.PurchaseUnanswered {
		t.Errorf("said %v", err)
	}
	w.wantPurchases(0)
}

// meddling is a client during whose purchase someone changes the object.
type meddling struct {
	*pnap.Client
	meddle func()
}

func (m meddling) BuyBlock(ctx context.Context, wanted pnap.BlockRequest) (network.Block, error) {
	defer m.meddle()
	return m.Client.BuyBlock(ctx, wanted)
}

func TestOutcomeIsRecordedThoughTheObjectChanged(t *testing.T) {
	w := newWorld(t)
	w.oldTags()
	w.restart(meddling{w.client, w.object.touch})
	block, err := w.buy(order(web))
	if err != nil {
		t.Fatal(err)
	}
	if recorded := w.object.purchase(); recorded == nil || recorded.BlockID != block.ID {
		t.Errorf("recorded is %+v", recorded)
	}
}

func TestIntentOfAnotherStays(t *testing.T) {
	for _, status := range []int{0, 406, 500} {
		w := newWorld(t)
		w.oldTags()
		w.restart(meddling{w.client, w.object.overwrite})
		if status != 0 {
			if err := w.sim.Arm(pnapsim.Fault{Method: http.MethodPost, Path: blocksPath, Action: pnapsim.FaultStatus,
				Status: status}); err != nil {
				t.Fatal(err)
			}
		}
		_, err := w.buy(order(web))
		if recorded := w.object.purchase(); recorded == nil || recorded.BlockID != "" ||
			!recorded.Time.Equal(simtest.Start()) { // the time that overwrite gives
			t.Errorf("status %d (%v): recorded is %+v", status, err, recorded)
		}
	}
}

func TestBoughtThoughTheOutcomeCannotBeRecorded(t *testing.T) {
	w := newWorld(t)
	w.oldTags()
	w.restart(meddling{w.client, func() { w.object.failure = errors.New("no API server") }})
	block, err := w.buy(order(web))
	if err != nil || block.ID == "" {
		t.Errorf("got %q, %v", block.ID, err)
	}
	if recorded := w.object.purchase(); recorded == nil || recorded.BlockID != "" {
		t.Errorf("recorded is %+v", recorded)
	}
}

// TestEndingProcessRecords: what was paid for is written down though the process is stopped.
func TestEndingProcessRecords(t *testing.T) {
	w := newWorld(t)
	w.oldTags()
	ctx, cancel := context.WithCancel(testlog.Context(t))
	w.restart(meddling{w.client, cancel})
	block, err := w.buyer.Buy(ctx, order(web), w.object.record())
	if err != nil {
		t.Fatal(err)
	}
	if recorded := w.object.purchase(); recorded == nil || recorded.BlockID != block.ID {
		t.Errorf("recorded is %+v", recorded)
	}
}

func TestDryRunLeavesNothingBehind(t *testing.T) {
	w := newWorld(t, func(c *pnap.Config) { c.DryRun = true })
	_, err := w.buy(order(web))
	if !pnap.IsDryRun(err) {
		t.Fatalf("said %v", err)
	}
	if w.object.purchase() != nil {
		t.Errorf("recorded is %+v", w.object.purchase())
	}
	w.wantPurchases(0)
}

//proves:known-bugs/lookup-error-buys
func TestLookupFailuresRecordNothing(t *testing.T) {
	for _, path := range []string{"/location-api/v1/locations", "/tag-manager/v1/tags"} {
		w := newWorld(t)
		if err := w.sim.Arm(pnapsim.Fault{Method: http.MethodGet, Path: path, Action: pnapsim.FaultStatus,
			Status: 503}); err != nil {
			t.Fatal(err)
		}
		_, err := w.buy(order(web))
		var failure *pnap.Error
		if !errors.As(err, &failure) || failure.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%s: said %v", path, err)
		}
		if w.object.writes != 0 {
			t.Errorf("%s: an intent was recorded", path)
		}
		w.wantPurchases(0)
	}
}

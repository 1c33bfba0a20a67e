package reconcile_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// TestPurchaseWithoutAnAnswerBuysOnce: whatever happens to the answer, and however late lists are, there
// is one purchase, and deleting in the middle leaves nothing.
//
//proves:known-bugs/lost-purchase-answer
//proves:known-bugs/late-list
//proves:known-bugs/deleted-before-written
func TestPurchaseWithoutAnAnswerBuysOnce(t *testing.T) {
	for _, lag := range []time.Duration{0, 10 * time.Second} {
		for _, fault := range []pnapsim.Fault{
			{Action: pnapsim.FaultLost}, {Action: pnapsim.FaultEmpty}, {Action: pnapsim.FaultTruncate},
			{Action: pnapsim.FaultStatus, Status: 500}, {Action: pnapsim.FaultStatus, Status: 504},
			{Action: pnapsim.FaultHTML},
			{Action: pnapsim.FaultReset}, {Action: pnapsim.FaultStatus, Status: 429, RetryAfter: 9},
			{Action: pnapsim.FaultStatus, Status: 401},
		} {
			for _, restarts := range []bool{false, true} {
				for _, deleted := range []bool{false, true} {
					name := fmt.Sprintf("%s %d, lists %s late, restart %t, deleted %t", fault.Action, fault.Status, lag,
						restarts, deleted)
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						fault := fault
						fault.Method = http.MethodPost
						fault.Path = blocksPath
						purchaseUnder(t, fault, lag, restarts, deleted)
					})
				}
			}
		}
	}
}

func purchaseUnder(t *testing.T, fault pnapsim.Fault, lag time.Duration, restarts, deleted bool) {
	w := newWorld(t, slow(func(l *pnapsim.Latency) {
		l.ListLag = pnapsim.Duration(lag)
		l.TagPropagation = 0
	}))
	w.arm(fault)
	w.service("web")
	for w.sim.Count("POST /ips/v1/ip-blocks") == 0 {
		_, err := w.sync("web")
		w.clock.Advance(w.pauseAfter(err))
	}
	if restarts {
		w.restart()
	}
	if !deleted {
		w.settle("web")
		w.wantBlocks(w.blocks()...)
		w.wantPurchases(1)
		if got := len(w.blocks()); got != 1 {
			t.Errorf("the account holds %s", w.blocks())
		}
	}
	w.delete("web")
	w.settle("web")
	w.wantBlocks()
	if bought := w.sim.Money(accountID).Purchases; bought > 1 {
		t.Errorf("%d blocks were bought", bought)
	}
}

//proves:known-bugs/lookup-error-buys
//proves:service-changes/api-down
func TestNothingIsBoughtWhileLookupsFail(t *testing.T) {
	for _, path := range []string{
		blocksPath, "/tag-manager/v1/tags", "/networks/v1/public-networks/*", "/location-api/v1/locations",
	} {
		for _, fault := range []pnapsim.Fault{
			{Action: pnapsim.FaultStatus, Status: 500}, {Action: pnapsim.FaultStatus, Status: 403},
			{Action: pnapsim.FaultHTML},
			{Action: pnapsim.FaultReset}, {Action: pnapsim.FaultTruncate},
		} {
			t.Run(fmt.Sprintf("%s %s %d", path, fault.Action, fault.Status), func(t *testing.T) {
				t.Parallel()
				w, fault := newWorld(t), fault
				fault.Method = http.MethodGet
				fault.Path = path
				fault.Times = -1
				w.arm(fault)
				w.service("web")
				for range 20 {
					if done, err := w.sync("web"); done {
						t.Fatalf("settled: %v", err)
					}
					w.clock.Advance(20 * time.Second)
				}
				w.wantPurchases(0)
				w.sim.Disarm()
				w.settle("web")
				w.wantPurchases(1)
			})
		}
	}
}

func TestRefusedPurchaseIsReportedAndForgotten(t *testing.T) {
	for status, remedy := range map[int]string{
		400: "check the size (annotation phoenixnap.com/ip-block-size or option ipBlockSize), and the option location",
		403: "have the scopes bmc, bmc.read, tags and tags.read",
		406: "phoenixNAP has no IP block of size /29 left in location ASH: change the size (annotation " +
			"phoenixnap.com/ip-block-size or option ipBlockSize), or use a public network in another location",
		409: "the controller tries again by itself; if this lasts, ask the support of phoenixNAP",
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) { refusedPurchase(t, status, remedy) })
	}
}

func refusedPurchase(t *testing.T, status int, remedy string) {
	w := newWorld(t)
	w.arm(pnapsim.Fault{Method: http.MethodPost, Path: blocksPath, Times: -1, Action: pnapsim.FaultStatus,
		Status: status})
	w.service("web")
	err := w.refused("web", 3*time.Minute)
	for _, part := range []string{fmt.Sprint(status), "refused to sell", "/29 in ASH", remedy} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("refusal is %q and lacks %q", err, part)
		}
	}
	if c := w.condition("web"); c.Reason != "PurchaseRefused" || c.Message != err.Error() {
		t.Errorf("condition is %+v", c)
	}
	if got := w.recorded("web"); got != nil {
		t.Errorf("the intent is still recorded: %+v", got)
	}
	w.delete("web")
	if took := w.settle("web"); took > 0 {
		t.Errorf("deletion took %s though nothing was bought", took)
	}
}

//proves:known-bugs/network-full
func TestFullNetworkRefusesBeforeThePurchase(t *testing.T) {
	var foreign []pnapsim.BlockSeed
	for i := range 8 {
		foreign = append(foreign, pnapsim.BlockSeed{Location: "ASH", CIDR: fmt.Sprintf("203.0.113.%d/29", 64+8*i),
			Network: "public"})
	}
	w := newWorld(t, withBlocks(foreign...))
	w.service("web")
	w.settle("web")
	w.service("api")
	err := w.refused("api", 2*time.Minute)
	if !strings.Contains(err.Error(), "has room for 10 IPv4 blocks") {
		t.Errorf("refusal is %q", err)
	}
	w.wantPurchases(1)
	w.delete("web")
	w.settle("web")
	w.settle("api")
	w.wantPurchases(2)
}

// TestLastPlaceIsNotSoldTwice: a block that is bought and not yet assigned takes a place as well.
//
//proves:known-bugs/network-full
func TestLastPlaceIsNotSoldTwice(t *testing.T) {
	var foreign []pnapsim.BlockSeed
	for i := range 8 {
		foreign = append(foreign, pnapsim.BlockSeed{Location: "ASH", CIDR: fmt.Sprintf("203.0.113.%d/29", 64+8*i),
			Network: "public"})
	}
	w := newWorld(t, withBlocks(foreign...),
		slow(func(l *pnapsim.Latency) { l.BlockCreate = pnapsim.Duration(time.Minute) }))
	w.service("web")
	w.service("api")
	for range 40 {
		for _, name := range []string{"web", "api"} {
			_, _ = w.sync(name)
		}
		w.clock.Advance(interval)
	}
	w.wantPurchases(1)
}

func TestMaxBlocksBindsTheCluster(t *testing.T) {
	w := newWorld(t, configured(func(c *reconcile.Config) { c.MaxBlocks = 1 }))
	w.service("web")
	w.settle("web")
	w.service("api")
	if err := w.refused("api", time.Minute); !strings.Contains(err.Error(), "--max-ip-blocks") {
		t.Errorf("refusal is %q", err)
	}
	w.wantPurchases(1)
}

// --max-ip-blocks counts the nodes' block, though the list does not show it yet.
func TestMaxBlocksCountsWhatTheListLacks(t *testing.T) {
	w := newWorld(t, configured(func(c *reconcile.Config) { c.MaxBlocks = 1 }),
		slow(func(l *pnapsim.Latency) { l.ListLag = pnapsim.Duration(1000 * time.Hour) }),
		func(_ *pnapsim.Config, a *pnapsim.AccountSeed, _ *reconcile.Config) {
			a.Blocks = append(a.Blocks, pnapsim.BlockSeed{Name: "bought for the nodes", Location: "ASH",
				CIDR: "203.0.113.64/28", Tags: map[string]string{
					contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: clusterUID,
					contract.TagNodes: clusterUID,
				}})
		})
	for _, options := range [][]func(*corev1.Service){nil, {inPool()}} {
		name := fmt.Sprint("web-", len(options))
		w.service(name, options...)
		if err := w.refused(name, time.Minute); !strings.Contains(err.Error(), "--max-ip-blocks") {
			t.Errorf("refusal is %q", err)
		}
	}
	w.wantPurchases(0)
}

//proves:known-bugs/stale-copies
//proves:known-bugs/created-while-deleted
func TestStaleCopyBuysNothing(t *testing.T) {
	w := newWorld(t)
	stale := w.service("web")
	for _, test := range []struct {
		name   string
		change func(*corev1.Service)
	}{
		{"going", func(s *corev1.Service) { s.DeletionTimestamp = &metav1.Time{Time: w.clock.Now()} }},
		{"another type", func(s *corev1.Service) {
			s.DeletionTimestamp = nil
			s.Spec.Type = corev1.ServiceTypeNodePort
		}},
		{"another class", func(s *corev1.Service) {
			class := "example.com/other"
			s.Spec.Type = corev1.ServiceTypeLoadBalancer
			s.Spec.LoadBalancerClass = &class
		}},
		{"another Service of that name", func(s *corev1.Service) {
			s.Spec.LoadBalancerClass = nil
			s.UID = "new"
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w.edit("web", test.change)
			for range 5 {
				if done, err := w.syncCopy(stale); done || err == nil {
					t.Errorf("done %t, %v", done, err)
				}
				w.clock.Advance(time.Minute)
			}
			w.wantPurchases(0)
		})
	}
}

// TestServiceCreatedAgainTakesOver: when a Service goes without its finalizer and another takes its name,
// the framework deletes the load balancer of the old one; the new one keeps block and address.
//
//proves:known-bugs/address-lost-on-recreate
//proves:service-changes/recreate
func TestServiceCreatedAgainTakesOver(t *testing.T) {
	w := newWorld(t)
	w.service("web")
	w.settle("web")
	old := w.get("web")
	if err := w.tracker.Delete(servicesResource, "shop", "web"); err != nil {
		t.Fatal(err)
	}
	w.service("web")
	if err := w.release(old); err != nil {
		t.Fatal(err)
	}
	w.settle("web")
	w.wantPurchases(1)
	if got := w.get("web").Spec.LoadBalancerIP; got != old.Spec.LoadBalancerIP {
		t.Errorf("address is %s, was %s", got, old.Spec.LoadBalancerIP)
	}
}

// TestServiceGoneWithoutFinalizer: the framework asks to delete the load balancer of a Service that is
// not there any more.
func TestServiceGoneWithoutFinalizer(t *testing.T) {
	w := newWorld(t)
	w.service("web")
	w.settle("web")
	old := w.get("web")
	if err := w.tracker.Delete(servicesResource, "shop", "web"); err != nil {
		t.Fatal(err)
	}
	for range 30 {
		if err := w.release(old); err == nil {
			w.wantBlocks()
			return
		}
		w.clock.Advance(interval)
	}
	t.Errorf("the account still holds %s", w.blocks())
}

//proves:known-bugs/users-tags
//proves:service-changes/block-retagged
func TestRetaggedBlockIsNotTouched(t *testing.T) {
	w := newWorld(t)
	w.service("web")
	w.settle("web")
	w.portal(pnapsim.Edit{Kind: pnapsim.EditRetagBlock, Block: w.blockID(), Tags: map[string]string{"mine": "yes"}})
	w.wantDrifted("web")
	if err := w.refused("web", time.Minute); !strings.Contains(err.Error(), "203.0.113.10") ||
		!slices.Contains(w.eventReasons(), "BlockRetagged") {
		t.Errorf("refusal is %q", err)
	}
	w.delete("web")
	w.settle("web")
	w.wantBlocks("203.0.113.8/29 assigned")
}

// TestFrozenProcessBuysNothing: between the recorded intent and the purchase lies a moment in which a
// process may be stopped for long; afterwards someone else may lead.
//
//proves:known-bugs/two-controllers
func TestFrozenProcessBuysNothing(t *testing.T) {
	w := newWorld(t, slow(func(l *pnapsim.Latency) { l.TagPropagation = 0 }))
	w.service("web")
	ticks := 0
	w.config.Now = func() time.Time {
		// The clock leaps when the intent is there and nothing is bought yet.
		if ticks == 0 && w.recorded("web") != nil {
			ticks++
			w.clock.Advance(time.Minute)
		}
		return w.clock.Now()
	}
	w.restart()
	_, err := w.sync("web")
	if err == nil || ticks == 0 {
		t.Fatalf("the process was not frozen: %v", err)
	}
	w.wantPurchases(0)
	w.settle("web")
	w.wantPurchases(1)
}

// TestLostRaceForTheIntent: of two controllers that read the same version of a Service one buys.
func TestLostRaceForTheIntent(t *testing.T) {
	w := newWorld(t, slow(func(l *pnapsim.Latency) { l.TagPropagation = 0 }))
	w.service("web")
	w.restartWith(intruding{crashing: crashing{Client: w.client, world: w}, intrude: func() {
		w.recordedAt(w.recordOf("web"), w.clock.Now(), "")
	}})
	_, err := w.sync("web")
	if err == nil || err.Error() != "waiting for the latest version of the IPBlock" {
		t.Errorf("said %v", err)
	}
	w.wantPurchases(0)
}

// intruding lets someone record another intent in the moment before the intent is recorded.
type intruding struct {
	crashing
	intrude func()
}

func (i intruding) EnsureTags(ctx context.Context, names ...string) error {
	i.intrude()
	return i.crashing.EnsureTags(ctx, names...)
}

var _ reconcile.Cloud = intruding{}

func TestDescriptionSaysWhoseBlockItIs(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("n", 63)
	w.service(long)
	w.settle(long)
	block, err := w.client.Block(t.Context(), w.blockID())
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{clusterUID, "shop/" + long, "purchase "} {
		if !strings.Contains(block.Description, part) {
			t.Errorf("description %q lacks %q", block.Description, part)
		}
	}
	if len(block.Description) > 250 {
		t.Errorf("description has %d characters", len(block.Description))
	}
	if !(network.Owner{Cluster: clusterUID, Namespace: "shop", Name: long}).Owns(block) {
		t.Errorf("tags %v do not prove the owner", block.Tags)
	}
}

var _ reconcile.Cloud = (*pnap.Client)(nil)

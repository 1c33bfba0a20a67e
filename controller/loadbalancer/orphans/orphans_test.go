package orphans_test

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/orphans"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// web is the block of a Service that does not exist, assigned to the public network.
var web = block(blockID, "203.0.113.8/29", "public", ours(contract.TagService, "shop_web"))

//proves:known-bugs/orphans
//proves:service-changes/finalizer
func TestAnOrphanIsReportedAndNotDeleted(t *testing.T) {
	w := newWorld(t, web)
	w.pass(5 * time.Minute)
	if n := w.count("Warning", "OrphanedIPBlock", blockID, "203.0.113.8/29", "created 2026-02-28T12:00:00Z", "shop_web",
		"--collect-orphans"); n != 1 {
		t.Fatalf("%d events within five minutes, want one: %q", n, w.heard)
	}
	w.pass(50 * time.Minute)
	if len(w.heard) != 1 {
		t.Errorf("an orphan is reported again within an hour: %q", w.heard)
	}
	w.pass(20 * time.Minute)
	if len(w.heard) != 2 || w.heard[0] != w.heard[1] {
		t.Errorf("after an hour, when events are forgotten, it must be reported again in the same words: %q", w.heard)
	}
	w.pass(3 * grace)
	w.untouched()
}

//proves:known-bugs/orphans
//proves:known-bugs/force-unassign
func TestAnOrphanIsCollectedAfterItsGrace(t *testing.T) {
	w := newWorld(t, web, collecting)
	w.pass(grace - time.Minute)
	w.untouched()
	w.pass(5 * time.Minute)
	w.gone(blockID)
	for _, entry := range w.sim.Log(0) {
		if strings.Contains(entry.Query, "force=true") {
			t.Errorf("%s %s?%s uses force", entry.Method, entry.Path, entry.Query)
		}
	}
}

//proves:known-bugs/delete-tag
func TestALeftoverOfV1IsCollectedAtOnce(t *testing.T) {
	w := newWorld(t,
		block(blockID, "203.0.113.8/29", "other", ours(contract.TagDelete, "true")), // not the configured network
		block("60473c2509268bc77fd06d41", "203.0.113.16/29", "", ours(contract.TagDelete, "true")),
		block("60473c2509268bc77fd06d42", "203.0.113.24/29", "", ours(contract.TagDelete, "false")))
	w.pass(10 * time.Minute)
	w.gone(blockID)
	w.gone("60473c2509268bc77fd06d41")
	if w.blocks()["60473c2509268bc77fd06d42"] == "" {
		t.Error("delete=false deleted a block")
	}
}

// Each of these blocks has an owner, or may have one: nothing may be changed, whatever the options.
//
//proves:known-bugs/users-tags
func TestWhatIsNoOrphanIsNeverTouched(t *testing.T) {
	with := func(tags map[string]string, name, value string) map[string]string {
		tags[name] = value
		return tags
	}
	service := func(change ...func(*corev1.Service)) func(*world) {
		return func(w *world) { w.service("web", false, change...) }
	}
	for name, tc := range map[string]struct {
		tags    map[string]string
		byo     bool
		given   func(*world)
		reports string
	}{
		"the Service exists": {tags: ours(contract.TagService, "shop_web"), given: service()},
		"the informer has not seen the Service yet": {tags: ours(contract.TagService, "shop_web"),
			given: func(w *world) { w.service("web", true) }},
		"the Service of v1 exists": {tags: with(ours(contract.TagServiceNamespace, "shop"),
			contract.TagServiceName, "web"), given: service()},
		"v1 deletes for a Service that came back": {tags: with(with(ours(contract.TagServiceNamespace, "shop"),
			contract.TagServiceName, "web"), contract.TagDelete, "true"), given: service()},
		"the Service releases its block": {tags: ours(contract.TagService, "shop_web"),
			given: service(func(s *corev1.Service) {
				s.Spec.Type = corev1.ServiceTypeClusterIP
				s.Finalizers = []string{contract.LoadBalancerFinalizer}
			})},
		"another cluster's": {tags: map[string]string{contract.TagUsage: contract.TagUsageAuto,
			contract.TagCluster: otherCluster, contract.TagService: "shop_web"}},
		"a leftover of v1 in another cluster": {tags: map[string]string{contract.TagUsage: contract.TagUsageAuto,
			contract.TagCluster: otherCluster, contract.TagDelete: "true"}},
		"without the tag of the cluster": {tags: map[string]string{contract.TagUsage: contract.TagUsageAuto,
			contract.TagService: "shop_web"}},
		"a person's block with a tag of ours": {tags: map[string]string{contract.TagCluster: clusterUID,
			contract.TagService: "shop_web"}},
		"a person's block marked delete": {tags: map[string]string{contract.TagCluster: clusterUID,
			contract.TagDelete: "true"}},
		"brought":  {tags: ours(contract.TagService, "shop_web"), byo: true},
		"retained": {tags: with(ours(contract.TagService, "shop_web"), contract.TagRetain, "true")},
		"the purpose was taken off in the portal": {tags: map[string]string{contract.TagUsage: contract.TagUsageAuto,
			contract.TagCluster: clusterUID}, reports: "do not say what for"},
		"the nodes of another cluster": {tags: ours(contract.TagNodes, otherCluster),
			reports: "do not say what for"},
		"a pool that no node uses is the balancer's": {tags: ours(contract.TagPool, v1beta1.DefaultNetwork),
			reports: "none of its addresses is held"},
		"a pool with an address in use": {tags: ours(contract.TagPool, v1beta1.DefaultNetwork),
			given: func(w *world) { w.holds(blockID, "203.0.113.8/29", "203.0.113.10") }},
		"the nodes' block that no node uses": {tags: ours(contract.TagNodes, clusterUID),
			reports: "none of its addresses is held"},
		"a purchase for a Service of another name": {tags: ours(contract.TagService, "shop_web"),
			given: func(w *world) {
				w.must(w.recordOf(w.service("other", false)).Answer(w.t.Context(), blockID))
			}, reports: "do not say what for"},
		"a purchase for the pool names it": {tags: ours(contract.TagService, "shop_web"),
			given: func(w *world) { w.poolPurchase(blockID) }, reports: "do not say what for"},
		"a leftover that a purchase names": {tags: ours(contract.TagDelete, "true"),
			given: func(w *world) { w.poolPurchase(blockID) }, reports: "do not say what for"},
		"a leftover of v1 that a user gave a purpose": {tags: with(ours(contract.TagDelete, "true"), contract.TagPool,
			v1beta1.DefaultNetwork), reports: "none of its addresses is held"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, collecting, func(_ *pnapsim.Config, a *pnapsim.AccountSeed, _ *orphans.Config) {
				a.Blocks = append(a.Blocks, pnapsim.BlockSeed{ID: blockID, Location: "ASH", CIDR: "203.0.113.8/29",
					Network: "public", Tags: tc.tags, BringYourOwn: tc.byo})
			})
			if tc.given != nil {
				tc.given(w)
			}
			w.pass(3 * grace)
			w.untouched()
			if reports := w.count("OrphanedIPBlock", tc.reports) > 0; reports != (tc.reports != "") {
				t.Errorf("heard %q, want an event about %q", w.heard, tc.reports)
			}
		})
	}
}

// holds stores a ledger in which an address is held.
func (w *world) holds(id, cidr, address string) {
	w.t.Helper()
	_, err := w.ledgers.Save(w.t.Context(), ipblock.Ledger{
		BlockID: id, CIDR: netip.MustParsePrefix(cidr),
		Held: map[netip.Addr]ipblock.Holder{netip.MustParseAddr(address): {Name: "server"}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// One block of the nodes is excused while servers are joined, the one that their controller keeps; any other is
// reported.
func TestOneBlockOfTheNodesIsExcused(t *testing.T) {
	const second, third = "60473c2509268bc77fd06d41", "60473c2509268bc77fd06d42"
	nodes := func(id, cidr, network string) option {
		return block(id, cidr, network, ours(contract.TagNodes, clusterUID))
	}
	kept := func(_ *pnapsim.Config, _ *pnapsim.AccountSeed, c *orphans.Config) {
		c.NodesKept = func() []network.Named {
			return []network.Named{{Name: v1beta1.DefaultNetwork, ID: networkID}}
		}
		c.Collect = true
	}
	for name, test := range map[string]struct {
		options  []option
		recorded string
		brought  string
		reports  []string
	}{
		"one":                   {options: []option{nodes(blockID, "198.51.100.0/28", networkID)}},
		"one, none is recorded": {options: []option{nodes(blockID, "198.51.100.0/28", "")}},
		"several, one is recorded": {
			options: []option{
				nodes(blockID, "198.51.100.0/28", networkID), nodes(second, "198.51.100.16/28", ""),
				nodes(third, "198.51.100.32/28", ""),
			},
			recorded: third, reports: []string{blockID, second},
		},
		"several, none is recorded": {
			options: []option{nodes(blockID, "198.51.100.0/28", ""), nodes(second, "198.51.100.16/28", networkID)},
			reports: []string{blockID},
		},
		"one beside that of a person": {options: []option{nodes(blockID, "198.51.100.0/28", networkID)},
			brought: second, reports: []string{blockID}},
		"that of a person": {options: []option{nodes(blockID, "198.51.100.0/28", networkID)}, brought: blockID},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(test.options, kept)...)
			if test.brought != "" {
				w.bringAs("of-the-nodes", test.brought, v1beta1.PurposeNodes)
			}
			if test.recorded != "" {
				record := allocation.ForNodes(w.ledgers.Objects(), v1beta1.DefaultNetwork, nil)
				w.must(record.Answer(t.Context(), test.recorded))
			}
			w.pass(30 * time.Minute)
			var got []string
			for _, event := range w.heard {
				for _, id := range []string{blockID, second, third} {
					if strings.Contains(event, "OrphanedIPBlock IP block "+id) {
						got = append(got, id)
					}
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, test.reports) {
				t.Errorf("reported %v, want %v: %q", got, test.reports, w.heard)
			}
			if got := len(w.sim.State(accountID).Blocks); got != len(test.options) {
				t.Errorf("%d blocks are left of %d", got, len(test.options))
			}
		})
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// recordOf is the object of the block of a Service.
func (w *world) recordOf(service *corev1.Service) *allocation.Object {
	return allocation.ForService(w.ledgers.Objects(), v1beta1.DefaultNetwork, plan.HolderOf(service), nil)
}

func (w *world) poolPurchase(id string) {
	w.t.Helper()
	w.must(allocation.ForShared(w.ledgers.Objects(), v1beta1.DefaultNetwork, nil).Answer(w.t.Context(), id))
}

// While a purchase is fresh, its block is not even reported.
func TestAFreshPurchaseIsNoOrphan(t *testing.T) {
	w := newWorld(t, web, collecting)
	record := w.recordOf(w.service("other", false))
	intent, err := record.Begin(t.Context(), w.clock.Now(), 29)
	w.must(err)
	w.must(record.Bought(t.Context(), intent, blockID))
	w.pass(9 * time.Minute)
	w.untouched()
	if len(w.heard) != 0 {
		t.Errorf("heard %q", w.heard)
	}
}

// A Service of another class, and one of another type that holds nothing of ours, does not keep a block.
func TestAServiceOfAnotherProviderDoesNotKeepABlock(t *testing.T) {
	foreign := "example.com/other"
	for name, change := range map[string]func(*corev1.Service){
		"another class, the framework's finalizer": func(s *corev1.Service) {
			s.Spec.LoadBalancerClass = &foreign
			s.Finalizers = []string{"service.kubernetes.io/load-balancer-cleanup"}
		},
		"another type": func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, web, collecting)
			w.service("web", false, change)
			w.pass(grace + 10*time.Minute)
			w.gone(blockID)
		})
	}
}

// A Service that appears between the two steps gets its block back, and a recreated one loses no time to the past.
func TestAServiceThatAppearsSavesItsBlock(t *testing.T) {
	w := newWorld(t, web, collecting)
	for w.blocks()[blockID] == "assigned" {
		if err := w.look(); err != nil {
			t.Fatal(err)
		}
	}
	before := w.writes()
	w.service("web", true)
	w.pass(2 * grace)
	if w.blocks()[blockID] == "" || w.writes() != before {
		t.Errorf("the block is %q, %d writes since the Service appeared", w.blocks()[blockID], w.writes()-before)
	}
	if err := w.kube.CoreV1().Services("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.pass(grace - time.Minute)
	if w.writes() != before {
		t.Error("the grace did not start again")
	}
	w.pass(5 * time.Minute)
	w.gone(blockID)
}

// The process may end before and after every request of a collection.
func TestACrashAtAnyRequestLosesNothing(t *testing.T) {
	crashes := 0
	for at := 1; ; at++ {
		w := newWorld(t, web, collecting)
		w.crashAt = at
		w.pass(3 * grace)
		if status, there := w.blocks()[blockID]; there {
			t.Fatalf("crash at request %d: the block is left %s", at, status)
		}
		if w.calls < at {
			break
		}
		crashes++
	}
	if crashes < 10 {
		t.Errorf("only %d crashes", crashes)
	}
}

// A list that shows a deleted block for ten seconds leads to no report and no second deletion.
//
//proves:known-bugs/late-list
func TestAListThatLagsIsNotBelieved(t *testing.T) {
	w := newWorld(t, web, collecting, func(s *pnapsim.Config, _ *pnapsim.AccountSeed, _ *orphans.Config) {
		latency := pnapsim.DefaultLatency()
		latency.ListLag = pnapsim.Duration(10 * time.Second)
		s.Latency = &latency
	})
	w.pass(2 * grace)
	w.gone(blockID)
	if n := w.sim.Count("DELETE /ips/v1/ip-blocks/{ipBlockId}"); n != 1 {
		t.Errorf("%d deletions, want one", n)
	}
}

// Tags are read from the block itself: the retention that a user has just chosen counts.
func TestARetentionOfTheLastMomentCounts(t *testing.T) {
	w := newWorld(t, web, collecting)
	w.pass(grace - 2*time.Minute)
	tags := ours(contract.TagService, "shop_web")
	tags[contract.TagRetain] = "true"
	if err := w.sim.OutOfBand(pnapsim.Edit{Kind: pnapsim.EditRetagBlock, Block: blockID, Tags: tags}); err != nil {
		t.Fatal(err)
	}
	w.pass(2 * grace)
	w.untouched()
}

func TestLostAnswersAndRefusalsAreOvercome(t *testing.T) {
	for name, fault := range map[string]pnapsim.Fault{
		"the unassignment's answer is lost": {Method: http.MethodDelete,
			Path: "/networks/v1/public-networks/*/ip-blocks/*", Action: pnapsim.FaultLost},
		"the unassignment ends in an error": {Method: http.MethodDelete,
			Path: "/networks/v1/public-networks/*/ip-blocks/*", Action: pnapsim.FaultOutcome,
			Outcome: pnapsim.OutcomeError},
		"the deletion's answer is lost": {Method: http.MethodDelete, Path: "/ips/v1/ip-blocks/*",
			Action: pnapsim.FaultLost},
		"the deletion is refused": {Method: http.MethodDelete, Path: "/ips/v1/ip-blocks/*",
			Action: pnapsim.FaultStatus, Status: http.StatusConflict, Times: 3},
		"the API is down": {Action: pnapsim.FaultStatus, Status: http.StatusServiceUnavailable, Times: -1,
			For: pnapsim.Duration(30 * time.Minute)},
		"the list is cut": {Path: "/ips/v1/ip-blocks", Action: pnapsim.FaultTruncate, Times: 5},
		"the block cannot be read": {Path: "/ips/v1/ip-blocks/*", Method: http.MethodGet, Action: pnapsim.FaultStatus,
			Status: http.StatusInternalServerError, Times: 3},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, web, collecting)
			if err := w.sim.Arm(fault); err != nil {
				t.Fatal(err)
			}
			w.pass(grace + 90*time.Minute)
			w.gone(blockID)
		})
	}
}

// A server holds an address of the block: the API would refuse, so no request is sent, and one event is recorded.
func TestWhatCannotBeReleasedIsReportedOnce(t *testing.T) {
	w := newWorld(t, web, collecting, func(_ *pnapsim.Config, a *pnapsim.AccountSeed, _ *orphans.Config) {
		a.Servers = []pnapsim.ServerSeed{{Hostname: "node-1", Location: "ASH", NetworkType: "PRIVATE_ONLY",
			Networks: []pnapsim.MembershipSeed{{Network: "public", IPs: []string{"203.0.113.10"}}}}}
	})
	w.pass(4 * grace)
	w.untouched()
	if n := w.count("Warning", "OrphanNotCollected", "203.0.113.10"); n != 1 {
		t.Errorf("%d events, want one: %q", n, w.heard)
	}
}

func TestDryRunSaysWhatWouldBeDone(t *testing.T) {
	w := newWorld(t, web, collecting)
	w.connect(true)
	w.pass(grace + 30*time.Minute)
	w.untouched()
	if n := w.count("Normal", "DryRun", "dry run: would ", blockID); n != 1 {
		t.Errorf("%d events, want one: %q", n, w.heard)
	}
}

// With nothing to explain, a look costs no request beside the shared list.
func TestASettledAccountCostsOneListForEachLook(t *testing.T) {
	w := newWorld(t, web, collecting)
	w.service("web", false)
	w.pass(30 * time.Minute)
	counters := w.sim.Counters()
	for operation, answers := range counters {
		total := 0
		for _, n := range answers {
			total += n
		}
		if strings.HasPrefix(operation, "GET /ips/v1/ip-blocks") && total > 31 ||
			strings.Contains(operation, "networks") {
			t.Errorf("%s was asked %d times in 30 minutes", operation, total)
		}
	}
	for _, action := range w.kube.Actions() {
		if action.GetVerb() == "list" && action.GetResource().Resource == "services" {
			t.Fatal("Services are listed though the informer explains everything")
		}
	}
}

// What changes while the collector waits for the account's lock counts: a Service of that name, and the tags.
//
//proves:known-bugs/orphans
func TestWhatIsReadUnderTheLockCounts(t *testing.T) {
	retained := ours(contract.TagService, "shop_web")
	retained[contract.TagRetain] = contract.TagTrue
	foreign := ours(contract.TagService, "shop_web")
	foreign[contract.TagCluster] = otherCluster
	without := map[string]string{contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: clusterUID}
	retag := func(tags map[string]string) func(*world) {
		return func(w *world) {
			if err := w.sim.OutOfBand(pnapsim.Edit{Kind: pnapsim.EditRetagBlock, Block: blockID,
				Tags: tags}); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	for name, change := range map[string]func(*world){
		"a Service appears":         func(w *world) { w.service("web", true) },
		"the block is retained":     retag(retained),
		"another cluster's":         retag(foreign),
		"the purpose was taken off": retag(without),
	} {
		for _, step := range []string{"assigned", "unassigned"} {
			t.Run(name+" while "+step, func(t *testing.T) {
				w := newWorld(t, web, collecting)
				w.pass(grace - 2*time.Minute)
				for w.blocks()[blockID] != step {
					if err := w.look(); err != nil {
						t.Fatal(err)
					}
				}
				before := w.writes()
				w.meanwhile = func() {
					w.meanwhile = nil
					change(w)
				}
				w.pass(20 * time.Minute)
				if w.meanwhile != nil {
					t.Fatal("the block was not read again")
				}
				if w.writes() != before || w.blocks()[blockID] == "" {
					t.Errorf("%d changes of the account after that", w.writes()-before)
				}
			})
		}
	}
}

// A leftover, which has no grace, is believed only in the second list.
func TestALeftoverIsLookedAtTwice(t *testing.T) {
	w := newWorld(t, block(blockID, "203.0.113.8/29", "", ours(contract.TagDelete, "true")))
	for range 3 { // the same list
		if _, err := w.lookOnce(); err != nil {
			t.Fatal(err)
		}
	}
	w.untouched()
	w.pass(2 * time.Minute)
	w.gone(blockID)
}

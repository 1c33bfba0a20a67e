package reconcile_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

//proves:known-bugs/deleted-before-written
func TestDeletedBeforeItsAddressWasWrittenLeavesNothing(t *testing.T) {
	for _, test := range []struct {
		name  string
		fault pnapsim.Fault
	}{
		{"assignment refused", pnapsim.Fault{Method: http.MethodPost, Path: assignPath, Times: -1,
			Action: pnapsim.FaultStatus, Status: 400}},
		{"network never ready", pnapsim.Fault{Method: http.MethodPost, Path: assignPath, Times: -1,
			Action: pnapsim.FaultStatus, Status: 409}},
		{"assignment ends in error", pnapsim.Fault{Method: http.MethodPost, Path: assignPath, Times: -1,
			Action: pnapsim.FaultOutcome, Outcome: pnapsim.OutcomeError}},
		{"assignment unanswered", pnapsim.Fault{Method: http.MethodPost, Path: assignPath, Times: -1,
			Action: pnapsim.FaultStatus, Status: 500, For: pnapsim.Duration(20 * time.Second)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.arm(test.fault)
			w.service("web")
			for range 8 {
				_, err := w.sync("web")
				w.clock.Advance(w.pauseAfter(err))
			}
			if w.get("web").Spec.LoadBalancerIP != "" {
				t.Fatal("the address was written; the test proves nothing")
			}
			w.wantPurchases(1)
			w.delete("web")
			w.settle("web")
			w.wantBlocks()
		})
	}
}

//proves:known-bugs/mark-removed-first
func TestFailingReleaseIsTakenUpAgain(t *testing.T) {
	for _, test := range []struct{ name, method, path string }{
		{"list fails", http.MethodGet, blocksPath},
		{"block fails", http.MethodGet, blockPath},
		{"network fails", http.MethodGet, "/networks/v1/public-networks/*"},
		{"unassignment fails", http.MethodDelete, unassignPath},
		{"deletion fails", http.MethodDelete, blockPath},
	} {
		for _, action := range []pnapsim.Fault{
			{Action: pnapsim.FaultStatus, Status: 500}, {Action: pnapsim.FaultStatus, Status: 401},
			{Action: pnapsim.FaultHTML},
			{Action: pnapsim.FaultStatus, Status: 429, RetryAfter: 7}, {Action: pnapsim.FaultReset},
			{Action: pnapsim.FaultLost},
		} {
			t.Run(fmt.Sprintf("%s: %s %d", test.name, action.Action, action.Status), func(t *testing.T) {
				t.Parallel()
				w, action := newWorld(t), action
				w.service("web")
				w.settle("web")
				w.delete("web")
				action.Method = test.method
				action.Path = test.path
				action.Times = 2
				w.arm(action)
				w.settle("web")
				w.wantBlocks()
			})
		}
	}
}

//proves:known-bugs/blocked-deletion
//proves:known-bugs/gone-load-balancer
func TestNothingBlocksDeletionForEver(t *testing.T) {
	for _, test := range []struct {
		name   string
		before func(w *world)
	}{
		{"block still assigning", func(*world) {}},
		{"address edited to one outside the block", func(w *world) {
			w.settle("web")
			w.edit("web", func(s *corev1.Service) { s.Spec.LoadBalancerIP = "192.0.2.1" })
		}},
		{"address edited to nonsense", func(w *world) {
			w.settle("web")
			w.edit("web", func(s *corev1.Service) {
				s.Spec.LoadBalancerIP = "nonsense"
				s.Annotations[contract.ServiceIPAddress] = "nonsense"
			})
		}},
		{"another network configured", func(w *world) {
			w.settle("web")
			w.config.Network.ID = otherNetwork
			w.restart()
		}},
		{"a network that does not exist configured", func(w *world) {
			w.settle("web")
			w.config.Network.ID = "0123456789abcdef01234567"
			w.restart()
		}},
		{"location and annotations gone", func(w *world) {
			w.settle("web")
			w.edit("web", func(s *corev1.Service) { s.Annotations = nil })
			w.config.Location = ""
			w.restart()
		}},
		{"block unassigned in the portal", func(w *world) {
			w.settle("web")
			w.portal(pnapsim.Edit{Kind: pnapsim.EditUnassignBlock, Block: w.blockID()})
		}},
		{"block deleted in the portal", func(w *world) {
			w.settle("web")
			w.portal(pnapsim.Edit{Kind: pnapsim.EditDeleteBlock, Block: w.blockID()})
		}},
		{"network deleted in the portal", func(w *world) {
			w.settle("web")
			w.portal(pnapsim.Edit{Kind: pnapsim.EditDeleteNetwork, Network: networkID})
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.service("web")
			for range 3 {
				_, err := w.sync("web")
				w.clock.Advance(w.pauseAfter(err))
			}
			test.before(w)
			w.delete("web")
			w.settle("web")
			w.wantBlocks()
		})
	}
}

//proves:known-bugs/two-controllers
func TestTwoBlocksOfOneServiceCollapse(t *testing.T) {
	w := newWorld(t, withBlocks(
		pnapsim.BlockSeed{Location: "ASH", CIDR: "203.0.113.8/29", Tags: ours("web")},
		pnapsim.BlockSeed{Location: "ASH", CIDR: "203.0.113.16/29", Tags: ours("web"), Network: "public"},
	))
	w.service("web")
	w.settle("web")
	w.wantBlocks("203.0.113.16/29 assigned")
	w.wantPurchases(0)
}

//proves:known-bugs/two-controllers
func TestPublishedAddressSurvivesADuplicate(t *testing.T) {
	w := newWorld(t, withBlocks(
		pnapsim.BlockSeed{Location: "ASH", CIDR: "203.0.113.8/29", Tags: ours("web"), Network: "public"},
		pnapsim.BlockSeed{Location: "ASH", CIDR: "203.0.113.16/29", Tags: ours("web"), Network: "public"},
	))
	w.service("web", func(s *corev1.Service) {
		s.Spec.LoadBalancerIP = "203.0.113.18"
		s.Annotations = map[string]string{contract.ServiceIPAddress: "203.0.113.18"}
	})
	w.settle("web")
	w.wantBlocks("203.0.113.16/29 assigned")
	if got := w.get("web").Status.LoadBalancer.Ingress[0].IP; got != "203.0.113.18" {
		t.Errorf("address is %s", got)
	}
}

//proves:known-bugs/stuck-block
func TestStuckBlockDoesNotKeepOthers(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"one", "two", "three"} {
		w.service(name)
		w.settle(name)
	}
	stuck := w.sim.State(accountID).Blocks[1]["id"]
	w.arm(pnapsim.Fault{Method: http.MethodDelete, Path: fmt.Sprint("/networks/v1/public-networks/*/ip-blocks/", stuck),
		Times: -1, Action: pnapsim.FaultOutcome, Outcome: pnapsim.OutcomeError})
	for _, name := range []string{"one", "two", "three"} {
		w.delete(name)
	}
	for range 100 {
		for _, name := range []string{"one", "two", "three"} {
			_, _ = w.sync(name)
		}
		w.clock.Advance(interval)
	}
	if w.get("two") != nil || w.get("three") != nil {
		t.Errorf("the account still holds %s", w.blocks())
	}
	w.sim.Disarm()
	w.settle("one")
	w.wantBlocks()
}

// TestNoDeletionInAWrongState: the simulator refuses it; what counts is that it is not even tried.
//
//proves:known-bugs/delete-in-wrong-state
func TestNoDeletionInAWrongState(t *testing.T) {
	w := newWorld(t, slow(func(l *pnapsim.Latency) { l.BlockCreate = pnapsim.Duration(time.Minute) }))
	w.service("web")
	for range 4 {
		_, err := w.sync("web")
		w.clock.Advance(w.pauseAfter(err))
	}
	w.wantPurchases(1)
	w.delete("web")
	w.settle("web")
	for status, n := range w.sim.Counters()["DELETE /ips/v1/ip-blocks/{ipBlockId}"] {
		if status != http.StatusOK || n != 1 {
			t.Errorf("%d deletions were answered with %d", n, status)
		}
	}
}

//proves:known-bugs/wrong-network-unassigned
func TestBlockIsUnassignedFromTheNetworkThatHoldsIt(t *testing.T) {
	w := newWorld(t, withBlocks(pnapsim.BlockSeed{Location: "ASH", CIDR: "203.0.113.8/29", Tags: ours("web"),
		Network: "other"}))
	w.service("web")
	if err := w.refused("web", time.Minute); !strings.Contains(err.Error(), otherNetwork) {
		t.Errorf("refusal %q does not name the network that holds the block", err)
	}
	w.delete("web")
	w.settle("web")
	w.wantBlocks()
}

//proves:known-bugs/delete-tag
//proves:known-bugs/users-tags
func TestTagsOfUsersMeanNothing(t *testing.T) {
	w := newWorld(t, withBlocks(
		pnapsim.BlockSeed{Location: "ASH", CIDR: "203.0.113.8/29",
			Tags: map[string]string{"delete": "false", contract.TagUsage: contract.TagUsageAuto}},
		pnapsim.BlockSeed{Location: "ASH", CIDR: "203.0.113.16/29", Tags: map[string]string{contract.TagUsage: "mine",
			contract.TagCluster: clusterUID, contract.TagService: "shop_web"}},
		pnapsim.BlockSeed{Location: "ASH", CIDR: "203.0.113.32/28", BringYourOwn: true, Tags: ours("web")},
	))
	w.service("web")
	w.settle("web")
	w.delete("web")
	w.settle("web")
	w.wantPurchases(1)
	w.wantBlocks("203.0.113.8/29 unassigned", "203.0.113.16/29 unassigned", "203.0.113.32/28 unassigned")
}

//proves:known-bugs/new-tags-refused
func TestFreshTagsAreWaitedFor(t *testing.T) {
	w := newWorld(t, slow(func(l *pnapsim.Latency) { l.TagPropagation = pnapsim.Duration(25 * time.Second) }))
	w.service("web")
	if took := w.settle("web"); took > 90*time.Second {
		t.Errorf("published after %s", took)
	}
	w.wantPurchases(1)
	for _, reason := range w.eventReasons() {
		if reason == "IPBlockRefused" {
			t.Error("an event reported an error that needs no action")
		}
	}
}

//proves:known-bugs/tag-filter-or
func TestTagFilterMayMeanOr(t *testing.T) {
	w := newWorld(t,
		func(config *pnapsim.Config, _ *pnapsim.AccountSeed, _ *reconcile.Config) {
			config.Switches.TagFilter = "or"
		},
		withBlocks(
			pnapsim.BlockSeed{Location: "ASH", CIDR: "203.0.113.8/29",
				Tags: map[string]string{contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: "another",
					contract.TagService: "shop_web"}},
			pnapsim.BlockSeed{Location: "ASH", CIDR: "203.0.113.16/29",
				Tags: map[string]string{contract.TagCluster: clusterUID, contract.TagService: "shop_web"}},
		))
	w.service("web")
	w.settle("web")
	w.delete("web")
	w.settle("web")
	w.wantBlocks("203.0.113.8/29 unassigned", "203.0.113.16/29 unassigned")
}

//proves:known-bugs/two-controllers
func TestTwoControllersBuyOnce(t *testing.T) {
	w := newWorld(t)
	w.service("web")
	stale := w.get("web")
	for start := w.clock.Now(); w.clock.Now().Sub(start) < 2*time.Minute; {
		// Two leaders at once, the second with an old copy of the Service.
		_, first := w.sync("web")
		w.restart()
		_, second := w.syncCopy(stale)
		w.clock.Advance(max(w.pauseAfter(first), w.pauseAfter(second), interval))
	}
	w.wantPurchases(1)
	w.wantBlocks("203.0.113.8/29 assigned")
}

//proves:known-bugs/busy-network
func TestBusyNetworkIsWaitedFor(t *testing.T) {
	w := newWorld(t)
	w.arm(pnapsim.Fault{Method: http.MethodPost, Path: assignPath, Times: 5, Action: pnapsim.FaultStatus, Status: 409})
	w.service("web")
	if took := w.settle("web"); took > 90*time.Second {
		t.Errorf("published after %s", took)
	}
	w.portal(pnapsim.Edit{Kind: pnapsim.EditNetworkStatus, Network: networkID, Status: "BUSY"})
	w.delete("web")
	for range 5 {
		if done, err := w.sync("web"); done || err.Error() != "waiting for another change of the public network" {
			t.Fatalf("said %v", err)
		}
		w.clock.Advance(interval)
	}
	w.portal(pnapsim.Edit{Kind: pnapsim.EditNetworkStatus, Network: networkID, Status: "READY"})
	w.settle("web")
	w.wantBlocks()
}

//proves:known-bugs/v1-blocks
func TestBlocksOfVersion1AreAdopted(t *testing.T) {
	v1 := map[string]string{
		contract.TagUsage: contract.TagUsageAuto, contract.TagCluster: clusterUID,
		contract.TagServiceNamespace: "shop", contract.TagServiceName: "web",
	}
	w := newWorld(t, withBlocks(pnapsim.BlockSeed{Location: "ASH", CIDR: "203.0.113.8/29", Tags: v1,
		Network: "public"}))
	w.service("web", func(s *corev1.Service) { s.Spec.LoadBalancerIP = "203.0.113.10" })
	w.settle("web")
	w.wantPurchases(0)
	if got := w.get("web").Status.LoadBalancer.Ingress[0].IP; got != "203.0.113.10" {
		t.Errorf("address is %s", got)
	}
	if tags := fmt.Sprint(w.sim.State(accountID).Blocks[1]["tags"]); !strings.Contains(tags, contract.TagServiceName) {
		t.Errorf("the old tags are gone: %s", tags)
	}
	w.delete("web")
	w.settle("web")
	w.wantBlocks()
}

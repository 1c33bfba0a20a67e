package reconcile_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

func annotated(pairs ...string) func(*corev1.Service) {
	return func(s *corev1.Service) {
		if s.Annotations == nil {
			s.Annotations = map[string]string{}
		}
		for i := 0; i < len(pairs); i += 2 {
			s.Annotations[pairs[i]] = pairs[i+1]
		}
	}
}

func inPool() func(*corev1.Service) {
	return annotated(contract.ServiceIPAllocation, contract.AllocationShared)
}

// address is the published address of a Service.
func (w *world) address(name string) string {
	w.t.Helper()
	service := w.get(name)
	if service == nil || len(service.Status.LoadBalancer.Ingress) != 1 {
		return ""
	}
	address := service.Status.LoadBalancer.Ingress[0].IP
	if service.DeletionTimestamp != nil && service.Annotations[contract.ServiceIPAddress] == "" {
		return "" // nothing of it is left but its finalizer
	}
	forKubeVIP := address
	if w.config.Announcer == contract.AnnouncerAgent {
		forKubeVIP = ""
	}
	if service.Annotations[contract.KubeVIPAddresses] != forKubeVIP ||
		service.Annotations[contract.ServiceIPAddress] != address {
		w.t.Errorf("Service %s says %s in its status and %q, %q in its annotations", name, address,
			service.Annotations[contract.KubeVIPAddresses], service.Annotations[contract.ServiceIPAddress])
	}
	return address
}

// settleAll syncs Services in turn until each is settled.
func (w *world) settleAll(names ...string) {
	w.t.Helper()
	due := map[string]time.Time{}
	for _, name := range names {
		due[name] = w.clock.Now()
	}
	for start := w.clock.Now(); len(due) > 0; w.clock.Advance(firstLook) {
		if w.clock.Now().Sub(start) > time.Hour {
			w.t.Fatalf("not settled after an hour: %v; the account holds %s; said %q", due, w.blocks(),
				w.said[max(0, len(w.said)-3):])
		}
		for _, name := range names {
			at, waits := due[name]
			if !waits || w.clock.Now().Before(at) {
				continue
			}
			done, err := w.sync(name)
			if done {
				delete(due, name)
				continue
			}
			w.said = append(w.said, err.Error())
			due[name] = w.clock.Now().Add(w.pauseAfter(err))
		}
	}
}

const firstLook = 250 * time.Millisecond

// wantAddressesOnce demands that no address is published for two Services, or is held by another than it
// is published for.
func (w *world) wantAddressesOnce(names ...string) {
	w.t.Helper()
	seen := map[string]string{}
	for _, name := range names {
		address := w.address(name)
		if address == "" {
			continue
		}
		if other, twice := seen[address]; twice {
			w.t.Errorf("Services %s and %s both have address %s", other, name, address)
		}
		seen[address] = name
		for _, l := range w.ledgers() {
			if h, held := l.Held[netip.MustParseAddr(address)]; held && h.Name != name {
				w.t.Errorf("address %s of Service %s is held by %s", address, name, h)
			}
		}
	}
}

//proves:known-bugs/block-per-address
//proves:service-changes/delete-shared
func TestServicesShareABlock(t *testing.T) {
	w := newWorld(t, configured(func(c *reconcile.Config) { c.Allocation = contract.AllocationShared }))
	var names []string
	for i := range 5 {
		names = append(names, fmt.Sprint("web", i))
		w.service(names[i])
	}
	w.settleAll(names...)
	w.wantPurchases(1)
	w.wantBlocks("203.0.113.8/29 assigned")
	w.wantAddressesOnce(names...)

	w.service("web5")
	w.settleAll("web5")
	w.wantPurchases(2)
	for _, name := range names {
		w.delete(name)
	}
	w.settleAll(names...)
	w.wantBlocks("203.0.113.16/29 assigned")
	w.delete("web5")
	w.settleAll("web5")
	w.wantBlocks()
	if left := w.ledgers(); len(left) != 0 {
		t.Errorf("ledgers are left: %v", left)
	}
	w.sim.LeakCheck(clientID)
}

// TestSecondSharedServiceCostsNothing: an address of a block that is there takes no change of the account.
func TestSecondSharedServiceCostsNothing(t *testing.T) {
	w := newWorld(t)
	w.service("one", inPool())
	w.settle("one")
	before := w.sim.Counters()
	w.service("two", inPool())
	if took := w.settle("two"); took > 0 {
		t.Errorf("it took %s", took)
	}
	for operation, counts := range w.sim.Counters() {
		if !strings.HasPrefix(operation, "GET") && total(counts) != total(before[operation]) {
			t.Errorf("%s was sent", operation)
		}
	}
	w.wantAddressesOnce("one", "two")
}

// TestReleasedAddressIsQuarantined: an address that was released is not given to another at once.
//
//proves:known-bugs/early-reuse
//proves:service-changes/delete-shared
func TestReleasedAddressIsQuarantined(t *testing.T) {
	w := newWorld(t)
	w.service("first", inPool())
	w.settle("first")
	w.service("one", inPool())
	w.settle("one")
	given := w.address("one")
	w.delete("one")
	w.settle("one")
	w.service("two", inPool())
	w.settle("two")
	if got := w.address("two"); got == given {
		t.Errorf("address %s is given again at once", got)
	}
	for i := range 2 {
		name := fmt.Sprint("more", i)
		w.service(name, inPool())
		w.settle(name)
	}
	w.service("last", inPool())
	_, err := w.sync("last")
	if err == nil || err.Error() != "waiting for the quarantine of a released address to end" {
		t.Fatalf("said %v", err)
	}
	t.Run("until agents say that it is silent", func(t *testing.T) {
		node := w.node("node-1")
		node.Annotations[contract.NodeReportedAddresses] = `{"` + given +
			`":{"state":"Silent","since":"2026-03-01T12:00:00Z"}}`
		if err := w.nodes.Add(node); err != nil {
			t.Fatal(err)
		}
		if took := w.settle("last"); took > time.Minute || w.address("last") != given {
			t.Errorf("got %s after %s, want %s", w.address("last"), took, given)
		}
	})
	w.wantPurchases(1)
	w.wantAddressesOnce("first", "two", "more0", "more1", "last")
}

//proves:known-bugs/early-reuse
func TestRestedAddressIsReusedWithAnEvent(t *testing.T) {
	w := newWorld(t, configured(func(c *reconcile.Config) { c.BlockSize = "/30"; c.MaxBlocks = 1 }))
	w.service("one", inPool())
	w.settle("one")
	w.service("two", inPool())
	_, err := w.sync("two")
	if err == nil || !strings.Contains(err.Error(), "--max-ip-blocks") {
		t.Errorf("said %v", err)
	}
	w.delete("one")
	w.settle("one")
	if took := w.settle("two"); took < 5*time.Minute {
		t.Errorf("the address was given again after %s", took)
	}
	if !slices.Contains(w.eventReasons(), "AddressReused") {
		t.Error("no event says so")
	}
	w.wantPurchases(1)
}

// TestEditedAddressOfAnother: what is written on a Service never gives it the address of another.
//
//proves:known-bugs/preset-load-balancer-ip
func TestEditedAddressOfAnother(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"one", "two"} {
		w.service(name, inPool())
		w.settle(name)
	}
	first := w.address("one")
	second := w.address("two")
	for _, edit := range []func(*corev1.Service){
		annotated(contract.ServiceIPAddress, first),
		annotated(contract.ServiceIPAddress, first, contract.KubeVIPAddresses, first),
		func(s *corev1.Service) {
			annotated(contract.ServiceIPAddress, first, contract.KubeVIPAddresses, first)(s)
			s.Spec.LoadBalancerIP = first
		},
		annotated(contract.ServiceIPAddress, "nonsense", contract.ServiceIPOwner, "someone"),
		func(s *corev1.Service) { s.Annotations = map[string]string{contract.ServiceIPAllocation: "shared"} },
		func(s *corev1.Service) { s.Status = corev1.ServiceStatus{} },
		func(s *corev1.Service) { s.Spec.LoadBalancerIP = "" },
	} {
		w.edit("two", edit)
		w.wantDrifted("two")
		w.settle("two")
		if got := w.address("two"); got != second || w.get("two").Spec.LoadBalancerIP != second {
			t.Errorf("Service two has %s (%s), had %s", got, w.get("two").Spec.LoadBalancerIP, second)
		}
		w.wantAddressesOnce("one", "two")
	}
	w.wantPurchases(1)
}

func TestLostLedgerGivesNothingTwice(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"one", "two"} {
		w.service(name, inPool())
		w.settle(name)
	}
	first := w.address("one")
	second := w.address("two")
	w.loseIPBlock(w.objectOf(w.blockID()))
	w.restart()
	w.service("three", inPool())
	w.settleAll("three", "two", "one")
	w.wantAddressesOnce("one", "two", "three")
	if w.address("one") != first || w.address("two") != second {
		t.Errorf("addresses %s and %s, were %s and %s", w.address("one"), w.address("two"), first, second)
	}
	w.wantPurchases(1)
}

// TestPoolBlockChangedOutsideTheCluster: unassigned it is assigned again, deleted it is not replaced unasked.
//
//proves:known-bugs/never-looked-again
func TestPoolBlockChangedOutsideTheCluster(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"one", "two"} {
		w.service(name, inPool())
		w.settle(name)
	}
	w.portal(pnapsim.Edit{Kind: pnapsim.EditUnassignBlock, Block: w.blockID()})
	w.wantDrifted("one", "two")
	w.settleAll("one", "two")
	w.wantBlocks("203.0.113.8/29 assigned")

	w.portal(pnapsim.Edit{Kind: pnapsim.EditDeleteBlock, Block: w.blockID()})
	w.wantDrifted("one", "two")
	for _, name := range []string{"one", "two"} {
		if err := w.refused(name, 2*time.Minute); !strings.Contains(err.Error(), contract.ServiceIPReplace) {
			t.Errorf("refusal is %q", err)
		}
	}
	w.wantPurchases(1)
	for _, name := range []string{"one", "two"} {
		w.edit(name, annotated(contract.ServiceIPReplace, "true"))
	}
	w.settleAll("one", "two")
	w.wantPurchases(2)
	w.wantAddressesOnce("one", "two")
	w.delete("one")
	w.delete("two")
	w.settleAll("one", "two")
	w.sweep()
	w.wantBlocks()
	if left := w.ledgers(); len(left) != 0 {
		t.Errorf("ledgers are left: %v", left)
	}
}

// TestTheAddressOfALostBlockIsBoughtAgain: a block that is bought for another Service has the addresses of the lost
// one. The Service that lost its address gets it back.
func TestTheAddressOfALostBlockIsBoughtAgain(t *testing.T) {
	w := newWorld(t, slow(func(l *pnapsim.Latency) { l.Quarantine = 0 }))
	w.service("web", inPool())
	w.settle("web")
	lost := w.address("web")
	w.portal(pnapsim.Edit{Kind: pnapsim.EditDeleteBlock, Block: w.blockID()})
	w.clock.Advance(5 * time.Minute)
	_ = w.refused("web", 10*time.Minute)
	w.service("api", inPool())
	w.settle("api")
	w.wantDrifted("web")
	w.settle("web")
	if got := w.address("web"); got != lost {
		t.Errorf("the Service has %s, want %s again", got, lost)
	}
	w.wantAddressesOnce("web", "api")
	w.wantPurchases(2)
	w.delete("api")
	w.delete("web")
	w.settleAll("api", "web")
	w.sweep()
	w.wantBlocks()
}

// sweep lets the drift pass run for some minutes.
func (w *world) sweep() {
	w.t.Helper()
	for range 15 {
		w.drifted()
	}
}

// TestSweepReleasesWhatNoServiceRequests: Services that go without their finalizer leave nothing for good.
func TestSweepReleasesWhatNoServiceRequests(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"one", "two"} {
		w.service(name, inPool())
		w.settle(name)
		if err := w.tracker.Delete(servicesResource, "shop", name); err != nil {
			t.Fatal(err)
		}
	}
	w.sweep()
	w.wantBlocks()
	if left := w.ledgers(); len(left) != 0 {
		t.Errorf("ledgers are left: %v", left)
	}
	before := w.sim.Counters()
	w.sweep()
	for operation, counts := range w.sim.Counters() {
		if asked := total(counts) - total(before[operation]); asked > 15 ||
			(asked > 0 && !strings.HasPrefix(operation, "GET") && !strings.Contains(operation, "token")) {
			t.Errorf("%s was asked %d times in 15 passes", operation, asked)
		}
	}
}

// TestPurchaseForAPoolThatNoServiceWants: the block comes when its Service is gone.
func TestPurchaseForAPoolThatNoServiceWants(t *testing.T) {
	w := newWorld(t, slow(func(l *pnapsim.Latency) {
		l.BlockCreate = pnapsim.Duration(30 * time.Second)
		l.ListLag = pnapsim.Duration(8 * time.Second)
	}))
	w.service("web", inPool())
	for w.sim.Money(accountID).Purchases == 0 {
		_, err := w.sync("web")
		w.clock.Advance(w.pauseAfter(err))
	}
	w.delete("web")
	w.settle("web")
	w.sweep()
	w.wantBlocks()
	w.wantPurchases(1)
}

func TestStuckUnassignmentOfThePoolIsWaitedFor(t *testing.T) {
	w := newWorld(t)
	w.service("one", inPool())
	w.settle("one")
	w.arm(pnapsim.Fault{Method: http.MethodDelete, Path: unassignPath, Times: 1, Action: pnapsim.FaultOutcome,
		Outcome: pnapsim.OutcomeError})
	w.delete("one")
	w.settle("one")
	w.wantBlocks()
}

// TestFortyFiveServicesFitBesideTheNodeBlock fills the network.
//
//proves:known-bugs/block-per-address
func TestFortyFiveServicesFitBesideTheNodeBlock(t *testing.T) {
	w := newWorld(t, configured(func(c *reconcile.Config) { c.Allocation = contract.AllocationShared }))
	var names []string
	for i := range 45 {
		names = append(names, fmt.Sprintf("web%02d", i))
		w.service(names[i])
	}
	w.settleAll(names...)
	w.wantPurchases(9)
	w.wantAddressesOnce(names...)
	w.service("extra")
	if err := w.refused("extra", time.Minute); !strings.Contains(err.Error(), "10 IPv4 blocks") {
		t.Errorf("refusal is %q", err)
	}
}

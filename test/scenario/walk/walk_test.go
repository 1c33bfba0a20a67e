package walk

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// TestWalk walks with different seeds side by side and prints what they found.
//
//proves:known-bugs/orphans
func TestWalk(t *testing.T) {
	count := &counts{}
	specs := simtest.Specs(t)
	all := seeds.Count(t, 5)
	t.Run("seeds", func(t *testing.T) {
		for seed := range uint64(all) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { newWorld(t, seed, count, specs).walk() })
			})
		}
	})
	for _, figure := range []struct {
		name  string
		value int64
		unit  string
		zero  bool
	}{
		{name: "walk_seeds", value: count.seeds.Load(), unit: "seeds"},
		{name: "walk_faults_injected", value: count.faults.Load(), unit: "faults"},
		{name: "walk_purchases", value: count.purchases.Load(), unit: "blocks"},
		{name: "walk_addresses_published", value: count.published.Load(), unit: "addresses"},
		{name: "walk_leaked_blocks", value: count.leaked.Load(), unit: "blocks", zero: true},
		{name: "walk_stale_ipblocks", value: count.stale.Load(), unit: "objects", zero: true},
		{name: "walk_double_purchases", value: count.doubles.Load(), unit: "blocks", zero: true},
		{name: "walk_extra_blocks", value: count.extra.Load(), unit: "blocks"},
		{name: "walk_extra_blocks_collapsed", value: count.collapsed.Load(), unit: "blocks"},
		{name: "walk_blocks_bought_in_vain", value: count.futile.Load(), unit: "blocks", zero: true},
		{name: "walk_addresses_given_twice", value: count.twice.Load(), unit: "addresses", zero: true},
		{name: "walk_fenced_changes", value: count.fenced.Load(), unit: "requests"},
		{name: "walk_nodes_wrongly_deleted", value: count.nodesLost.Load(), unit: "Nodes", zero: true},
		{name: "walk_stuck_services", value: count.stuck.Load(), unit: "Services", zero: true},
		{name: "walk_addresses_lost", value: count.lost.Load(), unit: "addresses", zero: true},
		{name: "walk_published_blocks_taken_away", value: count.taken.Load(), unit: "blocks", zero: true},
		{name: "walk_changes_by_deposed_leader", value: count.deposed.Load(), unit: "requests", zero: true},
		{name: "walk_published_address_unassigned_seconds", value: count.unassigned.Load(), unit: "s"},
		{name: "walk_blocks_paid_without_use_seconds", value: count.unused.Load(), unit: "s"},
		{name: "walk_calls_in_a_minute_max", value: count.busiest.Load(), unit: "calls"},
	} {
		_, _ = fmt.Fprintf(t.Output(), "figure %s %d %s\n", figure.name, figure.value, figure.unit)
		if figure.zero && figure.value != 0 {
			t.Errorf("%s is %d, want 0", figure.name, figure.value)
		}
	}
	_, _ = fmt.Fprintf(t.Output(), "figure walk_watch_lag_classes %d classes\n", count.classes.injected(watchClasses))
	for _, class := range count.classes.list() {
		_, _ = fmt.Fprintf(t.Output(), "figure walk_class_%s %d injections\n", class.name, class.count)
	}
	switch made := count.seeds.Load(); {
	case made == 0:
		t.Errorf("no walk was made: there are seeds 0 to %d, more with %s", all-1, seeds.Variable)
	case made == int64(all): // else the option -run chose some, which need not meet everything
		count.judgeVariety(t)
	}
}

// judgeVariety: walks that meet no trouble and get nothing done prove nothing.
func (c *counts) judgeVariety(t *testing.T) {
	t.Helper()
	for _, class := range c.classes.list() {
		if class.count == 0 {
			t.Errorf("no walk injected %s", class.name)
		}
	}
	if c.faults.Load() < 10*c.seeds.Load() || c.published.Load() < 2*c.seeds.Load() {
		t.Errorf("%d faults and %d addresses in %d walks: too few", c.faults.Load(), c.published.Load(),
			c.seeds.Load())
	}
}

// steps is how many things happen in a walk, and forced how many of them beside those that are drawn: so many that all
// of these occur in five walks.
const steps, forced = 40, 6

// walk makes trouble, then waits through a calm in which everything must end.
func (w *world) walk() {
	w.count.seeds.Add(1)
	if w.seed%5 == 4 {
		w.openWest()
	}
	for i := range w.nodes {
		w.register(i)
	}
	w.process = w.live(0)
	if w.seed%4 == 3 {
		w.inject(classSecondCluster)
		w.addNeighbour(neighbourUID)
	}
	go w.observe()
	for step := range steps {
		if every := steps / forced; step%every == every-1 {
			w.force(step / every)
		}
		w.happen()
		if w.several && step%6 == 0 {
			w.networksChange()
		}
		w.pause()
	}
	if !w.restoreAt.IsZero() {
		w.restoreEtcd()
		w.look()
	}
	w.calm()
	for _, cluster := range w.clusters() {
		cluster.checkServices()
		cluster.checkShared()
		cluster.checkNetworks()
		cluster.judgeResold()
	}
	w.drift()
	w.end()
	for _, cluster := range w.clusters() {
		cluster.checkEnd()
		cluster.judgeResold()
	}
	w.checkReplaced()
	for _, violation := range w.sim.Violations() {
		if !w.isExcused(violation) {
			w.fail("rule broken: %s", violation)
		}
	}
	for _, entry := range w.sim.Log(0) {
		if entry.Fault != "" {
			w.count.faults.Add(1)
		}
	}
	for _, cluster := range w.clusters() {
		cluster.process.bury()
	}
	w.observer.stop()
	if w.t.Failed() {
		w.t.Logf("seed %d, collects orphans: %t, manages memberships: %t, list lag %s, events %v\n%s", w.seed,
			w.collect, w.manages, time.Duration(w.latencies.ListLag), w.events.reasons, strings.Join(w.history, "\n"))
	}
	time.Sleep(10 * time.Minute) // for what sleeps where nothing can wake it
}

// isExcused reports whether a violation was unavoidable: a stopped process bought while its successor had bought, or
// was about to buy after its last look, or its request carried a token that was refused while it was stopped, or
// repeated one that had failed for its successor, of which it knows nothing until it finds out that it was deposed. Nor
// does a process know of a purchase that was carried out late, with its answer lost, while the list does not show it.
func (w *world) isExcused(v pnapsim.Violation) bool {
	switch v.Rule {
	case "needless-purchase":
		return slices.ContainsFunc(slices.Collect(maps.Values(w.late)), func(late lateBlock) bool {
			unlisted := late.hidesAt(v.Time, time.Duration(w.latencies.ListLag)) &&
				strings.Contains(v.String(), "("+late.cidr+") lies idle")
			return unlisted || strings.Contains(v.String(), "purchase of "+late.cidr+" ")
		})
	case "repeated-post":
		return slices.ContainsFunc(w.thaws, func(at time.Time) bool { return v.Time.Sub(at).Abs() < time.Minute })
	case "stale-token":
		return slices.ContainsFunc(w.thaws, func(at time.Time) bool { return v.Time.Sub(at).Abs() < time.Second })
	case "retry-backoff":
		return slices.ContainsFunc(w.thaws, func(at time.Time) bool {
			return !v.Time.Before(at) && v.Time.Sub(at) < 5*time.Second
		})
	default:
		return false
	}
}

// pause lets time pass, in which a process that is lost gets a successor, as after a lease has run out.
func (w *world) pause() {
	limit := 20 * time.Second
	if w.random.IntN(4) == 0 {
		limit = 4 * time.Minute
	}
	time.Sleep(time.Duration(w.random.Int64N(int64(limit))))
	if !w.restoreAt.IsZero() && time.Now().After(w.restoreAt) {
		w.restoreEtcd()
	}
	w.look()
}

// look is what an observer sees at any time: no address twice, no block too many for long, and a live controller. Until
// the calm, which has a controller and the right keys all the time, and as long as the list of the account shows a
// block that is gone, an address may stay whose block the portal deleted.
func (w *world) look() {
	synctest.Wait()
	holders := map[string]*corev1.Service{}
	for i, cluster := range w.clusters() {
		for _, service := range cluster.services() {
			settled := cluster.calming.Load() && time.Since(w.calmedAt) > w.listed()
			if !settled && cluster.isStale(&service) {
				continue
			}
			for _, ingress := range service.Status.LoadBalancer.Ingress {
				cluster.notePublished(string(service.UID) + " " + ingress.IP)
				if other, taken := holders[ingress.IP]; taken && !w.reported[ingress.IP] &&
					time.Since(w.restoredAt) > w.listed() && !cluster.mayShare(other, &service) {
					w.reported[ingress.IP] = true
					w.count.twice.Add(1)
					w.fail("%s and %s of cluster %d have %s", other.Name, service.Name, i, ingress.IP)
				}
				holders[ingress.IP] = &service
			}
		}
		cluster.watchExtras()
		cluster.judgeRetained()
		if cluster.process.isLost() {
			cluster.succeed()
		}
	}
}

// notePublished counts the addresses of Services, each once.
func (w *world) notePublished(address string) {
	if !w.published[address] {
		w.published[address] = true
		w.count.published.Add(1)
	}
}

// watchExtras notes which blocks too many are gone, or are left to the user. When their Service is gone, they are
// orphans, and held to the grace of those: see observeUse and checkEnd.
func (w *world) watchExtras() {
	served := map[string]bool{}
	for _, service := range w.services() {
		served[contract.TagService+"="+contract.ServiceTag(namespace, service.Name)] = true
	}
	have := map[string]int{}
	for _, b := range w.ours() {
		if !w.isReported(b) {
			have[b.owner()]++
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for owner := range w.extras {
		if have[owner] <= 1 {
			delete(w.extras, owner)
			w.count.collapsed.Add(1)
		}
		if !served[owner] {
			delete(w.extras, owner)
		}
	}
}

// succeed starts the next process. The one before may be stopped and still have a purchase to make.
func (w *world) succeed() {
	lost := w.process
	w.did("a new process takes over")
	w.count.faults.Add(1)
	w.sim.ClientRestarted(w.client)
	w.process = w.live(0)
	if lost.isDead() {
		lost.bury()
		return
	}
	// It is buried at the end of the walk, when it has gone on.
	w.stopped = append(w.stopped, lost)
}

// listed is for how long an address may stay whose block is gone: so long the list of the account may show the block.
func (w *world) listed() time.Duration { return collapse + time.Duration(w.latencies.ListLag) }

// calm ends all trouble and gives everything the time that it may take.
func (w *world) calm() {
	w.did("calm")
	w.sim.Disarm()
	w.ready()
	w.process.mu.Lock()
	w.process.dieAt = 0
	w.process.freeze = 0
	w.process.pauseFor = 0
	w.process.late = 0
	w.process.mu.Unlock()
	w.use(w.own)
	w.endLags()
	w.calmWest()
	w.deleteDamaged()
	w.deleteSeconds()
	w.unbar()
	for _, cluster := range w.clusters() {
		cluster.calming.Store(true)
	}
	w.calmedAt = time.Now()
	for range 2 {
		time.Sleep(collapse)
		w.look()
		for _, cluster := range w.clusters() {
			cluster.excuseNothing()
		}
	}
	time.Sleep(w.extrasListed()) // nothing shows an extra block before the list of the account does
	w.look()
	w.mu.Lock()
	late := len(w.extras)
	w.mu.Unlock()
	if late > 0 {
		w.fail("%d blocks too many are still there: %v", late, w.ours())
	}
	time.Sleep(w.patience())
	w.look()
}

// extrasListed is how long the list may still lack a block too many, and what is left to release it.
func (w *world) extrasListed() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.extras) == 0 {
		return 0
	}
	return max(0, time.Duration(w.latencies.ListLag)-time.Since(w.calmedAt)) + collapse
}

// checkServices: each Service is published in an assigned block, or its conditions explain why not.
func (w *world) checkServices() {
	for _, service := range w.services() {
		if service.Spec.Type != corev1.ServiceTypeLoadBalancer {
			if len(service.Status.LoadBalancer.Ingress) > 0 || service.Annotations[contract.ServiceIPAddress] != "" {
				w.fail("Service %s is of type %s and has %v", service.Name, service.Spec.Type,
					service.Status.LoadBalancer)
			}
			continue
		}
		if len(service.Status.LoadBalancer.Ingress) == 0 {
			if reason := explanation(&service); reason == "" || reason == "APIPaused" { // the pause is long over
				w.count.stuck.Add(1)
				w.fail("Service %s has neither an address nor a reason: %v; the account has %v", service.Name,
					service.Status.Conditions, w.ours())
			}
			continue
		}
		if address := service.Status.LoadBalancer.Ingress[0].IP; !w.isServed(address) {
			if explanation(&service) == "" {
				w.fail("Service %s has %s, which no assigned block has: %v; conditions %v", service.Name, address,
					w.blocks(), service.Status.Conditions)
			}
		}
	}
}

// explanation is the reason of a condition of ours that is not True.
func explanation(service *corev1.Service) string {
	block := meta.FindStatusCondition(service.Status.Conditions, contract.ServiceConditionBlockAssigned)
	if block != nil && block.Status != metav1.ConditionTrue { // the other conditions only follow
		return block.Reason
	}
	for _, condition := range service.Status.Conditions {
		if strings.HasPrefix(condition.Type, contract.Prefix) && condition.Type != contract.ServiceConditionAnnounced &&
			condition.Status != metav1.ConditionTrue {
			return condition.Reason
		}
	}
	return ""
}

// isServed reports whether an assigned block holds an address.
func (w *world) isServed(address string) bool {
	ip, err := netip.ParseAddr(address)
	return err == nil && slices.ContainsFunc(w.blocks(), func(b block) bool {
		cidr, err := netip.ParsePrefix(b.cidr)
		return err == nil && cidr.Contains(ip) && b.status == "assigned"
	})
}

// end deletes every Service and waits.
func (w *world) end() {
	for _, cluster := range w.clusters() {
		for _, service := range cluster.services() {
			cluster.unretain(service.Name)
		}
	}
	time.Sleep(2 * time.Minute)
	for _, cluster := range w.clusters() {
		for _, service := range cluster.services() {
			cluster.remove(service.Name)
			time.Sleep(30 * time.Second)
		}
	}
	time.Sleep(w.patience())
	for _, cluster := range w.clusters() {
		cluster.deleteIPBlocks()
	}
	time.Sleep(w.patience())
	w.look()
}

// patience is how long to wait for what the controller has to do: an orphan is collected after orphanGrace, and what a
// list does not show is believed later.
func (w *world) patience() time.Duration {
	return 2*orphanGrace + time.Duration(max(w.latencies.ListLag, w.latencies.ServerListLag))
}

// isReported reports whether a block is left whose Service was gone before the controller saw it go, or that a stopped
// process bought for a Service which was gone by then, where the user wants such blocks to be reported only, or where
// there are so many that a person must confirm their deletion.
func (w *world) isReported(b block) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, late := w.late[b.id]
	return (late || w.abandoned[b.owner()]) && w.events.reports(b.id) &&
		(!w.collect || w.events.has("OrphanNotCollected"))
}

// checkEnd: none of our objects are left, and all others are unchanged.
func (w *world) checkEnd() {
	if left := w.services(); len(left) > 0 {
		w.count.stuck.Add(int64(len(left)))
		w.fail("Services are still there: %v %v", left[0].Name, left[0].Status.Conditions)
	}
	left := slices.DeleteFunc(w.ours(), func(b block) bool {
		return w.isReported(b)
	})
	if len(left) > 0 {
		w.count.leaked.Add(int64(len(left)))
		w.fail("blocks are left: %v", left)
	}
	if left := w.staleObjects(); len(left) > 0 {
		w.count.stale.Add(int64(len(left)))
		w.fail("IPBlocks are left of blocks that are gone: %v", left)
	}
	if len(w.events.misled) > 0 {
		w.fail("refusals give the wrong advice: %q", w.events.misled)
	}
	for _, b := range w.blocks() {
		if b.tags[contract.TagCluster] == otherCluster && b.status != "unassigned" {
			w.fail("a block of another cluster is %s", b)
		}
		if b.foreign && b.status != "unassigned" || b.cidr == dividedCIDR && b.status != "subnetted" {
			w.fail("a block that no one may touch is %s", b)
		}
	}
	for _, p := range w.stopped {
		p.bury()
	}
}

// staleObjects are the IPBlocks that say nothing any more: the account has no such block, or a purchase has had no
// answer for more than an hour, which is how long one for the pool is waited for.
func (w *world) staleObjects() []string {
	list, err := w.ipBlocks.List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	var left []string
	for _, object := range list.Items {
		id := object.Spec.BlockID
		there := slices.ContainsFunc(w.blocks(), func(b block) bool { return b.id == id })
		asked := object.Status.Purchase
		waits := id == "" && asked != nil && time.Since(asked.Time.Time) < time.Hour+collapse
		damaged := object.Status.CIDR == "" && object.Status.Allocations != nil // which a person is asked to delete
		if !there && !waits && !damaged {
			left = append(left, fmt.Sprintf("%s of block %q", object.Name, id))
		}
	}
	return left
}

package reconcile_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// Limits of what waiting may cost.
const (
	maxWaitingCalls  = 12 // of one Service, from its creation to its publication
	maxEightCalls    = 6  // of each of eight Services at once, beyond the shared ones
	maxDeletionCalls = 8
	driftPeriod      = time.Minute
)

// queued is the service controller's queue in virtual time: a Service is synced when its pause is over, and when the
// check for drift, once a minute, finds it. It counts what the check for drift costs: the steady state pays for that.
type queued struct {
	*world
	due       map[string]time.Time
	nextDrift time.Time
	drift     map[string]int
}

func (w *world) queue() *queued {
	return &queued{world: w, due: map[string]time.Time{}, drift: map[string]int{}}
}

// settle syncs the Services until nothing is left to do, and returns how long that took and what it cost without the
// checks for drift, by operation.
func (q *queued) settle(names ...string) (time.Duration, map[string]int) {
	q.t.Helper()
	start := q.clock.Now()
	before := q.sim.Counters()
	q.drift = map[string]int{}
	q.nextDrift = start.Add(driftPeriod / 2)
	for _, name := range names {
		q.due[name] = start
	}
	for len(q.due) > 0 {
		if q.clock.Now().Sub(start) > time.Hour {
			q.t.Fatalf("not settled after an hour: %v; the account holds %s", q.due, q.blocks())
		}
		q.step()
	}
	made := q.asked(before)
	delete(made, "GET /location-api/v1/locations") // once an hour for all Services
	for operation, n := range q.drift {
		if made[operation] -= n; made[operation] == 0 {
			delete(made, operation)
		}
	}
	return q.clock.Now().Sub(start), made
}

// step syncs what is due, and then lets time pass until the next Service or check for drift is.
func (q *queued) step() {
	now := q.clock.Now()
	if !now.Before(q.nextDrift) {
		q.nextDrift = now.Add(driftPeriod)
		q.lookForDrift(now)
	}
	for _, name := range slices.Sorted(maps.Keys(q.due)) {
		if !now.Before(q.due[name]) {
			q.syncOnce(name, now)
		}
	}
	next := q.nextDrift
	for _, at := range q.due {
		if at.Before(next) {
			next = at
		}
	}
	if len(q.due) > 0 && next.After(now) {
		q.clock.Advance(next.Sub(now))
	}
}

func (q *queued) lookForDrift(now time.Time) {
	before := q.sim.Counters()
	q.refresh()
	drifted, err := q.lb.Drifted(q.ctx)
	if err != nil {
		q.t.Fatalf("the drift pass failed: %v", err)
	}
	for operation, n := range q.asked(before) {
		q.drift[operation] += n
	}
	for _, found := range drifted {
		q.due[found.Name] = now
	}
}

func (q *queued) syncOnce(name string, now time.Time) {
	done, err := q.sync(name)
	if done {
		delete(q.due, name)
		return
	}
	q.said = append(q.said, err.Error())
	q.due[name] = now.Add(q.pauseAfter(err))
}

// sum adds up calls.
func sum(asked map[string]int) (total int) {
	for n := range maps.Values(asked) {
		total += n
	}
	return total
}

// lasting is an account that takes that long to assign or unassign a block, with a Service in it that was published
// long ago: its tags exist.
func lasting(t *testing.T, takes time.Duration) *queued {
	t.Helper()
	w := newWorld(t, slow(func(l *pnapsim.Latency) {
		l.Assign = pnapsim.Duration(takes)
		l.Unassign = pnapsim.Duration(takes)
	}))
	q := w.queue()
	w.service("warm")
	q.settle("warm")
	w.clock.Advance(10 * time.Minute)
	return q
}

// forgetful is lasting with a controller that has just started: it does not know how long assignments take.
func forgetful(t *testing.T, takes time.Duration) *queued {
	t.Helper()
	q := lasting(t, takes)
	q.restart()
	return q
}

// TestWaitingCostsFewCalls: however long the account takes, a Service costs few calls, and the end of the wait is
// noticed soon.
func TestWaitingCostsFewCalls(t *testing.T) {
	most := 0
	for _, takes := range []time.Duration{time.Second, 3 * time.Second, 5 * time.Second, 20 * time.Second,
		30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute} {
		for kind, begin := range map[string]func(*testing.T, time.Duration) *queued{
			"after_start": forgetful, "later": lasting,
		} {
			t.Run(fmt.Sprint(kind, "/", takes), func(t *testing.T) {
				q := begin(t, takes)
				q.service("web")
				took, asked := q.settle("web")
				most = max(most, sum(asked))
				if sum(asked) > maxWaitingCalls {
					t.Errorf("%d calls, more than %d: %v", sum(asked), maxWaitingCalls, asked)
				}
				late := took - takes - time.Second // which the account takes to create a block
				if late > max(time.Second, min(takes, driftPeriod/2)) {
					t.Errorf("published %s after the block was assigned", late)
				}
				t.Logf("figure waiting_service_cloud_calls_%s_%.0fs %d calls", kind, takes.Seconds(), sum(asked))
				t.Logf("figure waiting_service_noticed_late_%s_%.0fs %.1f s", kind, takes.Seconds(), late.Seconds())
			})
		}
	}
	t.Logf("figure waiting_service_cloud_calls %d calls", most)
}

func several(q *queued, count int) []string {
	var names []string
	for i := range count {
		names = append(names, fmt.Sprint("web", i))
		q.service(names[i])
	}
	return names
}

// sharedReads are lists and readings of the network, which show the same to all Services.
func sharedReads(asked map[string]int) int {
	return asked["GET /ips/v1/ip-blocks"] + asked["GET /networks/v1/public-networks/{publicNetworkId}"] +
		asked["GET /tag-manager/v1/tags"]
}

func TestEightServicesAtOnceCostFewCalls(t *testing.T) {
	q := forgetful(t, 20*time.Second)
	names := several(q, 8)
	took, asked := q.settle(names...)
	each := float64(sum(asked)-sharedReads(asked)) / float64(len(names))
	if each > maxEightCalls {
		t.Errorf("%g calls for each Service, more than %d: %v", each, maxEightCalls, asked)
	}
	if took > 8*20*time.Second*3/2+driftPeriod/2 {
		t.Errorf("eight Services took %s", took)
	}
	t.Logf("figure waiting_eight_services_cloud_calls %.1f calls", each)
	t.Logf("figure waiting_eight_services_all_cloud_calls %.1f calls", float64(sum(asked))/float64(len(names)))
	t.Logf("figure waiting_eight_services_published_after %.0f s", took.Seconds())
	t.Log(asked)
}

func TestDeletionsCostFewCalls(t *testing.T) {
	most := 0.0
	for _, count := range []int{1, 9} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			q := lasting(t, 30*time.Second)
			names := several(q, count-1)
			q.settle(names...)
			q.clock.Advance(10 * time.Minute)
			names = append(names, "warm")
			for _, name := range names {
				q.delete(name)
			}
			took, asked := q.settle(names...)
			each := float64(sum(asked)) / float64(count)
			most = max(most, each)
			if each > maxDeletionCalls {
				t.Errorf("%g calls for each of %d deletions, more than %d: %v", each, count, maxDeletionCalls, asked)
			}
			t.Logf("figure deletion_cloud_calls_%d_at_once %.1f calls", count, each)
			t.Logf("figure deletion_took_%d_at_once %.0f s", count, took.Seconds())
			t.Log(asked)
			if left := q.blocks(); !slices.Equal(left, nil) {
				t.Errorf("left: %v", left)
			}
		})
	}
	t.Logf("figure deletion_cloud_calls %.1f calls", most)
}

// TestTheConditionNamesWhatIsWaitedFor: it says which block, which network and since when, and is written once for each
// wait, also when another process goes on with it.
func TestTheConditionNamesWhatIsWaitedFor(t *testing.T) {
	w := newWorld(t, slow(func(l *pnapsim.Latency) { l.Assign = pnapsim.Duration(5 * time.Minute) }))
	w.service("web")
	for w.condition("web").Reason != "BlockAssigning" {
		_, err := w.sync("web")
		w.clock.Advance(w.pauseAfter(err))
	}
	message := w.condition("web").Message
	want := "waiting for IP block to be assigned to the public network: block " + w.blockID() +
		" (203.0.113.8/29), network " + networkID + ", requested at 2026-03-01T12:0"
	if !strings.HasPrefix(message, want) {
		t.Errorf("the condition says %q, want %q", message, want)
	}
	versions := w.versions
	for range 5 {
		_, err := w.sync("web")
		w.clock.Advance(w.pauseAfter(err))
	}
	w.restart()
	for range 3 {
		_, err := w.sync("web")
		w.clock.Advance(w.pauseAfter(err))
	}
	if w.versions != versions {
		t.Errorf("waiting wrote %d times: %q", w.versions-versions, w.condition("web").Message)
	}
}

// overtaking lets something happen while a block is read by its ID, which takes no lock.
type overtaking struct {
	crashing
	happens func()
}

func (o *overtaking) Block(ctx context.Context, id string) (network.Block, error) {
	block, err := o.crashing.Block(ctx, id)
	if happens := o.happens; happens != nil {
		o.happens = nil
		happens()
	}
	return block, err
}

// TestOneChangeOfTheNetworkAtATime: what is known of a network is outdated once another Service has changed it, also
// for a Service that goes on with a block that it has just read. The simulator refuses a second change.
func TestOneChangeOfTheNetworkAtATime(t *testing.T) {
	begin := func(t *testing.T) (*world, *overtaking) {
		w := newWorld(t, slow(func(l *pnapsim.Latency) { l.TagPropagation = 0 }), broughtBlock("", ofCluster()))
		api := &overtaking{crashing: crashing{Client: w.client, world: w}}
		w.restartWith(api)
		w.service("waits")
		_, _ = w.sync("waits")
		w.wantPurchases(1)
		w.clock.Advance(time.Minute)
		w.service("overtakes", inBlock(broughtID))
		return w, api
	}
	t.Run("assign", func(t *testing.T) {
		w, api := begin(t)
		api.happens = func() { _, _ = w.sync("overtakes") }
		_, _ = w.sync("waits")
		w.wantBlocks("203.0.113.64/29 assigning", "203.0.113.8/29 unassigned")
	})
	t.Run("unassign", func(t *testing.T) {
		w, _ := begin(t)
		_, _ = w.sync("waits")
		w.clock.Advance(time.Minute)
		w.delete("waits")
		_, _ = w.sync("overtakes")
		_, _ = w.sync("waits")
		w.wantBlocks("203.0.113.64/29 assigning", "203.0.113.8/29 assigned")
	})
}

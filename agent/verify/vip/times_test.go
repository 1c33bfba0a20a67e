package vip

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer/kinds"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer/kubevip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/seeds"
)

// elected is a world in which kube-vip elects by Leases of an API server, which the agents read as they do in a
// cluster.
type elected struct {
	*world
	client   *fake.Clientset
	duration time.Duration
	// running are the machines on which kube-vip runs, in the order in which they take a Lease that has ended.
	running []*machine
	holder  *machine
	renewed time.Time
}

const leaseName = "kubevip-web003"

// elect makes the agents of a world read Leases, which last for a time.
func elect(t *testing.T, w *world, duration time.Duration) *elected {
	e := &elected{world: w, client: fake.NewClientset(), duration: duration, running: []*machine{w.a}, holder: w.a}
	e.write(t.Context())
	for _, m := range w.machines {
		if m.watcher == nil {
			continue
		}
		reader := kubevip.NewReader(e.client.CoordinationV1(), "kube-system/"+kubevip.GlobalLease, m.name,
			m.watcher.Wake)
		m.watcher.Announcers = kinds.All(reader.Of)
		w.others = append(w.others, reader.Run)
	}
	w.others = append(w.others, e.run)
	return e
}

// run is what all kube-vips do: the holder renews every second, another takes over what has ended.
func (e *elected) run(ctx context.Context) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			e.mu.Lock()
			e.step(ctx)
			e.mu.Unlock()
		}
	}
}

func (e *elected) step(ctx context.Context) {
	for _, m := range e.running {
		switch {
		case m == e.holder:
			e.write(ctx)
			return
		case time.Since(e.renewed) > e.duration:
			e.holder = m
			e.write(ctx)
			m.carries[e.address] = []string{vif}
			m.announces[e.address] = true
			go m.watcher.Wake()
			return
		}
	}
}

// write renews the Lease.
func (e *elected) write(ctx context.Context) {
	e.renewed = time.Now()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: leaseName},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &e.holder.name, LeaseDurationSeconds: ptr.To(int32(e.duration / time.Second)),
			RenewTime: ptr.To(metav1.NewMicroTime(e.renewed)),
		}}
	leases := e.client.CoordinationV1().Leases("default")
	if _, err := leases.Update(context.WithoutCancel(ctx), lease, metav1.UpdateOptions{}); err == nil {
		return
	}
	if _, err := leases.Create(context.WithoutCancel(ctx), lease, metav1.CreateOptions{}); err != nil {
		e.t.Error(err)
	}
}

// kill ends kube-vip on srv-1 without a clean shutdown: the kernel keeps the address. next take over what it held.
func (e *elected) kill(next ...*machine) {
	e.running = next
	delete(e.a.announces, e.address)
}

// TestTimes: every result is there within 30 s of what can be seen on the wire or in the kernel, or of the end of the
// Lease, and within 2 s where the kernel reports it; and it ends in the same time. Each fault is made at random
// moments.
func TestTimes(t *testing.T) {
	const probed, notified = 30 * time.Second, 2 * time.Second
	for name, tc := range map[string]struct {
		state func(e *elected)
		a, b  string // reasons; nothing is expected of a node without one
		// ends reports that the fault can be seen when the Lease has ended.
		ends   bool
		within time.Duration
	}{
		"killed, another takes over": {func(e *elected) { e.kill(e.b) }, ReasonStaleAddress, ReasonDuplicate, true,
			probed},
		"killed, without a takeover":    {func(e *elected) { e.kill() }, ReasonLeaseExpired, "", true, probed},
		"the holder's kernel is silent": {func(e *elected) { e.a.deaf = true }, "", ReasonHolderSilent, false, probed},
		"taken by hand": {func(e *elected) { delete(e.a.carries, e.address) }, ReasonHolderSilent, "",
			false, probed},
		"carried twice": {func(e *elected) { e.b.carries[e.address] = []string{vif} }, ReasonDuplicate,
			ReasonStaleAddress, false, probed},
		"claimed by a foreign machine": {
			func(e *elected) { e.foreign.carries[e.address] = []string{vif} }, ReasonForeignOwner, "",
			false, probed},
		"only another node answers": {func(e *elected) {
			e.a.drop(e.address)
			e.b.carries[e.address] = []string{vif}
		}, ReasonWrongNode, ReasonStaleAddress, false, probed},
		"none: kube-vip ends everywhere": {func(e *elected) { e.a.drop(e.address); e.running = nil }, ReasonNoAnswer,
			ReasonNoAnswer, true, probed},
		"the holder loses power": {func(e *elected) { e.running = nil; e.a.drop(e.address); e.a.ready = false },
			"", ReasonNoAnswer, true, probed},
		"on the wrong interface": {func(e *elected) { e.a.carries[e.address] = []string{"bond0"} },
			ReasonWrongInterface, "",
			false, notified},
		"no way back": {func(e *elected) { e.a.returnBy = "bond0" }, ReasonReturnPath, "", false, notified},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range seeds.Count(t, 2) {
				seed := rand.Uint64()
				duration := []time.Duration{5 * time.Second, 15 * time.Second}[i%2]
				synctest.Test(t, func(t *testing.T) {
					t.Logf("seed %d, Leases of %s", seed, duration)
					random := rand.New(rand.NewPCG(seed, 0))
					e := elect(t, newWorld(t), duration)
					defer e.world.run()()
					after(25*time.Second + time.Duration(random.Int64N(int64(time.Minute))))
					e.expect("before", ReasonAnswered, ReasonAnswered)
					e.change(func() { tc.state(e) })
					if tc.ends {
						after(duration + time.Second)
					}
					e.await(tc.a, tc.b, tc.within)
					after(time.Duration(random.Int64N(int64(time.Minute))))
					e.change(e.restart)
					e.await(ReasonAnswered, ReasonAnswered, probed)
				})
			}
		})
	}
}

// TestOwnAnnouncerIsMissed: the node that holds an address hears that its own kube-vip fell silent, and need not wait
// for the next read of the Lease.
func TestOwnAnnouncerIsMissed(t *testing.T) {
	for range seeds.Count(t, 5) {
		seed := rand.Uint64()
		synctest.Test(t, func(t *testing.T) {
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 0))
			e := elect(t, newWorld(t), 5*time.Second)
			defer e.world.run()()
			after(25*time.Second + time.Duration(random.Int64N(int64(time.Minute))))
			e.change(func() { e.kill() })
			e.await(ReasonLeaseExpired, "", freshness+8*time.Second)
		})
	}
}

// restart puts everything back, with kube-vip only on srv-1.
func (e *elected) restart() {
	e.running = []*machine{e.a}
	e.holder = e.a
	e.write(e.t.Context())
	e.repair()
}

// await waits until the nodes report what they should; an empty reason is nothing to wait for.
func (e *elected) await(a, b string, within time.Duration) {
	e.t.Helper()
	want := map[*machine]string{e.a: a, e.b: b}
	for begun := time.Now(); len(want) > 0; after(200 * time.Millisecond) {
		for m, reason := range want {
			if reason == "" || m.last().Reason == reason {
				delete(want, m)
			}
		}
		if took := time.Since(begun); len(want) > 0 && took > within {
			for m, reason := range want {
				e.t.Errorf("after %s the result of %s is %s (%s), want %s", took, m.name, m.last().Reason,
					m.last().Message, reason)
			}
			return
		}
	}
}

package kubevip

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer"
)

// election is an API server with Leases and a kube-vip that renews them.
type election struct {
	*fake.Clientset
	t *testing.T
	// renewer renews the Lease of the Service every second; none when it is empty. ahead is its clock's lead on ours.
	renewer string
	ahead   time.Duration
	fails   error

	mu   sync.Mutex
	gets []string
}

func newElection(t *testing.T) *election {
	e := &election{Clientset: fake.NewClientset(), t: t, ahead: time.Hour}
	e.PrependReactor("get", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
		get, _ := a.(clienttesting.GetAction)
		e.mu.Lock()
		defer e.mu.Unlock()
		e.gets = append(e.gets, a.GetNamespace()+"/"+get.GetName())
		return e.fails != nil, nil, e.fails
	})
	return e
}

// read is how often a Lease was read.
func (e *election) read(key string) (times int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, get := range e.gets {
		if get == key {
			times++
		}
	}
	return times
}

// start runs a reader.
func (e *election) start(r *Reader) (stop func()) {
	ctx, cancel := context.WithCancel(e.t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			e.t.Errorf("Run returned %v after its context ended, want nil", err)
		}
	}
}

// pass lets time pass, in which the Lease is renewed and read.
func (e *election) pass(r *Reader, d time.Duration, evidence time.Time) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		if e.renewer != "" {
			e.renew("shop", "kubevip-web", e.renewer)
		}
		r.Of(web(nil), evidence)
		time.Sleep(min(time.Second, time.Until(end)))
		synctest.Wait()
	}
}

// renew writes a Lease as kube-vip does.
func (e *election) renew(namespace, name, holder string) {
	e.t.Helper()
	now := metav1.NewMicroTime(time.Now().Add(e.ahead))
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: ptr.To(int32(5)), RenewTime: &now,
		}}
	leases := e.CoordinationV1().Leases(namespace)
	if _, err := leases.Update(context.WithoutCancel(e.t.Context()), lease, metav1.UpdateOptions{}); err == nil {
		return
	}
	if _, err := leases.Create(context.WithoutCancel(e.t.Context()), lease, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
}

func web(annotations map[string]string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: annotations}}
}

// TestStates walks through the life of a Lease. Each step is a read half a minute after the last.
func TestStates(t *testing.T) {
	type look struct {
		holder string // renewed by; "-" renews nothing
		state  announcer.State
	}
	for name, looks := range map[string][]look{
		"held":                {{"srv-a", ""}, {"srv-a", announcer.Held}, {"srv-a", announcer.Held}},
		"left from long ago":  {{"srv-a", ""}, {"-", announcer.Expired}, {"-", announcer.Expired}},
		"the holder dies":     {{"srv-a", ""}, {"srv-a", announcer.Held}, {"-", announcer.Expired}},
		"expired, then taken": {{"srv-a", ""}, {"-", announcer.Expired}, {"srv-b", announcer.Held}},
		"released": {{"srv-a", ""}, {"srv-a", announcer.Held}, {"", announcer.Released},
			{"srv-b", announcer.Held}},
		"another holder between reads":   {{"srv-a", ""}, {"srv-b", announcer.Held}},
		"names are compared in one case": {{"SRV-A", ""}, {"srv-a", announcer.Held}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newElection(t)
				r := NewReader(e.CoordinationV1(), "kube-system/"+GlobalLease, "srv-x", nil)
				for i, l := range looks {
					if l.holder != "-" {
						e.renew("shop", "kubevip-web", l.holder)
					}
					got := r.Look(t.Context(), web(nil))
					if got.State != l.state || got.Name != "shop/kubevip-web" || got.Error != "" {
						t.Errorf("read %d: %+v, want %q", i, got, l.state)
					}
					time.Sleep(Pause)
				}
			})
		})
	}
}

// TestEitherElection: the Lease of the Service counts where it is alive, else the one for all Services.
func TestEitherElection(t *testing.T) {
	for name, tc := range map[string]struct {
		own, global string // "" none, "old" left from long ago, else alive
		want        string
		state       announcer.State
	}{
		"each Service":                 {"srv-a", "", "shop/kubevip-web", announcer.Held},
		"all Services":                 {"", "srv-a", "kube-system/plndr-svcs-lock", announcer.Held},
		"changed to all Services":      {"old", "srv-a", "kube-system/plndr-svcs-lock", announcer.Held},
		"changed to each Service":      {"srv-a", "old", "shop/kubevip-web", announcer.Held},
		"none":                         {"", "", "shop/kubevip-web", announcer.Missing},
		"both are left from long ago":  {"old", "old", "shop/kubevip-web", announcer.Expired},
		"that for all is left, no own": {"", "old", "kube-system/plndr-svcs-lock", announcer.Expired},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newElection(t)
				r := NewReader(e.CoordinationV1(), "kube-system/"+GlobalLease, "srv-x", nil)
				var got Lease
				for i := range 3 {
					for at, holder := range map[[2]string]string{{"shop", "kubevip-web"}: tc.own,
						{"kube-system", GlobalLease}: tc.global} {
						if holder != "" && (holder != "old" || i == 0) {
							e.renew(at[0], at[1], holder)
						}
					}
					got = r.Look(t.Context(), web(nil))
					time.Sleep(Pause)
				}
				if got.Name != tc.want || got.State != tc.state {
					t.Errorf("%+v, want %s %s", got, tc.want, tc.state)
				}
			})
		})
	}
}

// TestNamedLease: with svc_leasename, kube-vip has its Lease for all Services under another name, beside kube-vip
// itself or in a namespace that the name begins with. The advice for a missing Lease, to name it, makes it known.
func TestNamedLease(t *testing.T) {
	for lease, key := range map[string]string{
		GlobalLease: "kube-system/plndr-svcs-lock", "all-services": "kube-system/all-services",
		"vip/all-services": "vip/all-services",
	} {
		t.Run(strings.ReplaceAll(lease, "/", " in "), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newElection(t)
				namespace, name, _ := strings.Cut(key, "/")
				look := func(global string) (got Lease) {
					r := NewReader(e.CoordinationV1(), global, "srv-x", nil)
					for range 3 {
						e.renew(namespace, name, "srv-a")
						got = r.Look(t.Context(), web(nil))
						time.Sleep(Pause)
					}
					return got
				}
				before := look(Key("kube-system", GlobalLease))
				if (before.State == announcer.Missing) != (lease != GlobalLease) {
					t.Errorf("without the option: %+v", before)
				}
				if got := look(Key("kube-system", lease)); got.State != announcer.Held || got.Name != key ||
					!got.Election().Shared {
					t.Errorf("with --kube-vip-lease=%s: %+v, want %s held", lease, got, key)
				}
			})
		})
	}
}

// TestReadsRarely: however often it is asked, a Lease is read once in half a minute, by its name; that for all Services
// once in five minutes where there is another. At the beginning it takes one more read to see whether it is renewed.
func TestReadsRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newElection(t)
		e.renew("shop", "kubevip-web", "srv-a")
		r := NewReader(e.CoordinationV1(), "kube-system/"+GlobalLease, "srv-x", nil)
		for range 1000 {
			r.Look(t.Context(), web(nil))
			time.Sleep(time.Second)
			e.renew("shop", "kubevip-web", "srv-a")
		}
		if own, global := e.read("shop/kubevip-web"), e.read("kube-system/plndr-svcs-lock"); own != 35 || global != 4 {
			t.Errorf("read %d and %d times in 1000 s, want 35 and 4", own, global)
		}
		for _, a := range e.Actions() {
			if a.GetVerb() == "list" || a.GetVerb() == "watch" {
				t.Errorf("a %s of %s", a.GetVerb(), a.GetResource().Resource)
			}
		}
	})
}

// TestEvidence: when something changes on the wire, it takes a few reads until the state of the election is known, and
// no longer than the Lease lasts.
func TestEvidence(t *testing.T) {
	const duration = 5 * time.Second // of the Leases that are written here
	for name, tc := range map[string]struct {
		node   string // the node that reads
		happen func(e *election)
		want   announcer.State
		holder string
		within time.Duration
		reads  int
	}{
		"nothing has happened": {"srv-x", func(*election) {}, announcer.Held, "srv-a", 0, 2},
		"another has taken it": {"srv-x", func(e *election) { e.renewer = "srv-b" }, announcer.Held, "srv-b",
			scatter, 2},
		"it was released": {"srv-x", func(e *election) { e.renew("shop", "kubevip-web", ""); e.renewer = "" },
			announcer.Released, "", scatter, 1},
		"the holder died": {"srv-x", func(e *election) { e.renewer = "" }, announcer.Expired, "srv-a",
			scatter + duration + margin, 3},
		"kube-vip died here long ago": {"srv-a",
			func(e *election) { e.renewer = ""; time.Sleep(duration + time.Second) },
			announcer.Expired, "srv-a", scatter + minLookPause, 2},
		"kube-vip died here a moment ago": {"srv-a", func(e *election) { e.renewer = "" }, announcer.Expired, "srv-a",
			scatter + duration + margin, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newElection(t)
				e.ahead = 0
				e.renewer = "srv-a"
				r := NewReader(e.CoordinationV1(), "kube-system/"+GlobalLease, tc.node, nil)
				stop := e.start(r)
				defer stop()
				r.Of(web(nil), time.Time{})
				e.pass(r, 40*time.Second, time.Time{})
				tc.happen(e)
				before := e.read("shop/kubevip-web")
				evidence := time.Now()
				e.pass(r, tc.within+100*time.Millisecond, evidence)
				if got := r.Of(web(nil), evidence); got.State != tc.want || got.Holder != tc.holder {
					t.Errorf("after %s: %+v, want %s by %q", tc.within, got, tc.want, tc.holder)
				}
				e.pass(r, 20*time.Second-tc.within, evidence)
				if reads := e.read("shop/kubevip-web") - before; reads != tc.reads {
					t.Errorf("%d reads in 20 s, want %d", reads, tc.reads)
				}
			})
		})
	}
}

// TestEvidenceWithoutEnd: a wire that never comes to rest does not make an agent read without end.
func TestEvidenceWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newElection(t)
		e.renewer = "srv-a"
		r := NewReader(e.CoordinationV1(), "kube-system/"+GlobalLease, "srv-x", nil)
		stop := e.start(r)
		defer stop()
		for range 10 * 60 {
			e.pass(r, time.Second, time.Now())
		}
		// One in a Pause is earned, one more may be due anyway.
		if got, most := e.read("shop/kubevip-web"), burst+2*20; got > most {
			t.Errorf("%d reads in 10 min, want at most %d", got, most)
		}
	})
}

// TestTwoElections: that both the Lease of the Service and that for all are alive is reported where other nodes hold
// them.
func TestTwoElections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newElection(t)
		r := NewReader(e.CoordinationV1(), "kube-system/"+GlobalLease, "srv-x", nil)
		var got Lease
		for range 20 {
			e.renew("shop", "kubevip-web", "srv-a")
			e.renew("kube-system", GlobalLease, "srv-b")
			got = r.Look(t.Context(), web(nil))
			time.Sleep(time.Second)
		}
		if got.Name != "shop/kubevip-web" || got.Holder != "srv-a" || got.Rival != "kube-system/plndr-svcs-lock" ||
			got.RivalHolder != "srv-b" {
			t.Errorf("%+v, want that of the Service held by srv-a and the other by srv-b", got)
		}
	})
}

// TestAFailureIsNotAbsence: an API server that does not answer leaves the state unknown, and the next read corrects it.
func TestAFailureIsNotAbsence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newElection(t)
		e.renew("shop", "kubevip-web", "srv-a")
		r := NewReader(e.CoordinationV1(), "kube-system/"+GlobalLease, "srv-x", nil)
		r.Look(t.Context(), web(nil))
		time.Sleep(Pause)
		e.fails = errors.New("connection refused")
		if got := r.Look(t.Context(), web(nil)); got.State != "" || got.Error == "" {
			t.Errorf("with a failure: %+v, want no state and the error", got)
		}
		e.fails = nil
		time.Sleep(Pause)
		e.renew("shop", "kubevip-web", "srv-a")
		if got := r.Look(t.Context(), web(nil)); got.State != announcer.Held || got.Error != "" {
			t.Errorf("after the failure: %+v, want it held", got)
		}
	})
}

func TestLeaseOf(t *testing.T) {
	for given, want := range map[string]string{"": "shop/kubevip-web", "front": "shop/front",
		"net/front": "net/front"} {
		if got := leaseOf(web(map[string]string{LeaseName: given})); got != want {
			t.Errorf("%q: %s, want %s", given, got, want)
		}
	}
}

// TestRun: callers do not wait, and are notified of changes.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newElection(t)
		e.renew("shop", "kubevip-web", "srv-a")
		news := 0
		r := NewReader(e.CoordinationV1(), "kube-system/"+GlobalLease, "srv-x", func() { news++ })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		synctest.Wait() // until it waits: it may otherwise start between the questions for the one Lease and the other
		if got := r.Of(web(nil), time.Time{}); !got.Read.IsZero() {
			t.Errorf("before the first read: %+v", got)
		}
		synctest.Wait()
		if got := r.Of(web(nil), time.Time{}); got.Holder != "srv-a" || got.State != "" || news != 1 {
			t.Errorf("after it: %+v, notified %d times", got, news)
		}
		time.Sleep(2 * time.Second)
		e.renew("shop", "kubevip-web", "srv-a")
		time.Sleep(minLookPause - 2*time.Second)
		synctest.Wait()
		if got := r.Of(web(nil), time.Time{}); got.State != announcer.Held || news != 2 {
			t.Errorf("after the second: %+v, notified %d times", got, news)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v after its context ended, want nil", err)
		}
	})
}

func TestForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newElection(t)
		r := NewReader(e.CoordinationV1(), "kube-system/"+GlobalLease, "srv-x", nil)
		r.Look(t.Context(), web(nil))
		time.Sleep(memory + time.Second)
		other := web(nil)
		other.Name = "api"
		r.Look(t.Context(), other)
		if len(r.records) != 2 { // its own and the one for all
			t.Errorf("%d Leases are remembered, want 2", len(r.records))
		}
	})
}

package kubevip

import (
	"context"
	"errors"
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
)

// election is an API server with Leases and a kube-vip that renews them.
type election struct {
	*fake.Clientset
	t     *testing.T
	gets  []string
	fails error
}

func newElection(t *testing.T) *election {
	e := &election{Clientset: fake.NewClientset(), t: t}
	e.PrependReactor("get", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
		get, _ := a.(clienttesting.GetAction)
		e.gets = append(e.gets, a.GetNamespace()+"/"+get.GetName())
		return e.fails != nil, nil, e.fails
	})
	return e
}

// renew writes a Lease as kube-vip does, by a clock that is an hour ahead of ours.
func (e *election) renew(namespace, name, holder string) {
	e.t.Helper()
	now := metav1.NewMicroTime(time.Now().Add(time.Hour))
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: coordinationv1.LeaseSpec{
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

// TestStandings walks through the life of a Lease. Each step is a look half a minute after the last.
func TestStandings(t *testing.T) {
	type look struct {
		holder   string // renewed by; "-" renews nothing
		standing Standing
	}
	for name, looks := range map[string][]look{
		"held":                           {{"srv-a", ""}, {"srv-a", Held}, {"srv-a", Held}},
		"left from long ago":             {{"srv-a", ""}, {"-", Expired}, {"-", Expired}},
		"the holder dies":                {{"srv-a", ""}, {"srv-a", Held}, {"-", Expired}},
		"expired, then somebody takes":   {{"srv-a", ""}, {"-", Expired}, {"srv-b", Held}},
		"released":                       {{"srv-a", ""}, {"srv-a", Held}, {"", Released}, {"srv-b", Held}},
		"another holder between looks":   {{"srv-a", ""}, {"srv-b", Held}},
		"names are compared in one case": {{"SRV-A", ""}, {"srv-a", Held}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newElection(t)
				r := NewReader(e.CoordinationV1(), "kube-system")
				for i, l := range looks {
					if l.holder != "-" {
						e.renew("shop", "kubevip-web", l.holder)
					}
					got := r.Look(t.Context(), web(nil))
					if got.Standing != l.standing || got.Name != "shop/kubevip-web" || got.Error != "" {
						t.Errorf("look %d: %+v, want %q", i, got, l.standing)
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
		standing    Standing
	}{
		"each Service":                 {"srv-a", "", "shop/kubevip-web", Held},
		"all Services":                 {"", "srv-a", "kube-system/plndr-svcs-lock", Held},
		"changed to all Services":      {"old", "srv-a", "kube-system/plndr-svcs-lock", Held},
		"changed to each Service":      {"srv-a", "old", "shop/kubevip-web", Held},
		"none":                         {"", "", "shop/kubevip-web", Missing},
		"both are left from long ago":  {"old", "old", "shop/kubevip-web", Expired},
		"that for all is left, no own": {"", "old", "kube-system/plndr-svcs-lock", Expired},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newElection(t)
				r := NewReader(e.CoordinationV1(), "kube-system")
				var got Lease
				for i := range 3 {
					for at, holder := range map[[2]string]string{{"shop", "kubevip-web"}: tc.own, {"kube-system", GlobalLease}: tc.global} {
						if holder != "" && (holder != "old" || i == 0) {
							e.renew(at[0], at[1], holder)
						}
					}
					got = r.Look(t.Context(), web(nil))
					time.Sleep(Pause)
				}
				if got.Name != tc.want || got.Standing != tc.standing {
					t.Errorf("%+v, want %s %s", got, tc.want, tc.standing)
				}
			})
		})
	}
}

// TestReadsRarely: however often it is asked, a Lease is read once in half a minute, by its name.
func TestReadsRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newElection(t)
		e.renew("shop", "kubevip-web", "srv-a")
		r := NewReader(e.CoordinationV1(), "kube-system")
		for range 1000 {
			r.Look(t.Context(), web(nil))
			time.Sleep(time.Second)
			e.renew("shop", "kubevip-web", "srv-a")
		}
		if len(e.gets) != 34 {
			t.Errorf("read %d times in 1000 s, want 34", len(e.gets))
		}
		for _, a := range e.Actions() {
			if a.GetVerb() == "list" || a.GetVerb() == "watch" {
				t.Errorf("a %s of %s", a.GetVerb(), a.GetResource().Resource)
			}
		}
	})
}

// TestAFailureIsNotAbsence: an API server that does not answer leaves the standing unknown, and the next look mends it.
func TestAFailureIsNotAbsence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newElection(t)
		e.renew("shop", "kubevip-web", "srv-a")
		r := NewReader(e.CoordinationV1(), "kube-system")
		r.Look(t.Context(), web(nil))
		time.Sleep(Pause)
		e.fails = errors.New("connection refused")
		if got := r.Look(t.Context(), web(nil)); got.Standing != "" || got.Error == "" {
			t.Errorf("with a failure: %+v, want no standing and the error", got)
		}
		e.fails = nil
		time.Sleep(Pause)
		e.renew("shop", "kubevip-web", "srv-a")
		if got := r.Look(t.Context(), web(nil)); got.Standing != Held || got.Error != "" {
			t.Errorf("after the failure: %+v, want it held", got)
		}
	})
}

func TestLeaseOf(t *testing.T) {
	for given, want := range map[string]string{"": "shop/kubevip-web", "front": "shop/front", "net/front": "net/front"} {
		if got := leaseOf(web(map[string]string{LeaseName: given})); got != want {
			t.Errorf("%q: %s, want %s", given, got, want)
		}
	}
}

// TestRun: whoever asks is not held up, and is told when there is news.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newElection(t)
		e.renew("shop", "kubevip-web", "srv-a")
		r := NewReader(e.CoordinationV1(), "kube-system")
		ctx, cancel := context.WithCancel(t.Context())
		news := 0
		r.OnRead(func() { news++ })
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		if got := r.Of(web(nil)); !got.Read.IsZero() {
			t.Errorf("before the first look: %+v", got)
		}
		synctest.Wait()
		if got := r.Of(web(nil)); got.Holder != "srv-a" || news != 1 {
			t.Errorf("after it: %+v, told %d times", got, news)
		}
		time.Sleep(Pause)
		e.renew("shop", "kubevip-web", "srv-a")
		r.Of(web(nil))
		synctest.Wait()
		if got := r.Of(web(nil)); got.Standing != Held || news != 2 {
			t.Errorf("half a minute later: %+v, told %d times", got, news)
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
		r := NewReader(e.CoordinationV1(), "kube-system")
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

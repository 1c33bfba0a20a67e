package lease

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
)

func newRenewer(client *fake.Clientset) *Renewer {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "srv-a", UID: "u1"}}
	return &Renewer{Leases: client.CoordinationV1().Leases("kube-system"), NodeName: "srv-a",
		Node: func() *corev1.Node { return node }}
}

// TestRenewsOftenWhileIsolated: while others may take the node for off, the Lease is renewed every ten seconds, and
// within five at first. A moment in which it is isolated, as when another node dies, costs nothing.
func TestRenewsOftenWhileIsolated(t *testing.T) {
	for name, tc := range map[string]struct {
		lasts       time.Duration
		least, most int
	}{
		"for long":     {10 * time.Minute, 55, 66},
		"for a moment": {2 * time.Second, 18, 22},
	} {
		synctest.Test(t, func(t *testing.T) {
			client := fake.NewClientset()
			ctx, cancel := context.WithTimeout(testlog.Context(t), 10*time.Minute+time.Second)
			defer cancel()
			var isolated atomic.Bool
			r := newRenewer(client)
			r.Isolated = isolated.Load
			r.Wake = loop.NewWake()
			go func() {
				time.Sleep(time.Second)
				isolated.Store(true)
				r.Wake.Signal()
				time.Sleep(tc.lasts)
				isolated.Store(false)
			}()
			if err := r.Run(ctx); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			updates := 0
			for _, a := range client.Actions() {
				if a.GetVerb() == "update" {
					updates++
				}
			}
			if updates < tc.least || updates > tc.most {
				t.Errorf("%s: %d renewals in ten minutes, want %d to %d", name, updates, tc.least, tc.most)
			}
		})
	}
}

func read(t *testing.T, client *fake.Clientset) *coordinationv1.Lease {
	t.Helper()
	l, err := client.CoordinationV1().Leases("kube-system").Get(t.Context(), "phoenixnap-agent-srv-a",
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestRenewsEveryHalfMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		ctx, cancel := context.WithTimeout(testlog.Context(t), 10*time.Minute)
		defer cancel()
		if err := newRenewer(client).Run(ctx); err != nil {
			t.Errorf("Run returned %v after its context ended, want nil", err)
		}
		l := read(t, client)
		if age := time.Since(l.Spec.RenewTime.Time); age > 33*time.Second {
			t.Errorf("renewed %s ago, want at most 33 s", age)
		}
		if *l.Spec.HolderIdentity != "srv-a" || *l.Spec.LeaseDurationSeconds != 180 ||
			l.OwnerReferences[0].UID != "u1" {
			t.Errorf("Lease is %+v, owned by %+v", l.Spec, l.OwnerReferences)
		}
		updates := 0
		for _, a := range client.Actions() {
			if a.GetVerb() == "update" {
				updates++
			}
		}
		if updates < 18 || updates > 21 {
			t.Errorf("%d renewals in 10 minutes, want one every half minute", updates)
		}
	})
}

func TestRetriesAndTakesUpAnExistingLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system",
			Name: "phoenixnap-agent-srv-a"}})
		failures := 3
		client.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			failures--
			return failures >= 0, nil, errors.New("the API server is away")
		})
		ctx, cancel := context.WithTimeout(testlog.Context(t), 15*time.Second)
		defer cancel()
		if err := newRenewer(client).Run(ctx); err != nil {
			t.Error(err)
		}
		// Pauses of 2, 4 and 8 s, less a quarter at most.
		if l := read(t, client); l.Spec.RenewTime == nil || time.Since(l.Spec.RenewTime.Time) < time.Second ||
			time.Since(l.Spec.RenewTime.Time) > 4500*time.Millisecond {
			t.Errorf("renewed at %v, want after three pauses", l.Spec.RenewTime)
		}
	})
}

func TestALostLeaseIsMadeAgain(t *testing.T) {
	client := fake.NewClientset()
	r := newRenewer(client)
	if err := r.renew(testlog.Context(t)); err != nil {
		t.Fatal(err)
	}
	if err := client.CoordinationV1().Leases("kube-system").Delete(t.Context(), "phoenixnap-agent-srv-a",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := r.renew(testlog.Context(t)); err == nil {
		t.Error("renewing a deleted Lease succeeded")
	}
	if err := r.renew(testlog.Context(t)); err != nil {
		t.Errorf("the attempt after it: %v", err)
	}
	read(t, client)
}

func TestAnAPIServerThatIsAwayIsAskedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		attempts := 0
		failed := 0
		client.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			attempts++
			return true, nil, errors.New("the API server is away")
		})
		r := newRenewer(client)
		r.OnRenew = func(err error) {
			if err != nil {
				failed++
			}
		}
		ctx, cancel := context.WithTimeout(testlog.Context(t), time.Hour)
		defer cancel()
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
		if attempts < 3600/20 || attempts > 3600/15+5 || failed != attempts {
			t.Errorf("%d attempts in an hour, %d reported as failed; want one every 15 to 20 s, all reported", attempts,
				failed)
		}
	})
}

func TestNoLeaseWithoutANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		r := newRenewer(client)
		var known atomic.Bool
		node := r.Node()
		r.Node = func() *corev1.Node {
			if known.Load() {
				return node
			}
			return nil
		}
		ctx, cancel := context.WithCancel(testlog.Context(t))
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(client.Actions()); n > 0 {
			t.Errorf("%d requests for a Node that is not there", n)
		}
		known.Store(true)
		time.Sleep(nodePause)
		synctest.Wait()
		read(t, client)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A Lease whose owner is no more is deleted by the garbage collector.
func TestAnotherNodeOfTheNameOwnsTheLease(t *testing.T) {
	client := fake.NewClientset()
	r := newRenewer(client)
	if err := r.renew(testlog.Context(t)); err != nil {
		t.Fatal(err)
	}
	r.Node = func() *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "srv-a", UID: "u2"}} }
	if err := r.renew(testlog.Context(t)); err != nil {
		t.Fatal(err)
	}
	if owners := read(t, client).OwnerReferences; len(owners) != 1 || owners[0].UID != "u2" {
		t.Errorf("owned by %v, want only the new Node", owners)
	}
}

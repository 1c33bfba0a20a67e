package nodewatch

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/client"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
)

var (
	ipBlocks = v1beta1.GroupVersion.WithResource("ipblocks")
	given    = netip.MustParseAddr("203.0.113.10")
	web      = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1"}}
)

// watched is a BlockWatcher at work on an API server in memory.
type watched struct {
	*testing.T
	*BlockWatcher
	store             *kubefake.Store
	objects           *client.IPBlocks
	changes, networks atomic.Int32
}

// watchBlocks runs f beside a BlockWatcher of a source; nil for all of the store.
func watchBlocks(t *testing.T, source func(*kubefake.Store) BlockSource, f func(*watched)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &watched{T: t, store: kubefake.NewStore()}
		w.objects = w.store.IPBlocks()
		var from BlockSource = w.objects
		if source != nil {
			from = source(w.store)
		}
		w.BlockWatcher = NewBlockWatcher(from, func() { w.changes.Add(1) }, func() { w.networks.Add(1) })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.BlockWatcher.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run returned %v after its context ended, want nil", err)
			}
		}()
		f(w)
	})
}

func (w *watched) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// create makes an assigned block of which web has an address.
func (w *watched) create() {
	w.Helper()
	object := &v1beta1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: "svc-u1", Finalizers: []string{"x/y"}},
		Spec: v1beta1.IPBlockSpec{Purpose: v1beta1.PurposeService}}
	_, err := w.objects.Create(w.Context(), object, metav1.CreateOptions{})
	w.must(err)
	w.edit(func(s *v1beta1.IPBlockStatus) {
		*s = v1beta1.IPBlockStatus{CIDR: "203.0.113.8/29", Gateway: "203.0.113.9",
			Conditions: []metav1.Condition{{Type: v1beta1.ConditionAssigned, Status: metav1.ConditionTrue}},
			Allocations: &[]v1beta1.Allocation{{Address: given.String(),
				Services: []v1beta1.ServiceReference{{Namespace: "shop", Name: "web", UID: "u1"}}}}}
	})
}

func (w *watched) edit(change func(*v1beta1.IPBlockStatus)) {
	w.Helper()
	w.must(kubefake.EditStatus(w.Context(), w.objects, "svc-u1", change))
}

// shows waits, and checks what is known: the number of blocks, whether that counts, and whether web has its address.
func (w *watched) shows(wait time.Duration, want string) {
	w.Helper()
	time.Sleep(wait)
	synctest.Wait()
	network, ok := w.Network(v1beta1.DefaultNetwork, nil, false)
	if got := fmt.Sprintf("%d %t %d", len(network), ok, w.Allocated(web, given)); got != want {
		w.Errorf("%s: %s, want %s", w.Name(), got, want)
	}
}

const (
	nothing   = "0 false 0" // Unknown
	served    = "1 true 1"  // Allocated
	withdrawn = "0 true 2"  // NotAllocated
)

// TestBlocksArePushed: an address that is allocated is known at once, and so is one that is not allocated any more.
func TestBlocksArePushed(t *testing.T) {
	watchBlocks(t, nil, func(w *watched) {
		w.shows(time.Second, nothing)
		if w.networks.Load() != 1 {
			t.Errorf("%d changes of the network after an empty list, want 1: it is not awaited any more",
				w.networks.Load())
		}
		w.create()
		w.shows(time.Millisecond, served)
		networks := w.networks.Load()
		w.edit(func(s *v1beta1.IPBlockStatus) { s.Used = "1/5" })
		w.shows(time.Millisecond, served)
		if w.networks.Load() != networks {
			t.Error("a change of no block is reported as one of the network")
		}
		w.edit(func(s *v1beta1.IPBlockStatus) {
			s.Allocations = &[]v1beta1.Allocation{}
			s.Conditions[0].Status = metav1.ConditionFalse
			s.Conditions[0].Reason = "BlockUnassigning"
		})
		w.shows(time.Millisecond, withdrawn)
	})
}

// TestDefinitionComesAndGoes: without the definition nothing is known, one that is applied later is found, and what is
// served stays while it is deleted, gone and applied again.
func TestDefinitionComesAndGoes(t *testing.T) {
	watchBlocks(t, func(s *kubefake.Store) BlockSource {
		if err := s.Undefine(ipBlocks); err != nil {
			t.Fatal(err)
		}
		return s.IPBlocks()
	}, func(w *watched) {
		w.shows(20*time.Second, nothing)
		if !w.store.Define(ipBlocks) {
			t.Fatal("the definition is not applied")
		}
		w.create()
		w.shows(time.Minute+time.Second, served)
		w.must(w.store.Undefine(ipBlocks)) // the finalizer holds the object
		w.shows(time.Hour, served)
		w.must(kubefake.Lose(w.Context(), w.objects, "svc-u1"))
		w.shows(time.Hour, served)
		if _, err := w.objects.List(w.Context(), metav1.ListOptions{}); !client.Undefined(err) {
			t.Errorf("the definition is still there: %v", err)
		}
		if !w.store.Define(ipBlocks) {
			t.Fatal("the definition is not applied again")
		}
		w.shows(time.Hour, served)
		w.create()
		w.edit(func(s *v1beta1.IPBlockStatus) { s.Allocations = &[]v1beta1.Allocation{} })
		w.shows(time.Millisecond, "1 true 2")
	})
}

// refused are IPBlocks that cannot be read, for a reason that changes.
type refused struct {
	BlockSource
	reason atomic.Pointer[error]
}

func (r *refused) List(ctx context.Context, o metav1.ListOptions) (*v1beta1.IPBlockList, error) {
	if reason := r.reason.Load(); reason != nil {
		return nil, *reason
	}
	return r.BlockSource.List(ctx, o)
}

func (r *refused) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if reason := r.reason.Load(); reason != nil {
		return nil, *reason
	}
	return r.BlockSource.Watch(ctx, o)
}

// TestRefusedBlocks: each reason is logged once, and what was known counts.
func TestRefusedBlocks(t *testing.T) {
	var log bytes.Buffer
	flags := flag.NewFlagSet("", flag.PanicOnError)
	klog.InitFlags(flags)
	_ = flags.Set("logtostderr", "false")
	_ = flags.Set("alsologtostderr", "false")
	_ = flags.Set("stderrthreshold", "FATAL")
	klog.SetOutput(&log)
	defer klog.SetOutput(nil)
	defer func() { _ = flags.Set("logtostderr", "true") }()
	source := &refused{}
	forbidden := error(apierrors.NewForbidden(ipBlocks.GroupResource(), "", fmt.Errorf("no right")))
	watchBlocks(t, func(s *kubefake.Store) BlockSource {
		source.BlockSource = s.IPBlocks()
		source.reason.Store(&forbidden)
		return source
	}, func(w *watched) {
		w.shows(10*time.Minute, nothing)
		if network, ok := w.Network(v1beta1.DefaultNetwork, nil, true); len(network) > 0 || !ok {
			t.Errorf("%v, %t without IPBlocks; want that what Services say counts", network, ok)
		}
		source.reason.Store(nil)
		w.create()
		w.shows(time.Minute+time.Second, served)
	})
	klog.Flush()
	if n := strings.Count(log.String(), "no right"); n != 1 {
		t.Errorf("the reason is logged %d times, want once:\n%s", n, log.String())
	}
}

// standing are IPBlocks whose lists never end.
type standing struct{ BlockSource }

func (standing) List(ctx context.Context, _ metav1.ListOptions) (*v1beta1.IPBlockList, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (standing) Watch(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestAnEndlessList: an agent that starts does not wait for IPBlocks for ever.
func TestAnEndlessList(t *testing.T) {
	watchBlocks(t, func(*kubefake.Store) BlockSource { return standing{} }, func(w *watched) {
		for _, want := range []bool{false, true} {
			time.Sleep(patience - time.Second)
			synctest.Wait()
			if _, ok := w.Network(v1beta1.DefaultNetwork, nil, true); ok != want {
				t.Errorf("the wait is over: %t, want %t", ok, want)
			}
		}
	})
}

// TestBounded: a watch that shows nothing ends, each event and bookmark says that it lives.
func TestBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := watch.NewFakeWithChanSize(1, false)
		w := bounded(source, time.Minute)
		for range 5 {
			time.Sleep(59 * time.Second)
			source.Action(watch.Bookmark, &v1beta1.IPBlock{})
			if e := <-w.ResultChan(); e.Type != watch.Bookmark {
				t.Fatalf("got %v", e)
			}
		}
		began := time.Now()
		if _, open := <-w.ResultChan(); open || time.Since(began) != time.Minute {
			t.Errorf("open %t after %s, want its end after a minute", open, time.Since(began))
		}
		if !source.IsStopped() {
			t.Error("the watch at the API server goes on")
		}
		w.Stop()
		other := bounded(watch.NewFakeWithChanSize(1, false), time.Minute)
		other.Stop()
		if _, open := <-other.ResultChan(); open {
			t.Error("an event after Stop")
		}
	})
}

// TestStripBlock: nothing is kept but what is read.
func TestStripBlock(t *testing.T) {
	full := &v1beta1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: "b", Annotations: map[string]string{"a": "b"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}, Status: v1beta1.IPBlockStatus{Used: "1/5",
		Conditions: []metav1.Condition{{Type: v1beta1.ConditionReady},
			{Type: v1beta1.ConditionAssigned, Message: "x"}}}}
	got, err := strip(runtime.Object(full))
	kept, ok := got.(*v1beta1.IPBlock)
	if err != nil || !ok || kept.Annotations != nil || kept.ManagedFields != nil || kept.Status.Used != "" ||
		len(kept.Status.Conditions) != 1 || kept.Status.Conditions[0].Message != "" {
		t.Errorf("%+v, %v", got, err)
	}
}

package service

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// While the finalizer cannot be written, nothing is bought for a Service: it could vanish without being released.
func TestNothingIsBoughtWithoutTheFinalizer(t *testing.T) {
	inTime(t, Config{}, func(w *clocked) {
		var failing atomic.Bool
		failing.Store(true)
		w.kube.PrependReactor("patch", "services", func(ktesting.Action) (bool, runtime.Object, error) {
			return failing.Load(), nil, apierrors.NewInternalError(errors.New("etcd has no leader"))
		})
		w.create("web")
		elapse(2 * lastBackoff)
		if n := w.shop.count("ensure", "web"); n != 0 {
			t.Errorf("the balancer was called %d times", n)
		}
		failing.Store(false)
		elapse(2 * lastBackoff)
		if w.addressOf("web") == "" {
			t.Error("no address although the finalizer can be written")
		}
	})
}

// TestNothingIsBoughtWhenTheFinalizerIsNotKept: a webhook may remove the finalizer from the answer of the API server.
func TestNothingIsBoughtWhenTheFinalizerIsNotKept(t *testing.T) {
	inTime(t, Config{}, func(w *clocked) {
		var stripping atomic.Bool
		stripping.Store(true)
		w.kube.PrependReactor("patch", "services", func(action ktesting.Action) (bool, runtime.Object, error) {
			name := action.(ktesting.PatchAction).GetName() //nolint:errcheck // of this verb
			return stripping.Load(), w.get(name), nil
		})
		w.create("web")
		elapse(2 * lastBackoff)
		if n := w.shop.count("ensure", "web"); n != 0 {
			t.Errorf("the balancer was called %d times", n)
		}
		if said := w.events.all(); !slices.ContainsFunc(said, func(e string) bool {
			return strings.Contains(e, eventSyncFailed) && strings.Contains(e, "did not keep finalizer") &&
				strings.Contains(e, "webhook")
		}) {
			t.Errorf("no event names the cause and the remedy: %q", said)
		}
		stripping.Store(false)
		elapse(2 * lastBackoff)
		if w.addressOf("web") == "" {
			t.Error("no address although the finalizer is kept")
		}
	})
}

// Where nothing but our annotations shows that the finalizer is ours, as after a restore from a backup, it goes with
// them.
func TestTheFinalizerGoesWithWhatShowsThatItIsOurs(t *testing.T) {
	inTime(t, Config{}, func(w *clocked) {
		w.create("web", ofType(corev1.ServiceTypeNodePort), heldBy(frameworks),
			annotated(contract.ServiceIPAddress, "203.0.113.10"))
		elapse(lastBackoff)
		if web := w.get("web"); len(web.Finalizers) > 0 || len(web.Annotations) > 0 {
			t.Errorf("left: finalizers %v, annotations %v", web.Finalizers, web.Annotations)
		}
	})
}

// A write that comes too late, for another Service has the name now, is no failure that a person has to know of.
func TestAWriteToAReplacedServiceIsNoFailure(t *testing.T) {
	inTime(t, Config{}, func(w *clocked) {
		var replaced atomic.Bool
		replaced.Store(true)
		w.kube.PrependReactor("patch", "services", func(ktesting.Action) (bool, runtime.Object, error) {
			return replaced.Swap(false), nil, apierrors.NewConflict(servicesResource.GroupResource(), "web",
				errors.New("another UID"))
		})
		w.create("web")
		elapse(lastBackoff)
		if w.addressOf("web") == "" || w.events.counts()["Warning "+eventSyncFailed] != 0 {
			t.Errorf("address %q, events %v", w.addressOf("web"), w.events.all())
		}
	})
}

// A Service that has an address, and asks then for what cannot be served, is still looked after: its block may be
// removed from the network.
func TestAnUnsupportedServiceWithAnAddressIsLookedAfter(t *testing.T) {
	inTime(t, Config{}, func(w *clocked) {
		w.create("web")
		elapse(lastBackoff)
		before := w.shop.count("ensure", "web")
		dual := corev1.IPFamilyPolicyRequireDualStack
		w.edit("web", func(s *corev1.Service) { s.Spec.IPFamilyPolicy = &dual })
		elapse(lastBackoff)
		if w.addressOf("web") == "" || w.shop.count("ensure", "web") == before {
			t.Errorf("address %q, %d more calls", w.addressOf("web"), w.shop.count("ensure", "web")-before)
		}
	})
}

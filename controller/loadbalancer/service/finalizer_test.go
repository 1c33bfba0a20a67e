package service

import (
	"errors"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"
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

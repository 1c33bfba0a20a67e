package kubevip

import (
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer"
)

// leaseWith is a Lease with those values; it was never renewed if renewed is 0.
func leaseWith(holder string, seconds int32, renewed int64) *coordinationv1.Lease {
	spec := coordinationv1.LeaseSpec{HolderIdentity: ptr.To(holder), LeaseDurationSeconds: ptr.To(seconds)}
	if renewed != 0 {
		spec.RenewTime = ptr.To(metav1.NewMicroTime(time.Unix(0, renewed)))
	}
	return &coordinationv1.Lease{Spec: spec}
}

// FuzzRecord: no Lease, whoever wrote it, gives a state that contradicts it, makes the agent read more often than its
// bound, or makes it wait for the next read longer than a Pause.
func FuzzRecord(f *testing.F) {
	f.Add("srv-a", int32(5), int64(1), int64(2), int64(3), false)
	f.Add("SRV-X", int32(-1), int64(-1<<62), int64(1<<62), int64(60), false)
	f.Add("", int32(0), int64(0), int64(0), int64(0), false)
	f.Add("srv-x", int32(1<<30), int64(5), int64(5), int64(1<<40), true)
	f.Fuzz(func(t *testing.T, holder string, seconds int32, first, second, apart int64, gone bool) {
		now := time.Unix(1_800_000_000, 0)
		r := record{evidence: now, soonest: now, every: Pause}
		for i, renewed := range []int64{first, second, second} {
			lease := leaseWith(holder, seconds, renewed)
			if i == 2 && gone {
				lease = nil
			}
			next, early := r.next()
			r.try(now, early)
			r.observe(lease, "srv-x", now)
			checkState(t, r, lease)
			if at, _ := r.next(); at.Before(now.Add(minLookPause)) || at.After(now.Add(Pause)) {
				t.Errorf("read %d, due %s: the next is in %s", i, next, at.Sub(now))
			}
			now = now.Add(max(minLookPause, time.Duration(apart%int64(time.Hour))))
		}
	})
}

func checkState(t *testing.T, r record, lease *coordinationv1.Lease) {
	t.Helper()
	state := r.state()
	switch {
	case !slices.Contains([]announcer.State{"", announcer.Held, announcer.Released, announcer.Expired,
		announcer.Missing}, state), r.duration <= 0:
		t.Errorf("state %q of a Lease of %s", state, r.duration)
	case (lease == nil) != (state == announcer.Missing):
		t.Errorf("state %q of %v", state, lease)
	case lease != nil && (*lease.Spec.HolderIdentity == "") != (state == announcer.Released):
		t.Errorf("state %q, held by %q", state, *lease.Spec.HolderIdentity)
	case state == announcer.Held && !r.moved:
		t.Error("held, but never seen to change")
	}
}

// FuzzLeaseOf: whatever a Service has in the annotation, its Lease has a namespace and a name.
func FuzzLeaseOf(f *testing.F) {
	f.Add("other/lease")
	f.Add("")
	f.Add("/")
	f.Add("a/b/c")
	f.Fuzz(func(t *testing.T, annotation string) {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web",
			Annotations: map[string]string{LeaseName: annotation}}}
		key := leaseOf(service)
		if annotation == "" && key != "shop/kubevip-web" || !strings.Contains(key, "/") {
			t.Errorf("%q leads to the Lease %q", annotation, key)
		}
	})
}

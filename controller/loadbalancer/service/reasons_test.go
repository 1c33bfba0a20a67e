package service

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// TestOwnReasonsAreReached: those of the condition AddressPublished that this package sets. Package reconcile tests the
// others, and that the page of conditions lists all of them.
func TestOwnReasonsAreReached(t *testing.T) {
	for reason, test := range map[string]struct {
		change change
		says   string
	}{
		reasonPending: {func(*corev1.Service) {}, "being set up"},
		reasonUnsupported: {func(s *corev1.Service) { s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} },
			"set ipFamilies to [IPv4]"},
		reasonUnsupported + " (long)": {annotated("loadbalancer.openstack.org/proxy-protocol",
			strings.Repeat("x", 200_000)), "remove the annotation"},
	} {
		t.Run(reason, func(t *testing.T) {
			inTime(t, Config{}, func(w *clocked) {
				w.shop.waits = 1000
				w.create("web", test.change)
				elapse(time.Second)
				c := meta.FindStatusCondition(w.get("web").Status.Conditions, contract.ServiceConditionAddressPublished)
				if c == nil || c.Reason != strings.Fields(reason)[0] || c.Status != metav1.ConditionFalse ||
					!strings.Contains(c.Message, test.says) || len(c.Message) > text.MessageLimit {
					t.Errorf("condition is %+v", c)
				}
			})
		})
	}
}

// TestFailedReleaseOfAVanishedServiceIsReported: someone removed the finalizer, and phoenixNAP does not answer.
func TestFailedReleaseOfAVanishedServiceIsReported(t *testing.T) {
	inTime(t, Config{}, func(w *clocked) {
		w.create("web")
		elapse(time.Minute)
		w.shop.fail = func(verb string, _ types.NamespacedName) error {
			if verb == "release" {
				return errors.New("unassign IP block 1: answer 500")
			}
			return nil
		}
		if err := w.kube.Tracker().Delete(servicesResource, "shop", "web"); err != nil {
			t.Fatal(err)
		}
		elapse(time.Minute)
		if got := w.events.counts()["Warning "+eventDeleteFailed]; got == 0 {
			t.Errorf("events %q", w.events.all())
		}
	})
}

// TestServedInPartIsReportedOnce: a Service that prefers both families gets IPv4 only.
func TestServedInPartIsReportedOnce(t *testing.T) {
	inTime(t, Config{}, func(w *clocked) {
		w.create("web", func(s *corev1.Service) {
			s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
		})
		elapse(time.Minute)
		if got := w.events.counts()["Normal "+eventIPv4Only]; got != 1 {
			t.Errorf("%d events, want 1: %q", got, w.events.all())
		}
	})
}

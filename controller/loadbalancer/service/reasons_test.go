package service

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/text"
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

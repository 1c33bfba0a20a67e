package service

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestAnOldCopyWaitsAMoment: a copy from before the last write is not worked on until the informer may have delivered
// the write; after that it is, because the watch may stand still.
func TestAnOldCopyWaitsAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		copyOf := func(uid types.UID, version string) *corev1.Service {
			return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: uid,
				ResourceVersion: version}}
		}
		states := newStateCache()
		states.of(copyOf("u1", "1"))
		states.supersede(copyOf("u1", "1"), []string{"1", "2"})
		states.supersede(copyOf("u1", "3"), nil) // a sync that writes nothing
		for _, test := range []struct {
			of    *corev1.Service
			after time.Duration
			old   bool
		}{
			{copyOf("u1", "1"), 0, true},
			{copyOf("u1", "2"), 0, true},
			{copyOf("u1", "3"), 0, false},
			{copyOf("u2", "1"), 0, false},
			{copyOf("u1", "2"), conflictPause, false},
		} {
			time.Sleep(test.after)
			if got := states.isOld(test.of); got != test.old {
				t.Errorf("version %s of %s is old: %t, want %t", test.of.ResourceVersion, test.of.UID, got, test.old)
			}
		}
	})
}

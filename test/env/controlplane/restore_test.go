//go:build linux

package controlplane

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRestore: what is restored is the moment of the snapshot, and the same clients can go on with it.
func TestRestore(t *testing.T) {
	t.Parallel()
	restored := ForTest(t)
	maps := restored.Kube().CoreV1().ConfigMaps(metav1.NamespaceDefault)
	create := func(name string) *corev1.ConfigMap {
		t.Helper()
		created, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return created
	}
	first := create("first")
	snapshot, err := restored.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		create("second")
		if err := maps.Delete(t.Context(), "first", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := restored.Restore(t.Context(), snapshot); err != nil {
			t.Fatal(err)
		}
		found, err := maps.Get(t.Context(), "first", metav1.GetOptions{})
		if err != nil || found.UID != first.UID || found.ResourceVersion != first.ResourceVersion {
			t.Errorf("what was deleted after the snapshot is %+v, %v; want %+v", found, err, first)
		}
		if found, err := maps.Get(t.Context(), "second", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("what was made after the snapshot is %+v, %v", found, err)
		}
	}
}

//go:build linux

package controlplane

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
)

// TestKubefakeAnswersAsTheAPIServer makes the same calls on both: tests that run on the fake rely on its conflicts.
func TestKubefakeAnswersAsTheAPIServer(t *testing.T) {
	want := compareAndSwap(t, kubernetes.NewForConfigOrDie(cp.Config()))
	got := compareAndSwap(t, kubefake.NewStore().Client())
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reasons of errors (-API server +kubefake):\n%s", diff)
	}
}

// step is a call, and the reason of the error that it got.
type step struct {
	Call   string
	Reason metav1.StatusReason
}

// compareAndSwap takes a ConfigMap through its life, with every call also on an outdated version.
func compareAndSwap(t *testing.T, kube kubernetes.Interface) []step {
	t.Helper()
	maps := kube.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	name := "compare-and-swap"
	var steps []step
	record := func(call string, err error) {
		steps = append(steps, step{call, apierrors.ReasonForError(err)})
	}
	_, err := maps.Get(t.Context(), name, metav1.GetOptions{})
	record("get what does not exist", err)
	wanted := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	first, err := maps.Create(t.Context(), wanted, metav1.CreateOptions{})
	record("create", err)
	_, err = maps.Create(t.Context(), wanted, metav1.CreateOptions{})
	record("create again", err)
	second, err := update(t.Context(), kube, first, "a")
	record("update", err)
	_, err = update(t.Context(), kube, first, "b")
	record("update an old version", err)
	remove := func(version string) error {
		return maps.Delete(t.Context(), name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{ResourceVersion: &version},
		})
	}
	record("delete an old version", remove(first.ResourceVersion))
	record("delete", remove(second.ResourceVersion))
	record("delete again", remove(second.ResourceVersion))
	_, err = update(t.Context(), kube, second, "c")
	record("update what was deleted", err)
	return steps
}

func update(
	ctx context.Context, kube kubernetes.Interface, from *corev1.ConfigMap, value string,
) (*corev1.ConfigMap, error) {
	wanted := from.DeepCopy()
	wanted.Data = map[string]string{"key": value}
	return kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).Update(ctx, wanted, metav1.UpdateOptions{})
}

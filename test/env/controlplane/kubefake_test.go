//go:build linux

package controlplane

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
)

// TestKubefakeAnswersAsTheAPIServer makes the same calls on both: tests that run on the fake rely on its answers.
func TestKubefakeAnswersAsTheAPIServer(t *testing.T) {
	server := kubernetes.NewForConfigOrDie(cp.Config())
	store := kubefake.NewStore()
	served, err := kubefake.Connect(store.Line())
	if err != nil {
		t.Fatal(err)
	}
	want := compareAndSwap(t, server)
	for name, fake := range map[string]kubernetes.Interface{
		"without requests": kubefake.NewStore().Client(), "by requests": served,
	} {
		if diff := cmp.Diff(want, compareAndSwap(t, fake)); diff != "" {
			t.Errorf("%s: reasons of errors (-API server +kubefake):\n%s", name, diff)
		}
	}
	if diff := cmp.Diff(lifeOfService(t, server), lifeOfService(t, served)); diff != "" {
		t.Errorf("life of a Service (-API server +kubefake):\n%s", diff)
	}
}

// life is what was seen of a Service.
type life struct {
	*testing.T
	kube     kubernetes.Interface
	observed []string
}

// see notes what a call showed.
func (l *life) see(call string, service *corev1.Service, err error) *corev1.Service {
	if err != nil {
		l.observed = append(l.observed, fmt.Sprintf("%s: %s", call, apierrors.ReasonForError(err)))
		return nil
	}
	l.observed = append(l.observed, fmt.Sprintf("%s: note %q, affinity %s, ingress %d, finalizers %v, leaves %t", call,
		service.Annotations["note"], service.Spec.SessionAffinity, len(service.Status.LoadBalancer.Ingress),
		service.Finalizers, service.DeletionTimestamp != nil))
	return service
}

func (l *life) services() typedcorev1.ServiceInterface {
	return l.kube.CoreV1().Services(metav1.NamespaceDefault)
}

func (l *life) patch(call string, kind types.PatchType, body string, subresources ...string) *corev1.Service {
	patched, err := l.services().Patch(l.Context(), "life", kind, []byte(body), metav1.PatchOptions{}, subresources...)
	return l.see(call, patched, err)
}

// lifeOfService tries the status, patches, preconditions, finalizers and watches.
func lifeOfService(t *testing.T, kube kubernetes.Interface) []string {
	t.Helper()
	l := &life{T: t, kube: kube}
	made := l.begin()
	changed := made.DeepCopy()
	changed.Annotations = map[string]string{"note": "object"}
	changed.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	changed.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	changed, err := l.services().Update(t.Context(), changed, metav1.UpdateOptions{})
	l.see("update", changed, err)
	changed.Annotations["note"] = "status"
	changed.Spec.SessionAffinity = corev1.ServiceAffinityNone
	changed.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	changed, err = l.services().UpdateStatus(t.Context(), changed, metav1.UpdateOptions{})
	l.see("update the status", changed, err)
	l.patch("merge patch", types.MergePatchType,
		`{"metadata":{"annotations":{"note":"patch"}},"status":{"loadBalancer":{}}}`)
	l.patch("strategic merge patch of the status", types.StrategicMergePatchType,
		`{"metadata":{"annotations":{"note":null}},"spec":{"sessionAffinity":"ClientIP"},"status":{"loadBalancer":null}}`,
		"status")
	l.patch("JSON patch", types.JSONPatchType, `[{"op":"add","path":"/metadata/labels","value":{"app":"b"}}]`)
	l.patch("patch of an old version", types.MergePatchType,
		`{"metadata":{"resourceVersion":"`+made.ResourceVersion+`","annotations":{"note":"late"}}}`)
	l.patch("patch of another UID", types.MergePatchType, `{"metadata":{"uid":"other","annotations":{"note":"x"}}}`)
	before := l.patch("patch", types.MergePatchType, `{"metadata":{"annotations":{"note":"same"}}}`)
	after := l.patch("the same patch", types.MergePatchType, `{"metadata":{"annotations":{"note":"same"}}}`)
	l.observed = append(l.observed, fmt.Sprintf("a new version: %t", before.ResourceVersion != after.ResourceVersion))
	l.end()
	l.watched(made.ResourceVersion)
	return l.observed
}

// begin creates the Service.
func (l *life) begin() *corev1.Service {
	l.Helper()
	made, err := l.services().Create(l.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "life", Labels: map[string]string{"app": "a"},
			Finalizers: []string{"phoenixnap.com/test"}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, SessionAffinity: corev1.ServiceAffinityNone,
			Ports: []corev1.ServicePort{{Port: 80}}},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{
			Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.9"}}}},
	}, metav1.CreateOptions{})
	if l.see("create", made, err) == nil {
		l.Fatal(err)
	}
	return made
}

// end deletes the Service, which its finalizer holds.
func (l *life) end() {
	other := types.UID("other")
	err := l.services().Delete(l.Context(), "life",
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}})
	l.see("delete another UID", nil, err)
	if err := l.services().Delete(l.Context(), "life", metav1.DeleteOptions{}); err != nil {
		l.Fatal(err)
	}
	found, err := l.services().Get(l.Context(), "life", metav1.GetOptions{})
	l.see("get what leaves", found, err)
	l.patch("one more finalizer", types.MergePatchType,
		`{"metadata":{"finalizers":["phoenixnap.com/test","phoenixnap.com/other"]}}`)
	l.patch("no finalizer", types.MergePatchType, `{"metadata":{"finalizers":null}}`)
	found, err = l.services().Get(l.Context(), "life", metav1.GetOptions{})
	l.see("get what has left", found, err)
}

// watched are the changes since a version, of all Services and of those with a label.
func (l *life) watched(since string) {
	l.Helper()
	for _, selector := range []string{"", "app=a", "app=b"} {
		limit := int64(60)
		changes, err := l.services().Watch(l.Context(), metav1.ListOptions{ResourceVersion: since,
			LabelSelector: selector, FieldSelector: "metadata.name=life", TimeoutSeconds: &limit})
		if err != nil {
			l.Fatal(err)
		}
		seen := "watch " + selector + ":"
		for change := range changes.ResultChan() {
			seen += " " + string(change.Type)
			if change.Type == watch.Deleted || change.Type == watch.Error {
				break
			}
		}
		changes.Stop()
		l.observed = append(l.observed, seen)
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

package reconcile_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
)

func storedService() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1",
			Annotations: map[string]string{"a": "1"}, Finalizers: []string{"old"}},
		Status: corev1.ServiceStatus{Conditions: []metav1.Condition{{Type: "Gone"}}},
	}
}

// TestASyncIsOneWrite: annotations, finalizers, conditions and ingress go in one request, the spec in another.
func TestASyncIsOneWrite(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*corev1.Service)
		writes int
	}{
		"nothing":       {func(*corev1.Service) {}, 0},
		"an annotation": {func(s *corev1.Service) { s.Annotations["a"] = "2" }, 1},
		"everything but the spec": {func(s *corev1.Service) {
			s.Annotations = map[string]string{"b": "2"}
			s.Finalizers = []string{"new"}
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.10"}}
			s.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue}}
		}, 1},
		"the spec": {func(s *corev1.Service) { s.Spec.LoadBalancerIP = "203.0.113.10" }, 1},
		"the spec and the status": {func(s *corev1.Service) {
			s.Spec.LoadBalancerIP = "203.0.113.10"
			s.Status.Conditions = nil
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			kube := fake.NewClientset(storedService())
			d := reconcile.NewDraft(kube, storedService())
			test.change(d.Service)
			want := d.Service.DeepCopy()
			saved := 0
			d.AfterSave(func() { saved++ })
			if err := d.Save(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := len(kube.Actions()); n != test.writes || saved != min(n, 1) {
				t.Errorf("%d writes, want %d; %d times called", n, test.writes, saved)
			}
			checkWritten(t, kube, want)
			if err := d.Save(t.Context()); err != nil || len(kube.Actions()) != test.writes+1 { // and that of check
				t.Errorf("what is written is written again: %v", err)
			}
		})
	}
}

// check compares what is stored.
func checkWritten(t *testing.T, kube *fake.Clientset, want *corev1.Service) {
	t.Helper()
	have, err := kube.CoreV1().Services("shop").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !equality.Semantic.DeepEqual(have, want) {
		t.Errorf("stored: %+v, want %+v", have, want)
	}
}

// TestALostWrite: a Service that has changed, or is gone, is outdated; other failures are what they are. What was not
// written is not reported.
func TestALostWrite(t *testing.T) {
	services := schema.GroupResource{Resource: "services"}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"not found": {apierrors.NewNotFound(services, "web"), true},
		"conflict":  {apierrors.NewConflict(services, "web", errors.New("the UID is another")), true},
		"forbidden": {apierrors.NewForbidden(services, "web", nil), false},
	} {
		t.Run(name, func(t *testing.T) {
			kube := fake.NewClientset(storedService())
			kube.PrependReactor("patch", "services", func(ktesting.Action) (bool, runtime.Object, error) {
				return true, nil, test.err
			})
			d := reconcile.NewDraft(kube, storedService())
			d.Set(map[string]any{"a": nil})
			d.AfterSave(func() { t.Error("it was not written") })
			if err := d.Save(t.Context()); errors.Is(err, reconcile.ErrOutdated) != test.want ||
				!errors.Is(err, test.err) {
				t.Errorf("%v", err)
			}
			if d.Service.Annotations["a"] != "1" {
				t.Error("the next write makes the change that was lost")
			}
		})
	}
}

// TestReadFindsWhatBecameOfTheService: of one that is gone, nothing is written.
func TestReadFindsWhatBecameOfTheService(t *testing.T) {
	kube := fake.NewClientset()
	d := reconcile.NewDraft(kube, storedService())
	if err := d.Read(t.Context()); err != nil || !d.Gone || d.Successor != nil {
		t.Errorf("a Service that is gone: %v, gone %t", err, d.Gone)
	}
	another := storedService()
	another.UID = "2"
	kube = fake.NewClientset(another)
	d = reconcile.NewDraft(kube, storedService())
	if err := d.Read(t.Context()); err != nil || !d.Gone || d.Successor == nil || d.Successor.UID != "2" {
		t.Errorf("another Service of the name: %v, %+v", err, d.Successor)
	}
	d.Set(map[string]any{"a": "2"})
	if err := d.Save(t.Context()); err != nil || len(kube.Actions()) != 1 {
		t.Errorf("%v; the other Service was written: %v", err, kube.Actions())
	}
	changed := storedService()
	changed.Annotations["a"] = "3"
	d = reconcile.NewDraft(fake.NewClientset(changed), storedService())
	d.Set(map[string]any{"b": "2"})
	if err := d.Read(t.Context()); err != nil || d.Gone || d.Service.Annotations["a"] != "3" ||
		d.Service.Annotations["b"] != "" {
		t.Errorf("%v, %v", err, d.Service.Annotations)
	}
}

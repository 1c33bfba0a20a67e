package service

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TestIsBeingDeleted has the API server's own validation judge updates. A newer version of it that refuses a finalizer
// in another way fails here.
func TestIsBeingDeleted(t *testing.T) {
	now := metav1.Now()
	before := metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "1", ResourceVersion: "7",
		DeletionTimestamp: &now, Finalizers: []string{"example.com/other"}}
	for name, test := range map[string]struct {
		change func(*metav1.ObjectMeta)
		want   bool
	}{
		"a new finalizer": {func(m *metav1.ObjectMeta) { m.Finalizers = append(m.Finalizers, "example.com/new") }, true},
		"another UID":     {func(m *metav1.ObjectMeta) { m.UID = "2" }, false},
	} {
		after := *before.DeepCopy()
		test.change(&after)
		faults := validation.ValidateObjectMetaUpdate(&after, &before, field.NewPath("metadata"))
		if len(faults) == 0 {
			t.Fatalf("%s is allowed", name)
		}
		err := apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "web", faults)
		if got := isBeingDeleted(err); got != test.want {
			t.Errorf("%s: isBeingDeleted(%v) = %t", name, err, got)
		}
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "web", nil)
	if isBeingDeleted(forbidden) || isBeingDeleted(nil) {
		t.Error("another answer is taken for it")
	}
}

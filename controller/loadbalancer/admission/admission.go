// Package admission switches the admission policies for Services: they apply while an announcer is configured.
//
// A policy sees neither the configuration of the controller nor any object but the one that is written, but it may ask
// the authorizer what an account may do. So the switch is a RoleBinding that is installed without a subject: the
// controller enters its ServiceAccount while it serves Services, and the policies ask whether that account holds the
// right.
package admission

import (
	"context"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/loop"
)

const (
	// BindingName is the RoleBinding in kube-system whose subject switches the policies.
	BindingName = "phoenixnap:announce-addresses"
	// AccountName is the ServiceAccount in kube-system that the policies ask about, whoever runs the controller.
	AccountName = "phoenixnap-cloud-controller-manager"
)

const (
	// lookEvery is the time between looks at the RoleBinding, retryEvery that after a failure.
	lookEvery  = time.Minute
	retryEvery = 10 * time.Second
)

// RoleBindings are those of the namespace kube-system; the client of client-go is one.
type RoleBindings interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*rbacv1.RoleBinding, error)
	Update(ctx context.Context, binding *rbacv1.RoleBinding, options metav1.UpdateOptions) (*rbacv1.RoleBinding, error)
}

// Reconciler keeps the subject of the RoleBinding.
type Reconciler struct {
	bindings   RoleBindings
	announcing bool
}

// New returns a Reconciler; it starts nothing. announcing reports whether an announcer is configured.
func New(bindings RoleBindings, announcing bool) *Reconciler {
	return &Reconciler{bindings: bindings, announcing: announcing}
}

// Run keeps the subject until ctx ends.
func (r *Reconciler) Run(ctx context.Context) error {
	return loop.Run(ctx, func(ctx context.Context) time.Duration {
		if err := r.Sync(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to switch the admission policies for Services, trying again",
				"announcing", r.announcing)
			return retryEvery
		}
		return lookEvery
	})
}

// Sync writes the subject where it is not the right one. Without the RoleBinding the policies are not installed, which
// is no error.
func (r *Reconciler) Sync(ctx context.Context) error {
	binding, err := r.bindings.Get(ctx, BindingName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read RoleBinding %s/%s: %w", metav1.NamespaceSystem, BindingName, err)
	}
	want := subjects(r.announcing)
	if equality.Semantic.DeepEqual(binding.Subjects, want) {
		return nil
	}
	changed := binding.DeepCopy()
	changed.Subjects = want
	if _, err := r.bindings.Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update RoleBinding %s/%s: %w", metav1.NamespaceSystem, BindingName, err)
	}
	klog.FromContext(ctx).V(2).Info("Switched the admission policies for Services", "announcing", r.announcing)
	return nil
}

func subjects(announcing bool) []rbacv1.Subject {
	if !announcing {
		return nil
	}
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: AccountName, Namespace: metav1.NamespaceSystem}}
}

package announcer

import (
	"context"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedrbacv1 "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

const (
	// BindingName is the RoleBinding in kube-system whose subject switches the policies.
	BindingName = "phoenixnap:announce-addresses"
	// AccountName is the ServiceAccount in kube-system that the policies ask about, whoever runs the controller.
	AccountName = "phoenixnap-cloud-controller-manager"

	// bindingPeriod is the time between checks, retryAfter that after a failure.
	bindingPeriod = time.Minute
	retryAfter    = 10 * time.Second
)

// PolicySwitch switches the admission policies for Services: they apply while an announcer is configured.
//
// A policy sees neither the controller's configuration nor any object but the one that is written, but it may ask the
// authorizer what an account may do. So the switch is a RoleBinding that is installed without a subject: the controller
// enters its ServiceAccount while it serves Services, and the policies ask whether that account has the right.
type PolicySwitch struct {
	// Bindings are those of the namespace kube-system.
	Bindings typedrbacv1.RoleBindingInterface
	// Announcing reports that an announcer is configured.
	Announcing bool
}

// Run maintains the subject until ctx ends.
func (s PolicySwitch) Run(ctx context.Context) error {
	return loop.Run(ctx, func(ctx context.Context) time.Duration {
		if err := s.Sync(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to switch the admission policies for Services, trying again",
				"announcing", s.Announcing)
			return retryAfter
		}
		return bindingPeriod
	})
}

// Sync writes the subject if it differs. Without the RoleBinding the policies are not installed, which is no error.
func (s PolicySwitch) Sync(ctx context.Context) error {
	binding, err := s.Bindings.Get(ctx, BindingName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read RoleBinding %s/%s: %w", metav1.NamespaceSystem, BindingName, err)
	}
	var subjects []rbacv1.Subject
	if s.Announcing {
		subjects = []rbacv1.Subject{
			{Kind: rbacv1.ServiceAccountKind, Name: AccountName, Namespace: metav1.NamespaceSystem},
		}
	}
	if equality.Semantic.DeepEqual(binding.Subjects, subjects) {
		return nil
	}
	changed := binding.DeepCopy()
	changed.Subjects = subjects
	if _, err := s.Bindings.Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update RoleBinding %s/%s: %w", metav1.NamespaceSystem, BindingName, err)
	}
	klog.FromContext(ctx).V(2).Info("Switched the admission policies for Services", "announcing", s.Announcing)
	return nil
}

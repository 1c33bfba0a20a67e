package orphans

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/text"
)

// failed publishes that the account could not be read, for people without access to the log. As with the report, a
// failure to do so has no effect.
func (c *Collector) failed(ctx context.Context, err error) {
	repeated := pnap.IsRepeated(err) && c.reports.failure != nil // the failure before says more
	if ctx.Err() != nil || repeated {
		return
	}
	failure := contract.AccountFailure{
		Since: c.config.Now().UTC(), Reason: failureReason(err), Message: text.Message(pnap.Explain(err)),
	}
	if err := c.reports.fail(ctx, failure); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Failed to publish why the account cannot be read")
	}
}

func failureReason(err error) string {
	switch {
	case pnap.IsPaused(err):
		return contract.FailurePaused
	case pnap.IsUnauthenticated(err):
		return contract.FailureCredentials
	case pnap.IsInaccessible(err), errors.Is(err, account.ErrUnproven):
		return contract.FailureAccess
	default:
		return contract.FailureOther
	}
}

// fail adds to the ConfigMap why the account cannot be read, and leaves the last report as it is. The time of the first
// failure remains, also that of another process, until a report is written.
func (s *reportStore) fail(ctx context.Context, f contract.AccountFailure) error {
	if s.failure != nil && s.failure.Reason == f.Reason && s.failure.Message == f.Message {
		return nil
	}
	object, err := s.configMaps.Get(ctx, contract.BlockReportName, metav1.GetOptions{})
	missing := apierrors.IsNotFound(err)
	switch {
	case missing:
		object = &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: contract.BlockReportName, Namespace: metav1.NamespaceSystem},
		}
	case err != nil:
		return fmt.Errorf("read ConfigMap %s/%s: %w", metav1.NamespaceSystem, contract.BlockReportName, err)
	}
	first, err := contract.ParseAccountFailure(object.Data[contract.AccountFailureKey])
	if err == nil && first != nil && first.Since.Before(f.Since) {
		f.Since = first.Since
	}
	encoded, err := f.Encode()
	if err != nil {
		return err
	}
	if object.Data == nil {
		object.Data = map[string]string{}
	}
	object.Data[contract.AccountFailureKey] = encoded
	if missing {
		_, err = s.configMaps.Create(ctx, object, metav1.CreateOptions{})
	} else {
		_, err = s.configMaps.Update(ctx, object, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("publish ConfigMap %s/%s: %w", metav1.NamespaceSystem, contract.BlockReportName, err)
	}
	s.failure = &f
	return nil
}

package account

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// Failures publishes in ConfigMap phoenixnap-ip-blocks why the account cannot be read, and since when, for people
// without access to the log. It belongs to one goroutine.
type Failures struct {
	configMaps typedcorev1.ConfigMapInterface
	now        func() time.Time
	// published is what was published since the account could last be read; nil when nothing was.
	published *contract.AccountFailure
}

// NewFailures returns a Failures that has published nothing.
func NewFailures(configMaps typedcorev1.ConfigMapInterface, now func() time.Time) *Failures {
	return &Failures{configMaps: configMaps, now: now}
}

// Published reports whether a failure was published since the last call of Over.
func (f *Failures) Published() bool { return f.published != nil }

// Over forgets the failure: the account was read, and the ConfigMap does not have it any more.
func (f *Failures) Over() { f.published = nil }

// Failed publishes why the account could not be read. If that fails, it is logged and has no effect.
func (f *Failures) Failed(ctx context.Context, err error) {
	repeated := pnap.IsRepeated(err) && f.published != nil // the failure before says more
	if ctx.Err() != nil || repeated {
		return
	}
	failure := contract.AccountFailure{
		Since: f.now().UTC(), Reason: failureReason(err), Message: text.Message(pnap.Explain(err)),
	}
	if err := f.publish(ctx, failure); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Failed to publish why the account cannot be read")
	}
}

func failureReason(err error) string {
	switch {
	case pnap.IsPaused(err):
		return contract.FailurePaused
	case pnap.IsUnauthenticated(err):
		return contract.FailureCredentials
	case pnap.IsInaccessible(err), errors.Is(err, ErrUnproven):
		return contract.FailureAccess
	default:
		return contract.FailureOther
	}
}

// publish adds to the ConfigMap why the account cannot be read, and leaves the rest as it is. The time of the first
// failure remains, also that of another process, until the failure is removed.
func (f *Failures) publish(ctx context.Context, failure contract.AccountFailure) error {
	if f.published != nil && f.published.Reason == failure.Reason && f.published.Message == failure.Message {
		return nil
	}
	object, missing, err := f.read(ctx)
	if err != nil {
		return err
	}
	first, err := contract.ParseAccountFailure(object.Data[contract.AccountFailureKey])
	if err == nil && first != nil && first.Since.Before(failure.Since) {
		failure.Since = first.Since
	}
	encoded, err := failure.Encode()
	if err != nil {
		return err
	}
	if object.Data == nil {
		object.Data = map[string]string{}
	}
	object.Data[contract.AccountFailureKey] = encoded
	if missing {
		_, err = f.configMaps.Create(ctx, object, metav1.CreateOptions{})
	} else {
		_, err = f.configMaps.Update(ctx, object, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("publish ConfigMap %s/%s: %w", metav1.NamespaceSystem, contract.BlockReportName, err)
	}
	f.published = &failure
	return nil
}

// remove removes the failure from the ConfigMap.
func (f *Failures) remove(ctx context.Context) error {
	object, missing, err := f.read(ctx)
	if err != nil {
		return err
	}
	if _, found := object.Data[contract.AccountFailureKey]; found && !missing {
		delete(object.Data, contract.AccountFailureKey)
		if _, err := f.configMaps.Update(ctx, object, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("publish ConfigMap %s/%s: %w", metav1.NamespaceSystem, contract.BlockReportName, err)
		}
	}
	f.Over()
	return nil
}

// read returns the ConfigMap, or an empty one when it is missing.
func (f *Failures) read(ctx context.Context) (object *corev1.ConfigMap, missing bool, err error) {
	object, err = f.configMaps.Get(ctx, contract.BlockReportName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: contract.BlockReportName, Namespace: metav1.NamespaceSystem},
		}, true, nil
	case err != nil:
		return nil, false, fmt.Errorf("read ConfigMap %s/%s: %w", metav1.NamespaceSystem, contract.BlockReportName, err)
	}
	return object, false, nil
}

// watchPeriod is the time between two reads of a FailureWatch, which finds most answers in a cache.
const watchPeriod = 30 * time.Second

// FailureWatch publishes why the account cannot be read where no report on IP blocks does so: without an announcer.
type FailureWatch struct {
	failures *Failures
	read     func(context.Context) error
	// clean reports that the ConfigMap is known to have no failure.
	clean bool
}

// NewFailureWatch returns a FailureWatch that uses read to find out whether the account can be read; read should take a
// recent answer from a cache. It starts nothing.
func NewFailureWatch(failures *Failures, read func(context.Context) error) *FailureWatch {
	return &FailureWatch{failures: failures, read: read}
}

// Run watches until ctx ends, and then returns nil.
func (w *FailureWatch) Run(ctx context.Context) error {
	return loop.Run(ctx, func(ctx context.Context) time.Duration {
		w.look(ctx)
		return watchPeriod
	})
}

func (w *FailureWatch) look(ctx context.Context) {
	if err := w.read(ctx); err != nil {
		w.failures.Failed(ctx, err)
		w.clean = false
		return
	}
	if w.clean {
		return
	}
	if err := w.failures.remove(ctx); err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to publish that the account can be read")
		}
		return
	}
	w.clean = true
}

// Package heartbeatkey maintains the Secret with the key that authenticates the heartbeats of the cluster's agents.
package heartbeatkey

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/loop"
)

const (
	// lookEvery is the time between checks whether the Secret exists, retryEvery that after a failure.
	lookEvery  = 10 * time.Minute
	retryEvery = 10 * time.Second
)

// Secrets are those of the namespace kube-system; the client of client-go implements it.
type Secrets interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*corev1.Secret, error)
	Create(ctx context.Context, secret *corev1.Secret, options metav1.CreateOptions) (*corev1.Secret, error)
}

// Reconciler creates the Secret if it is missing. It never changes an existing Secret: a user may have set a key, or be
// about to replace one.
type Reconciler struct{ secrets Secrets }

// New returns a Reconciler; it starts nothing.
func New(secrets Secrets) *Reconciler { return &Reconciler{secrets: secrets} }

// Run maintains the Secret until ctx ends.
func (k *Reconciler) Run(ctx context.Context) error {
	return loop.Run(ctx, func(ctx context.Context) time.Duration {
		if err := k.Sync(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to ensure the key for the agents' heartbeats, retrying")
			return retryEvery
		}
		return lookEvery
	})
}

// Sync creates the Secret if it is missing. A Secret without a valid key is an error that only a user can fix.
func (k *Reconciler) Sync(ctx context.Context) error {
	secret, err := k.secrets.Get(ctx, contract.AnnouncerSecret, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return k.create(ctx)
	case err != nil:
		return fmt.Errorf("read Secret %s/%s: %w", metav1.NamespaceSystem, contract.AnnouncerSecret, err)
	}
	if _, err := contract.ParseAnnouncerKeys(string(secret.Data[contract.AnnouncerSecretKey])); err != nil {
		return fmt.Errorf("read Secret %s/%s, key %s: %w; delete the Secret, and the controller creates a new one",
			metav1.NamespaceSystem, contract.AnnouncerSecret, contract.AnnouncerSecretKey, err)
	}
	return nil
}

func (k *Reconciler) create(ctx context.Context) error {
	var key contract.AnnouncerKey
	_, _ = rand.Read(key[:]) // never fails (crypto/rand)
	_, err := k.secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: contract.AnnouncerSecret, Namespace: metav1.NamespaceSystem},
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{contract.AnnouncerSecretKey: []byte(contract.FormatAnnouncerKey(key))},
	}, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err): // another client was faster
		return nil
	case err != nil:
		return fmt.Errorf("create Secret %s/%s: %w", metav1.NamespaceSystem, contract.AnnouncerSecret, err)
	default:
		klog.FromContext(ctx).Info("Created the key for the agents' heartbeats", "secret",
			metav1.NamespaceSystem+"/"+contract.AnnouncerSecret)
		return nil
	}
}

// Package heartbeatkey keeps the Secret with the key by which the agents of the cluster know each other's heartbeats.
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
	// lookEvery is the time between looks whether the Secret is still there, retryEvery that after a failure.
	lookEvery  = 10 * time.Minute
	retryEvery = 10 * time.Second
)

// Secrets are those of the namespace kube-system; the client of client-go is one.
type Secrets interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*corev1.Secret, error)
	Create(ctx context.Context, secret *corev1.Secret, options metav1.CreateOptions) (*corev1.Secret, error)
}

// Reconciler makes the Secret where it is missing. It changes none that is there: a person may have put a key of his own into it,
// or be about to replace one.
type Reconciler struct{ secrets Secrets }

// New returns a keeper; it starts nothing.
func New(secrets Secrets) *Reconciler { return &Reconciler{secrets: secrets} }

// Run keeps the Secret until ctx ends.
func (k *Reconciler) Run(ctx context.Context) error {
	return loop.Run(ctx, func(ctx context.Context) time.Duration {
		if err := k.Sync(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "The agents may have no key for their heartbeats, trying again")
			return retryEvery
		}
		return lookEvery
	})
}

// Sync makes the Secret where it is missing. That it holds no key is an error which only a person can mend.
func (k *Reconciler) Sync(ctx context.Context) error {
	secret, err := k.secrets.Get(ctx, contract.AnnouncerSecret, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return k.create(ctx)
	case err != nil:
		return fmt.Errorf("read Secret %s/%s: %w", metav1.NamespaceSystem, contract.AnnouncerSecret, err)
	}
	if _, err := contract.ParseAnnouncerKeys(string(secret.Data[contract.AnnouncerSecretKey])); err != nil {
		return fmt.Errorf("read Secret %s/%s, key %s: %w; delete the Secret, and a new one is made",
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
	case apierrors.IsAlreadyExists(err): // somebody was quicker
		return nil
	case err != nil:
		return fmt.Errorf("create Secret %s/%s: %w", metav1.NamespaceSystem, contract.AnnouncerSecret, err)
	default:
		klog.FromContext(ctx).Info("Made the key for the agents' heartbeats", "secret", metav1.NamespaceSystem+"/"+contract.AnnouncerSecret)
		return nil
	}
}

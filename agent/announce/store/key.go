package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

// keyName is the Secret as errors name it.
const keyName = "Secret " + metav1.NamespaceSystem + "/" + contract.AnnouncerSecret

// errNoSecret reports that the controller has not created the Secret yet, or that it was deleted.
var errNoSecret = errors.New("the controller has not created " + keyName + ", or it was deleted")

// Secrets are those of the namespace kube-system; the client of client-go is one.
type Secrets interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*corev1.Secret, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// Key follows the Secret with the key of the agents' heartbeats. A mounted Secret would come later: one that is created
// after the pod reaches it with the kubelet's next full synchronization, about a minute later
// (https://kubernetes.io/docs/concepts/configuration/secret/#using-secrets-as-files-from-a-pod).
type Key struct {
	Secrets Secrets
	// Set takes the content of the Secret, or the error with which it could not be read.
	Set func(content string, err error)
}

// Watch follows the Secret until ctx ends. A Secret that cannot be read is tried again each second.
func (k Key) Watch(ctx context.Context) error {
	return loop.Run(ctx, func(ctx context.Context) time.Duration {
		err := k.read(ctx)
		if err == nil {
			err = follow(ctx, contract.AnnouncerSecret, k.Secrets.Watch, k.observe)
		}
		if err != nil && ctx.Err() == nil {
			k.Set("", err)
		}
		return watchAgain
	})
}

// read reports that the Secret is missing, which no watch does.
func (k Key) read(ctx context.Context) error {
	secret, err := k.Secrets.Get(ctx, contract.AnnouncerSecret, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		k.observe(&corev1.Secret{})
		return nil
	case err != nil:
		return fmt.Errorf("read %s: %w", keyName, err)
	default:
		k.observe(secret)
		return nil
	}
}

// observe takes a state of the Secret; a missing one has no content.
func (k Key) observe(secret *corev1.Secret) {
	if secret.UID == "" {
		k.Set("", errNoSecret)
		return
	}
	k.Set(string(secret.Data[contract.AnnouncerSecretKey]), nil)
}

package agents

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

// Reasons of the events on the Namespace kube-system about the key of the agents' heartbeats.
const (
	// EventKeyMissing (Warning): with `agent://`, the Secret with the key was deleted while agents announce addresses.
	// They continue with the key that they have, and no other one is created; says what to do.
	EventKeyMissing = "HeartbeatKeyMissing"
	// EventKeyRestored (Normal): with `agent://`, the Secret with the key was deleted, and was created again with the
	// same key.
	EventKeyRestored = "HeartbeatKeyRestored"
)

// guide is how to replace the key.
const guide = "https://github.com/phoenixnap/k8s-cloud-provider-bmc/blob/main/docs/guides/announcers.md#replace-the-key"

const (
	// keyPeriod is the time between checks, retryAfter that after a failure.
	keyPeriod  = time.Minute
	retryAfter = 10 * time.Second
)

// secretName is the Secret with the key, as texts name it.
const secretName = metav1.NamespaceSystem + "/" + contract.AnnouncerSecret

// HeartbeatKey creates the Secret with the key that authenticates the heartbeats of the cluster's agents. It never
// changes an existing Secret: a user may have set a key, or be about to replace one. Nor does it replace a deleted one
// by another key while agents announce: those that have the new key would not hear those that still have the old one.
type HeartbeatKey struct {
	// Secrets and ConfigMaps are those of the namespace kube-system.
	Secrets    typedcorev1.SecretInterface
	ConfigMaps typedcorev1.ConfigMapInterface
	// Events are recorded on the Namespace kube-system.
	Events record.EventRecorder

	// content is that of the Secret when it last held a valid key.
	content []byte
	// missing is set while the Secret is missing and is not created.
	missing bool
}

// Run maintains the Secret until ctx ends.
func (k *HeartbeatKey) Run(ctx context.Context) error {
	return loop.Run(ctx, func(ctx context.Context) time.Duration {
		if err := k.Sync(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to ensure the key for the agents' heartbeats, retrying")
			return retryAfter
		}
		return keyPeriod
	})
}

// Sync creates the Secret if it is missing. A Secret without a valid key is an error that only a user can fix.
func (k *HeartbeatKey) Sync(ctx context.Context) error {
	secret, err := k.Secrets.Get(ctx, contract.AnnouncerSecret, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return k.replace(ctx)
	case err != nil:
		return fmt.Errorf("read Secret %s: %w", secretName, err)
	}
	k.missing = false
	content := secret.Data[contract.AnnouncerSecretKey]
	if _, err := contract.ParseAnnouncerKeys(string(content)); err != nil {
		return fmt.Errorf("read Secret %s, key %s: %w; write the key that the agents have, or another one, see %s",
			secretName, contract.AnnouncerSecretKey, err, guide)
	}
	k.content = content
	return nil
}

// replace creates the missing Secret: with the key that it had, or with a new one if no agent can have another.
func (k *HeartbeatKey) replace(ctx context.Context) error {
	if k.content != nil {
		if err := k.create(ctx, k.content); err != nil {
			return err
		}
		k.record(corev1.EventTypeNormal, EventKeyRestored, "Secret "+secretName+" was deleted, and was created again "+
			"with the same key. To replace the key, see "+guide)
		return nil
	}
	announcing, err := k.announcing(ctx)
	switch {
	case err != nil:
		return err
	case !announcing:
		var key contract.AnnouncerKey
		_, _ = rand.Read(key[:]) // never fails (crypto/rand)
		return k.create(ctx, []byte(contract.FormatAnnouncerKey(key)))
	case !k.missing:
		k.missing = true
		message := "Secret " + secretName + " was deleted while agents announce addresses. They continue with the " +
			"key that they have, but an agent that restarts announces nothing. Restore the Secret from a backup. " +
			"Without one, create it with a new key: addresses may be silent until all agents have read it, about a " +
			"minute. See " + guide
		klog.FromContext(ctx).Info(message)
		k.record(corev1.EventTypeWarning, EventKeyMissing, message)
	}
	return nil
}

// announcing reports whether a view names addresses: then agents have a key.
func (k *HeartbeatKey) announcing(ctx context.Context) (bool, error) {
	object, err := k.ConfigMaps.Get(ctx, contract.AnnouncerView, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read ConfigMap %s/%s: %w", metav1.NamespaceSystem, contract.AnnouncerView, err)
	}
	for _, view := range object.Data {
		if namesAddresses(view) {
			return true, nil
		}
	}
	return false, nil
}

// namesAddresses reports whether a view names addresses, or cannot be read.
func namesAddresses(raw string) bool {
	view := struct {
		Owners map[string]any `json:"owners"`
	}{}
	return json.Unmarshal([]byte(raw), &view) != nil || len(view.Owners) > 0
}

func (k *HeartbeatKey) create(ctx context.Context, content []byte) error {
	_, err := k.Secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: contract.AnnouncerSecret, Namespace: metav1.NamespaceSystem},
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{contract.AnnouncerSecretKey: content},
	}, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err): // another client was faster
		return nil
	case err != nil:
		return fmt.Errorf("create Secret %s: %w", secretName, err)
	}
	klog.FromContext(ctx).Info("Created the Secret with the key for the agents' heartbeats", "secret", secretName,
		"restored", k.content != nil)
	k.content = content
	return nil
}

func (k *HeartbeatKey) record(kind, reason, message string) {
	k.Events.Event(&corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: metav1.NamespaceSystem},
		kind, reason, message)
}

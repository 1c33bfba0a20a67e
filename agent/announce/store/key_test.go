package store

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/limits"
)

// keyState is what Set was called with.
type keyState struct {
	content string
	err     error
}

// followKey follows the Secret with the rights of a user until the test ends.
func followKey(t *testing.T, secrets Secrets) <-chan keyState {
	t.Helper()
	states := make(chan keyState, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = Key{Secrets: secrets, Set: func(content string, err error) { states <- keyState{content, err} }}.Watch(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return states
}

// awaitKey waits for a state.
func awaitKey(t *testing.T, states <-chan keyState, what string, wanted func(keyState) bool) {
	t.Helper()
	deadline := time.After(limits.Wait)
	for {
		select {
		case s := <-states:
			if wanted(s) {
				return
			}
		case <-deadline:
			t.Fatalf("the key was not followed: %s", what)
		}
	}
}

func secretsOf(t *testing.T) typedcorev1.SecretInterface {
	t.Helper()
	client, err := kubernetes.NewForConfig(ClientConfig(cp.Config()))
	if err != nil {
		t.Fatal(err)
	}
	return client.CoreV1().Secrets(metav1.NamespaceSystem)
}

// TestKeyIsFollowed: a Secret that is created after the agent has started, changed, deleted and created again is known
// at once.
func TestKeyIsFollowed(t *testing.T) {
	secrets := secretsOf(t)
	states := followKey(t, secrets)
	holds := func(content string) func(keyState) bool {
		return func(s keyState) bool { return s.err == nil && s.content == content }
	}
	missing := func(s keyState) bool { return errors.Is(s.err, errNoSecret) }
	secret := func(content string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: contract.AnnouncerSecret},
			Data: map[string][]byte{contract.AnnouncerSecretKey: []byte(content)}}
	}
	awaitKey(t, states, "it does not exist", missing)
	if _, err := secrets.Create(t.Context(), secret("one"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitKey(t, states, "it was created", holds("one"))
	if _, err := secrets.Update(t.Context(), secret("two"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitKey(t, states, "it was changed", holds("two"))
	if err := secrets.Delete(t.Context(), contract.AnnouncerSecret, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitKey(t, states, "it was deleted", missing)
}

// TestKeyThatMayNotBeRead: an agent that was installed for another announcer lacks the right, and says so.
func TestKeyThatMayNotBeRead(t *testing.T) {
	config, err := cp.User("without-rights")
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(ClientConfig(config))
	if err != nil {
		t.Fatal(err)
	}
	states := followKey(t, client.CoreV1().Secrets(metav1.NamespaceSystem))
	awaitKey(t, states, "it may not be read", func(s keyState) bool {
		return apierrors.IsForbidden(s.err) && strings.Contains(s.err.Error(), contract.AnnouncerSecret)
	})
}

package announcer

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/testlog"
)

func storedKeys(t *testing.T, client *fake.Clientset) []contract.AnnouncerKey {
	t.Helper()
	secret, err := client.CoreV1().Secrets(metav1.NamespaceSystem).Get(t.Context(), contract.AnnouncerSecret,
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := contract.ParseAnnouncerKeys(string(secret.Data[contract.AnnouncerSecretKey]))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func heartbeatKey(client *fake.Clientset) HeartbeatKey {
	return HeartbeatKey{Secrets: client.CoreV1().Secrets(metav1.NamespaceSystem)}
}

// TestKeyIsMadeOnce: a missing key is created, a different one each time, and an existing key is kept.
func TestKeyIsMadeOnce(t *testing.T) {
	first := fake.NewClientset()
	second := fake.NewClientset()
	for _, client := range []*fake.Clientset{first, first, second} {
		if err := heartbeatKey(client).Sync(testlog.Context(t)); err != nil {
			t.Fatal(err)
		}
	}
	kept := storedKeys(t, first)
	if cmp.Equal(kept, storedKeys(t, second)) {
		t.Error("two clusters have the same key")
	}
	if err := heartbeatKey(first).Sync(testlog.Context(t)); err != nil || !cmp.Equal(kept, storedKeys(t, first)) {
		t.Errorf("the key was replaced (%v)", err)
	}
}

// TestUserSecretStays: an invalid Secret is reported and kept, and no error contains its content.
func TestUserSecretStays(t *testing.T) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: contract.AnnouncerSecret, Namespace: metav1.NamespaceSystem},
		Data:       map[string][]byte{contract.AnnouncerSecretKey: []byte("hunter2")},
	}
	client := fake.NewClientset(secret.DeepCopy())
	err := heartbeatKey(client).Sync(testlog.Context(t))
	if err == nil || !strings.Contains(err.Error(), "kube-system/phoenixnap-announcer") ||
		strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error %v, want one with the name of the Secret and without its content", err)
	}
	kept, err := client.CoreV1().Secrets(metav1.NamespaceSystem).Get(t.Context(), contract.AnnouncerSecret,
		metav1.GetOptions{})
	if err != nil || !cmp.Equal(secret.Data, kept.Data) {
		t.Errorf("it became %v (%v)", kept.Data, err)
	}
}

// TestTwoCreateTheKey: the second of two concurrent replicas keeps the existing Secret.
func TestTwoCreateTheKey(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("create", "secrets", func(ktesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewAlreadyExists(corev1.Resource("secrets"), contract.AnnouncerSecret)
	})
	if err := heartbeatKey(client).Sync(testlog.Context(t)); err != nil {
		t.Error(err)
	}
}

// TestRunHeartbeatKey: a failed request is retried, and a deleted Secret is created again.
func TestRunHeartbeatKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		failures := 2
		client.PrependReactor("get", "secrets", func(ktesting.Action) (bool, runtime.Object, error) {
			failures--
			return failures >= 0, nil, errors.New("no route to host")
		})
		ctx, cancel := context.WithCancel(testlog.Context(t))
		ended := make(chan error, 1)
		go func() { ended <- heartbeatKey(client).Run(ctx) }()
		pass(2 * retryAfter)
		before := storedKeys(t, client)
		if err := client.CoreV1().Secrets(metav1.NamespaceSystem).Delete(t.Context(), contract.AnnouncerSecret,
			metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		pass(keyPeriod)
		if cmp.Equal(before, storedKeys(t, client)) {
			t.Error("the new key is the old one")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v after its context ended", err)
		}
	})
}

// pass advances the time, and then waits until all goroutines are blocked.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

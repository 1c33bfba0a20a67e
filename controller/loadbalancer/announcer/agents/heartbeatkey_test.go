package agents

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
	"k8s.io/client-go/tools/record"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
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

func heartbeatKey(client *fake.Clientset) *HeartbeatKey {
	return &HeartbeatKey{
		Secrets:    client.CoreV1().Secrets(metav1.NamespaceSystem),
		ConfigMaps: client.CoreV1().ConfigMaps(metav1.NamespaceSystem),
		Events:     record.NewFakeRecorder(10),
	}
}

// events are those that were recorded since the last call.
func events(k *HeartbeatKey) (all []string) {
	recorder, _ := k.Events.(*record.FakeRecorder)
	for {
		select {
		case e := <-recorder.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

func deleteSecret(t *testing.T, client *fake.Clientset) {
	t.Helper()
	if err := client.CoreV1().Secrets(metav1.NamespaceSystem).Delete(t.Context(), contract.AnnouncerSecret,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// viewOf is the ConfigMap of the agents.
func viewOf(view string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: contract.AnnouncerView, Namespace: metav1.NamespaceSystem},
		Data:       map[string]string{"60473c2509268bc77fd06d29": view},
	}
}

const announced = `{"number":7,"members":["a"],"owners":{"203.0.113.3":{"node":"a","epoch":7}}}`

// TestDeletedSecret: a Secret that is deleted while agents announce comes back with the same key, or not at all: never
// with another key.
func TestDeletedSecret(t *testing.T) {
	for name, tc := range map[string]struct {
		view      []runtime.Object
		restarted bool
		want      string // of the events
		same      bool
		missing   bool
	}{
		"the controller knows the key": {
			view: []runtime.Object{viewOf(announced)}, same: true, want: EventKeyRestored,
		},
		"known, and nothing is announced": {same: true, want: EventKeyRestored},
		"unknown, and agents announce": {
			view: []runtime.Object{viewOf(announced)}, restarted: true, missing: true, want: EventKeyMissing,
		},
		"unknown, with an unreadable view": {
			view: []runtime.Object{viewOf("?")}, restarted: true, missing: true, want: EventKeyMissing,
		},
		"unknown, and no address is left": {
			view: []runtime.Object{viewOf(`{"number":7,"members":["a"],"owners":{}}`)}, restarted: true,
		},
		"unknown, and there is no view yet": {restarted: true},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(tc.view...)
			k := heartbeatKey(client)
			k.content = []byte(contract.FormatAnnouncerKey(contract.AnnouncerKey{1}))
			if err := k.Sync(testlog.Context(t)); err != nil {
				t.Fatal(err)
			}
			events(k)
			before := storedKeys(t, client)
			deleteSecret(t, client)
			if tc.restarted {
				k = heartbeatKey(client)
			}
			for range 3 {
				if err := k.Sync(testlog.Context(t)); err != nil {
					t.Fatal(err)
				}
			}
			got := strings.Join(events(k), "; ")
			if tc.want == "" && got != "" || !strings.Contains(got, tc.want) || strings.Count(got, secretName) > 1 ||
				strings.Contains(got, string(k.content)) && k.content != nil {
				t.Errorf("events %q, want %q once", got, tc.want)
			}
			_, err := k.Secrets.Get(t.Context(), contract.AnnouncerSecret, metav1.GetOptions{})
			if missing := apierrors.IsNotFound(err); missing != tc.missing {
				t.Fatalf("missing %t (%v)", missing, err)
			}
			if !tc.missing && cmp.Equal(before, storedKeys(t, client)) != tc.same {
				t.Errorf("the same key: want %t", tc.same)
			}
		})
	}
}

// TestMissingSecretIsFound: once a user has created the Secret, the next deletion is reported again.
func TestMissingSecretIsFound(t *testing.T) {
	client := fake.NewClientset(viewOf(announced))
	k := heartbeatKey(client)
	for range 2 {
		if err := k.Sync(testlog.Context(t)); err != nil {
			t.Fatal(err)
		}
		if got := events(k); len(got) != 1 || !strings.Contains(got[0], EventKeyMissing) {
			t.Errorf("events %q", got)
		}
		if err := k.create(t.Context(), []byte(contract.FormatAnnouncerKey(contract.AnnouncerKey{2}))); err != nil {
			t.Fatal(err)
		}
		if err := k.Sync(testlog.Context(t)); err != nil {
			t.Fatal(err)
		}
		deleteSecret(t, client)
		k.content = nil // as after a restart
	}
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

// TestRunHeartbeatKey: a failed request is retried, and a deleted Secret is created again with the same key.
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
		pass(keyPeriod)
		deleteSecret(t, client)
		pass(keyPeriod)
		if !cmp.Equal(before, storedKeys(t, client)) {
			t.Error("the key is another one")
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

// TestMissingKeyEndsByItsRemedy does what the event says, by each of its ways: then the Secret has a valid key that is
// not changed, and the event is not sent again.
func TestMissingKeyEndsByItsRemedy(t *testing.T) {
	for advice, key := range map[string]contract.AnnouncerKey{
		"Restore the Secret from a backup": {1}, "create it with a new key": {2},
	} {
		client := fake.NewClientset(viewOf(announced))
		k := heartbeatKey(client)
		if err := k.Sync(testlog.Context(t)); err != nil {
			t.Fatal(err)
		}
		if got := events(k); len(got) != 1 || !strings.Contains(got[0], "Warning HeartbeatKeyMissing ") ||
			!strings.Contains(got[0], advice) {
			t.Fatalf("events %q, want one that advises %s", got, advice)
		}
		restored := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: contract.AnnouncerSecret},
			Data: map[string][]byte{contract.AnnouncerSecretKey: []byte(contract.FormatAnnouncerKey(key))}}
		if _, err := k.Secrets.Create(t.Context(), restored, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := k.Sync(testlog.Context(t)); err != nil {
				t.Errorf("%s: %v", advice, err)
			}
		}
		if got := events(k); len(got) > 0 || !cmp.Equal(storedKeys(t, client), []contract.AnnouncerKey{key}) {
			t.Errorf("%s: then there are the events %q and the keys %v", advice, got, storedKeys(t, client))
		}
	}
}

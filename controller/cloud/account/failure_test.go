package account

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// TestFailureWatch: a failure is published with the time of the first one, and removed when the account can be read,
// also one of an earlier process. What else is in the ConfigMap stays.
func TestFailureWatch(t *testing.T) {
	configMaps := fake.NewClientset().CoreV1().ConfigMaps(metav1.NamespaceSystem)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var fails error
	start := func() *FailureWatch {
		return NewFailureWatch(NewFailures(configMaps, func() time.Time { return now }),
			func(context.Context) error { return fails })
	}
	published := func() *contract.AccountFailure {
		t.Helper()
		object, err := configMaps.Get(t.Context(), contract.BlockReportName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		must(t, err)
		failure, err := contract.ParseAccountFailure(object.Data[contract.AccountFailureKey])
		must(t, err)
		return failure
	}

	w := start()
	w.look(t.Context())
	if failure := published(); failure != nil {
		t.Fatalf("without a failure, %+v is published", failure)
	}
	begun := now.Add(time.Minute)
	for _, text := range []string{"no answer", "still no answer"} {
		now = now.Add(time.Minute)
		fails = errors.New(text)
		w.look(t.Context())
		got := published()
		if got == nil || !got.Since.Equal(begun) || got.Reason != contract.FailureOther ||
			!strings.HasPrefix(got.Message, text+";") {
			t.Fatalf("%s: published is %+v", text, got)
		}
		w = start() // a successor
	}
	object, err := configMaps.Get(t.Context(), contract.BlockReportName, metav1.GetOptions{})
	must(t, err)
	object.Data["other"] = "stays"
	_, err = configMaps.Update(t.Context(), object, metav1.UpdateOptions{})
	must(t, err)
	fails = nil
	w.look(t.Context())
	object, err = configMaps.Get(t.Context(), contract.BlockReportName, metav1.GetOptions{})
	must(t, err)
	if published() != nil || object.Data["other"] != "stays" {
		t.Errorf("after it is over, the ConfigMap has %v", object.Data)
	}
}

// TestFailureWatchReadsLittle: while nothing changes, the API server is not asked.
func TestFailureWatchReadsLittle(t *testing.T) {
	client := fake.NewClientset()
	w := NewFailureWatch(NewFailures(client.CoreV1().ConfigMaps(metav1.NamespaceSystem), time.Now),
		func(context.Context) error { return nil })
	for range 10 {
		w.look(t.Context())
	}
	if n := len(client.Actions()); n != 1 {
		t.Errorf("%d requests to the API server, want 1", n)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

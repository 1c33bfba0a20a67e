package orphans

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

func reportAt(looked time.Time, standing string) contract.BlockReport {
	return contract.BlockReport{Looked: looked, NetworkID: "n", Blocks: []contract.ReportedBlock{
		{ID: "b", CIDR: netip.MustParsePrefix("203.0.113.0/29"), Standing: standing, Purpose: contract.PurposePool,
			Name: contract.PoolDefault},
	}}
}

func storeIn(kube *fake.Clientset) *reportStore {
	return &reportStore{configMaps: kube.CoreV1().ConfigMaps(metav1.NamespaceSystem)}
}

// read returns what is stored, and how often something was written.
func read(t *testing.T, kube *fake.Clientset) (stored contract.BlockReport, writes int) {
	t.Helper()
	object, err := kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), contract.BlockReportName,
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if stored, err = contract.ParseBlockReport(object.Data[contract.BlockReportKey]); err != nil {
		t.Fatal(err)
	}
	for _, action := range kube.Actions() {
		if action.GetVerb() == "create" || action.GetVerb() == "update" && object.Name == contract.BlockReportName {
			writes++
		}
	}
	return stored, writes
}

func TestAReportIsWrittenWhenItSaysSomethingNew(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	kube := fake.NewClientset()
	store := storeIn(kube)
	for _, step := range []struct {
		after    time.Duration
		standing string
		// written reports whether the report at that time is the one that is stored then.
		written bool
	}{
		{0, "in-use", true},
		{time.Minute, "in-use", false},
		{2 * time.Minute, "orphan", true},
		{6 * time.Minute, "orphan", false},
		{2*time.Minute + refreshAfter, "orphan", true},
		{3*time.Minute + refreshAfter, "in-use", true},
	} {
		r := reportAt(start.Add(step.after), step.standing)
		if err := store.publish(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		stored, _ := read(t, kube)
		written := cmp.Equal(stored, r, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }))
		if written != step.written {
			t.Errorf("after %s: stored %+v, want it written: %v", step.after, stored, step.written)
		}
	}
	if _, writes := read(t, kube); writes != 5 { // an update that finds nothing, a creation, three updates
		t.Errorf("%d writes", writes)
	}
}

// What someone else wrote there, or an earlier version, is replaced, whatever it says.
func TestAReportReplacesWhatIsThere(t *testing.T) {
	kube := fake.NewClientset(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: contract.BlockReportName, Namespace: metav1.NamespaceSystem},
		Data:       map[string]string{contract.BlockReportKey: "{", "other": "x"},
	})
	if err := storeIn(kube).publish(t.Context(), reportAt(time.Unix(1700000000, 0).UTC(), "in-use")); err != nil {
		t.Fatal(err)
	}
	if stored, _ := read(t, kube); len(stored.Blocks) != 1 {
		t.Errorf("stored %+v", stored)
	}
}

// A report that could not be written is written at the next look, though nothing changed.
func TestAFailureIsTriedAgain(t *testing.T) {
	kube := fake.NewClientset()
	failing := true
	kube.PrependReactor("update", "configmaps", func(ktesting.Action) (bool, runtime.Object, error) {
		return failing, nil, errors.New("no leader of etcd")
	})
	store := storeIn(kube)
	r := reportAt(time.Unix(1700000000, 0).UTC(), "in-use")
	if err := store.publish(t.Context(), r); err == nil ||
		!strings.Contains(err.Error(), "kube-system/"+contract.BlockReportName) {
		t.Errorf("the error %v does not name the object", err)
	}
	failing = false
	if err := store.publish(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	read(t, kube)
}

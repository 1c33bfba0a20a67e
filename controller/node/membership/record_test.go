package membership

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
)

func TestRecordIsStored(t *testing.T) {
	store := newRecordStore(kubefake.NewStore().Client(), v1beta1.DefaultNetwork)
	empty, err := store.load(t.Context())
	if err != nil || len(empty.members) != 0 {
		t.Fatalf("nothing stored: %v, %v", empty, err)
	}
	since := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	with := joined{Network: "n", Address: netip.MustParseAddr("203.0.113.2"), Node: "a", Since: since}
	without := joined{Network: "n", Node: "b", Since: since}
	if _, err := store.save(t.Context(), empty.with("1", with).with("2", without)); err != nil {
		t.Fatal(err)
	}
	if _, err := store.save(t.Context(), empty.with("3", with)); !errors.Is(err, errChanged) {
		t.Errorf("saving over a newer record: %v", err)
	}
	read, err := store.load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]joined{"1": with, "2": without}
	if diff := cmp.Diff(want, read.members, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := store.save(t.Context(), read.without("1")); err != nil {
		t.Fatal(err)
	}
	if len(read.members) != 2 {
		t.Error("a record was changed in place")
	}
}

// TestRecordsOfNetworks: each network has its own record, and that of another one stays as it is, readable or not.
func TestRecordsOfNetworks(t *testing.T) {
	kube := kubefake.NewStore().Client()
	first := newRecordStore(kube, v1beta1.DefaultNetwork)
	west := newRecordStore(kube, "west")
	read, err := west.load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := west.save(t.Context(), read.with("1", joined{Network: "w"})); err != nil {
		t.Fatal(err)
	}
	if read, err = first.load(t.Context()); err != nil || len(read.members) > 0 {
		t.Fatalf("%+v, %v", read, err)
	}
	if _, err := first.save(t.Context(), read.with("2", joined{Network: "n"})); err != nil {
		t.Fatal(err)
	}
	for store, id := range map[recordStore]string{first: "2", west: "1"} {
		read, err := store.load(t.Context())
		if _, found := read.members[id]; err != nil || len(read.members) != 1 || !found {
			t.Errorf("%s: %+v, %v", store.key, read, err)
		}
	}
}

func TestUnreadableRecordIsAnError(t *testing.T) {
	for _, raw := range []string{"", "x", "[]", `{"s":{}}`, `{"s":{"network":"n","colour":"red"}}`, `{} {}`,
		`{"s":{"network":"n","address":"1.2.3"}}`} {
		store := newRecordStore(fake.NewClientset(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: RecordName},
			Data:       map[string]string{recordKey: raw},
		}), v1beta1.DefaultNetwork)
		if _, err := store.load(t.Context()); err == nil || !strings.Contains(err.Error(), RecordName) {
			t.Errorf("%q: %v", raw, err)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add(`{"5fa54d1e91867c03a0a7b4a4":{"network":"n","address":"203.0.113.2","node":"a","since":"2026-01-01T00:00:00Z"}}`)
	f.Add(`{"":{"network":"n"}}`)
	f.Add(`null`)
	f.Fuzz(func(t *testing.T, raw string) {
		members, err := parseRecord(raw)
		if err != nil {
			return
		}
		for id, j := range members {
			if id == "" || j.Network == "" {
				t.Errorf("%q is accepted: %v", raw, members)
			}
		}
	})
}

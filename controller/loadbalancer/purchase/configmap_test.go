package purchase_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
)

// configMap returns the record and a client of the API, on which the ConfigMap does not exist.
func configMap(name string) (*purchase.ConfigMap, kubernetes.Interface) {
	client := kubefake.NewStore().Client()
	return purchase.NewConfigMap(client, name), client
}

func wantRecorded(t *testing.T, r purchase.Record, want *contract.Purchase) {
	t.Helper()
	got, err := r.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
}

func TestRecordInAConfigMap(t *testing.T) {
	name := purchase.PoolName("default")
	if name != "phoenixnap-pool-default" {
		t.Errorf("the name is %s", name)
	}
	r, kube := configMap(name)
	wantRecorded(t, r, nil)
	intent := &contract.Purchase{Nonce: "n1", Time: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	if err := r.Save(t.Context(), intent); err != nil {
		t.Fatal(err)
	}
	answered := *intent
	answered.BlockID = "b1"
	if err := r.Save(t.Context(), &answered); err != nil {
		t.Fatal(err)
	}
	wantRecorded(t, purchase.NewConfigMap(kube, name), &answered)
	if err := r.Save(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	wantRecorded(t, r, nil)
}

// TestOneOfTwoBuyersRecords: of two that decided on the same version, one may buy; also on the first time,
// when the ConfigMap does not exist.
// TestARecordThatIsNotKept: a webhook may remove the annotation. Then nothing is bought.
func TestARecordThatIsNotKept(t *testing.T) {
	w := newWorld(t)
	w.oldTags()
	store := kubefake.NewStore()
	store.Admit = func(changed, _ metav1.Object) { changed.SetAnnotations(nil) }
	record := purchase.NewConfigMap(store.Client(), purchase.PoolName("default"))
	for range 2 { // it is created, and then updated
		_, err := w.buyer.Buy(testlog.Context(t), order(network.PoolOwner(cluster)), record)
		if err == nil || !strings.Contains(err.Error(), "did not keep annotation "+contract.ServiceIPPurchase) ||
			!strings.Contains(err.Error(), "webhook") {
			t.Fatalf("said %v", err)
		}
	}
	w.wantPurchases(0)
}

func TestOneOfTwoBuyersRecords(t *testing.T) {
	first, kube := configMap(purchase.NodesName)
	second := purchase.NewConfigMap(kube, purchase.NodesName)
	for round := range 4 {
		results := make([]error, 2)
		for _, r := range []*purchase.ConfigMap{first, second} {
			if _, err := r.Load(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		var both sync.WaitGroup
		for i, r := range []*purchase.ConfigMap{first, second} {
			intent := &contract.Purchase{Nonce: string(rune('a' + i)),
				Time: time.Date(2026, 3, 1, 12, round, 0, 0, time.UTC)}
			both.Go(func() { results[i] = r.Save(t.Context(), intent) })
		}
		both.Wait()
		winner := results[0]
		loser := results[1]
		if winner != nil {
			winner, loser = loser, winner
		}
		if winner != nil || !errors.Is(loser, purchase.ErrOutdated) {
			t.Errorf("round %d: %v", round, results)
		}
	}
}

func TestUnreadableRecordIsNamed(t *testing.T) {
	r, kube := configMap(purchase.NodesName)
	broken := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: purchase.NodesName,
		Annotations: map[string]string{contract.ServiceIPPurchase: "soon"}}}
	if _, err := kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).Create(t.Context(), broken,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := r.Load(t.Context())
	if err == nil || !strings.Contains(err.Error(), "kube-system/phoenixnap-nodes") ||
		!strings.Contains(err.Error(), "remove the annotation") {
		t.Errorf("said %v", err)
	}
}

// TestPurchaseRecordedInAConfigMap is a whole purchase for a pool.
func TestPurchaseRecordedInAConfigMap(t *testing.T) {
	w := newWorld(t)
	w.oldTags()
	r, _ := configMap(purchase.PoolName("default"))
	wantRecorded(t, r, nil)
	block, err := w.buyer.Buy(testlog.Context(t), order(pool), r)
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Load(t.Context())
	if err != nil || got == nil || got.BlockID != block.ID {
		t.Errorf("recorded is %+v, %v", got, err)
	}
}

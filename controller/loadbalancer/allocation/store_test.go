package allocation_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func fresh(id string) plan.Ledger {
	return plan.NewLedger(id, netip.MustParsePrefix("203.0.113.8/29"))
}

func take(t *testing.T, l plan.Ledger, name string) plan.Ledger {
	t.Helper()
	l, _, err := l.Take(plan.Holder{Namespace: "shop", Name: name, UID: "u-" + name}, plan.Ask{Now: noon})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func save(t *testing.T, s *allocation.Store, l plan.Ledger) plan.Ledger {
	t.Helper()
	saved, err := s.Save(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	return saved
}

func TestLifeOfALedger(t *testing.T) {
	s := allocation.NewStore(kubefake.NewStore().Client())
	if _, err := s.Get(t.Context(), "b1"); !errors.Is(err, allocation.ErrNotFound) {
		t.Errorf("before anything is stored: %v", err)
	}
	first := save(t, s, take(t, fresh("b1"), "web"))
	second := save(t, s, take(t, first, "api"))
	if first.Version == "" || first.Version == second.Version {
		t.Errorf("versions are %q and %q", first.Version, second.Version)
	}
	got, err := s.Get(t.Context(), "b1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(second, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Errorf("read (-saved +got):\n%s", diff)
	}
	if err := s.Delete(t.Context(), first); !errors.Is(err, allocation.ErrConflict) {
		t.Errorf("an old version deletes: %v", err)
	}
	for range 2 {
		if err := s.Delete(t.Context(), second); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
	if _, err := s.Save(t.Context(), take(t, second, "www")); !errors.Is(err, allocation.ErrConflict) {
		t.Errorf("a deleted ledger is saved: %v", err)
	}
}

func TestListIsOrderedAndComplete(t *testing.T) {
	client := kubefake.NewStore().Client()
	s := allocation.NewStore(client)
	for _, id := range []string{"b3", "b1", "b2"} {
		save(t, s, take(t, fresh(id), "web"))
	}
	configMaps := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	stranger := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: allocation.NamePrefix + "without-label"}}
	if _, err := configMaps.Create(t.Context(), stranger, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := configMaps.Delete(t.Context(), stranger.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}()
	ledgers, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, l := range ledgers.Ledgers {
		ids = append(ids, l.BlockID)
		if l.Version == "" || len(l.Held) != 1 {
			t.Errorf("ledger is %v", l)
		}
	}
	if diff := cmp.Diff([]string{"b1", "b2", "b3"}, ids); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
}

// TestLostLabelIsRestored: a ledger is found by its name. What else has such a name, or the label, stays as it is.
func TestLostLabelIsRestored(t *testing.T) {
	client := kubefake.NewStore().Client()
	s := allocation.NewStore(client)
	save(t, s, take(t, fresh("b1"), "web"))
	save(t, s, fresh("b2"))
	maps := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	for name, labels := range map[string]map[string]string{
		allocation.NamePrefix + "b1": {"team": "network", allocation.Label: "false"},
		"other":                      {allocation.Label: "true"},
	} {
		object, err := maps.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			object, err = maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
				metav1.CreateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		object.Labels = labels
		if _, err := maps.Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	listing, err := s.List(t.Context())
	if err != nil || len(listing.Ledgers) != 1 || len(listing.Unreadable) != 0 {
		t.Errorf("without its label: %v, %v", listing, err)
	}
	restored, err := s.Relabel(t.Context(), listing.Without([]string{"b1", "b2", "b3"})...)
	if err != nil || !slices.Equal(restored, []string{allocation.NamePrefix + "b1"}) {
		t.Errorf("restored %q, %v", restored, err)
	}
	listing, err = s.List(t.Context())
	if err != nil || len(listing.Ledgers) != 2 || len(listing.Ledgers[0].Held) != 1 {
		t.Errorf("with its label: %v, %v", listing, err)
	}
	if object, err := maps.Get(t.Context(), allocation.NamePrefix+"b1", metav1.GetOptions{}); err != nil ||
		object.Labels["team"] != "network" {
		t.Errorf("labels are %v, %v", object.Labels, err)
	}
}

// TestDamagedLedgerHidesNothing: what cannot be read may give an address to someone. It hides no other.
func TestDamagedLedgerHidesNothing(t *testing.T) {
	client := kubefake.NewStore().Client()
	s := allocation.NewStore(client)
	save(t, s, fresh("b1"))
	maps := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	object, err := maps.Get(t.Context(), allocation.NamePrefix+"b1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	object.Data["ledger.json"] = "{"
	if _, err := maps.Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	save(t, s, fresh("b2"))
	listing, err := s.List(t.Context())
	if err != nil || len(listing.Ledgers) != 1 || listing.Ledgers[0].BlockID != "b2" {
		t.Errorf("the list is %v, %v", listing, err)
	}
	if u := listing.Unreadable; len(u) != 1 || u[0].BlockID != "b1" ||
		!strings.Contains(u[0].Problem, "kube-system/phoenixnap-ip-block-b1") {
		t.Errorf("unreadable are %v", u)
	}
	if l, err := s.Get(t.Context(), "b1"); !errors.Is(err, allocation.ErrUnreadable) {
		t.Errorf("the ledger is %v, %v", l, err)
	}
}

// TestOneOfTwoWritersWins: writers that read the same version race for the last address again and again;
// each time exactly one of them wins, and no address is given twice.
func TestOneOfTwoWritersWins(t *testing.T) {
	api := kubefake.NewStore()
	s := allocation.NewStore(api.Client())
	other := allocation.NewStore(api.Client())
	save(t, s, fresh("b1"))
	for round := range 5 {
		before, err := s.Get(t.Context(), "b1")
		if err != nil {
			t.Fatal(err)
		}
		results := make([]error, 2)
		var both sync.WaitGroup
		for i, writer := range []*allocation.Store{s, other} {
			wanted := take(t, before, fmt.Sprintf("s%d-%d", round, i))
			both.Go(func() { _, results[i] = writer.Save(t.Context(), wanted) })
		}
		both.Wait()
		wantOneWinner(t, results)
		after, err := s.Get(t.Context(), "b1")
		if err != nil {
			t.Fatal(err)
		}
		if len(after.Held) != round+1 {
			t.Errorf("after round %d %d addresses are given", round, len(after.Held))
		}
	}
}

// TestOneOfTwoCreatorsWins is the same for the first holder of a block.
func TestOneOfTwoCreatorsWins(t *testing.T) {
	api := kubefake.NewStore()
	results := make([]error, 2)
	var both sync.WaitGroup
	for i := range results {
		writer := allocation.NewStore(api.Client())
		wanted := take(t, fresh("b1"), fmt.Sprint("s", i))
		both.Go(func() { _, results[i] = writer.Save(t.Context(), wanted) })
	}
	both.Wait()
	wantOneWinner(t, results)
}

func wantOneWinner(t *testing.T, results []error) {
	t.Helper()
	winners := 0
	for _, err := range results {
		switch {
		case err == nil:
			winners++
		case !errors.Is(err, allocation.ErrConflict):
			t.Errorf("the loser got %v", err)
		}
	}
	if winners != 1 {
		t.Errorf("%d of two writers won: %v", winners, results)
	}
}

// TestALedgerThatIsNotKept: an address is given only once the API server's answer shows the ledger as it was written.
func TestALedgerThatIsNotKept(t *testing.T) {
	store := kubefake.NewStore()
	s := allocation.NewStore(store.Client())
	l := save(t, s, fresh("b1"))
	store.Admit = func(changed, _ metav1.Object) {
		changed.(*corev1.ConfigMap).Data = nil //nolint:errcheck // it has no others
	}
	if _, err := s.Save(t.Context(), take(t, l, "web")); err == nil || !strings.Contains(err.Error(), "webhook") {
		t.Errorf("said %v, want an error that names the webhook", err)
	}
}

package allocation_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func fresh(id string) ipblock.Ledger {
	return ipblock.NewLedger(id, netip.MustParsePrefix("203.0.113.8/29"))
}

func take(t *testing.T, l ipblock.Ledger, name string) ipblock.Ledger {
	t.Helper()
	l, _, err := l.Take(ipblock.Holder{Namespace: "shop", Name: name, UID: "u-" + name}, ipblock.Ask{Now: noon})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func save(t *testing.T, s *allocation.Store, l ipblock.Ledger) ipblock.Ledger {
	t.Helper()
	saved, err := s.Save(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	return saved
}

func TestLifeOfALedger(t *testing.T) {
	s := allocation.NewStore(kubefake.NewStore().IPBlocks(), nil)
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
	objects := kubefake.NewStore().IPBlocks()
	s := allocation.NewStore(objects, nil)
	for _, id := range []string{"b3", "b1", "b2"} {
		save(t, s, take(t, fresh(id), "web"))
	}
	for _, name := range []string{"of-a-person", v1beta1.NamePrefix + "b4"} { // the second has no status yet
		create(t, objects, name)
	}
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
	if diff := cmp.Diff([]string{"b1", "b2", "b3"}, ids); diff != "" || len(ledgers.Unreadable) > 0 {
		t.Errorf("unreadable are %v, blocks (-want +got):\n%s", ledgers.Unreadable, diff)
	}
	if u := ledgers.Unrecorded; len(u) != 1 || u[0].BlockID != "b4" || u[0].Version == "" {
		t.Errorf("unrecorded are %v", u)
	}
}

func create(t *testing.T, objects allocation.IPBlocks, name string) {
	t.Helper()
	object := &v1beta1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: name}}
	object.Spec.BlockID = strings.TrimPrefix(name, v1beta1.NamePrefix)
	if _, err := objects.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestAnInterruptedCreationGoesOn: the object of a creation that ended between its two writes has no status, and so
// has one that was restored without.
func TestAnInterruptedCreationGoesOn(t *testing.T) {
	objects := kubefake.NewStore().IPBlocks()
	s := allocation.NewStore(objects, nil)
	create(t, objects, v1beta1.NamePrefix+"b1")
	if _, err := s.Get(t.Context(), "b1"); !errors.Is(err, allocation.ErrNotFound) {
		t.Errorf("before it goes on: %v", err)
	}
	if l := save(t, s, take(t, fresh("b1"), "web")); len(l.Held) != 1 || l.Version == "" {
		t.Errorf("saved is %v", l)
	}
	if _, err := s.Save(t.Context(), take(t, fresh("b1"), "api")); !errors.Is(err, allocation.ErrConflict) {
		t.Errorf("a second creation: %v", err)
	}
}

// TestDamagedLedgerHidesNothing: what cannot be read may give an address to someone. It hides no other.
func TestDamagedLedgerHidesNothing(t *testing.T) {
	objects := kubefake.NewStore().IPBlocks()
	s := allocation.NewStore(objects, nil)
	save(t, s, fresh("b1"))
	object, err := objects.Get(t.Context(), v1beta1.NamePrefix+"b1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	object.Status.CIDR = ""
	if _, err := objects.UpdateStatus(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	save(t, s, fresh("b2"))
	listing, err := s.List(t.Context())
	if err != nil || len(listing.Ledgers) != 1 || listing.Ledgers[0].BlockID != "b2" {
		t.Errorf("the list is %v, %v", listing, err)
	}
	if u := listing.Unreadable; len(u) != 1 || u[0].BlockID != "b1" ||
		!strings.Contains(u[0].Problem, "IPBlock block-b1") {
		t.Errorf("unreadable are %v", u)
	}
	if l, err := s.Get(t.Context(), "b1"); !errors.Is(err, allocation.ErrUnreadable) {
		t.Errorf("the ledger is %v, %v", l, err)
	}
}

// undefined is an API server without the definition of IPBlock: the answers are those of the real one.
type undefined struct{ allocation.IPBlocks }

func missing(verb string) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, verb, schema.GroupResource{}, "",
		"404 page not found", 0, true)
}

func (undefined) Get(context.Context, string, metav1.GetOptions) (*v1beta1.IPBlock, error) {
	return nil, missing("GET")
}

func (undefined) List(context.Context, metav1.ListOptions) (*v1beta1.IPBlockList, error) {
	return nil, missing("GET")
}

func (undefined) Create(context.Context, *v1beta1.IPBlock, metav1.CreateOptions) (*v1beta1.IPBlock, error) {
	return nil, missing("POST")
}

// TestAMissingDefinitionIsNamed: it does not look like a ledger that is missing, which would be made again.
func TestAMissingDefinitionIsNamed(t *testing.T) {
	s := allocation.NewStore(undefined{}, nil)
	calls := map[string]func() error{
		"list":   func() error { _, err := s.List(t.Context()); return err },
		"get":    func() error { _, err := s.Get(t.Context(), "b1"); return err },
		"create": func() error { _, err := s.Save(t.Context(), fresh("b1")); return err },
		"update": func() error {
			l := fresh("b1")
			l.Version = "7"
			_, err := s.Save(t.Context(), l)
			return err
		},
	}
	for name, call := range calls {
		err := call()
		if err == nil || errors.Is(err, allocation.ErrNotFound) || errors.Is(err, allocation.ErrConflict) ||
			!strings.Contains(err.Error(), "kubectl apply -k deploy/crds") {
			t.Errorf("%s: %v, want how to install the definition", name, err)
		}
	}
}

// TestOneOfTwoWritersWins: writers that read the same version race for the last address again and again;
// each time exactly one of them wins, and no address is given twice.
func TestOneOfTwoWritersWins(t *testing.T) {
	api := kubefake.NewStore()
	s := allocation.NewStore(api.IPBlocks(), nil)
	other := allocation.NewStore(api.IPBlocks(), nil)
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
		writer := allocation.NewStore(api.IPBlocks(), nil)
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
	s := allocation.NewStore(store.IPBlocks(), nil)
	l := save(t, s, fresh("b1"))
	store.Admit = func(changed, _ metav1.Object) {
		changed.(*v1beta1.IPBlock).Status.Allocations = nil //nolint:errcheck // it has no others
	}
	if _, err := s.Save(t.Context(), take(t, l, "web")); err == nil || !strings.Contains(err.Error(), "webhook") {
		t.Errorf("said %v, want an error that names the webhook", err)
	}
}

// TestAPreviewNeedsNoDefinition: a dry run before a migration finds nothing, and shows what would be stored.
func TestAPreviewNeedsNoDefinition(t *testing.T) {
	s := allocation.NewStore(allocation.Preview{IPBlocks: undefined{}}, nil)
	if listing, err := s.List(t.Context()); err != nil || len(listing.Ledgers) > 0 {
		t.Errorf("the list is %v, %v", listing, err)
	}
	if _, err := s.Get(t.Context(), "b1"); !errors.Is(err, allocation.ErrNotFound) {
		t.Errorf("the ledger: %v", err)
	}
	if l := save(t, s, take(t, fresh("b1"), "web")); len(l.Held) != 1 {
		t.Errorf("would be stored: %v", l)
	}
	objects := kubefake.NewStore().IPBlocks()
	stored := save(t, allocation.NewStore(objects, nil), fresh("b1"))
	s = allocation.NewStore(allocation.Preview{IPBlocks: objects}, nil)
	if l := save(t, s, take(t, stored, "web")); len(l.Held) != 1 || l.Version == stored.Version {
		t.Errorf("a stored ledger: %v", l)
	}
}

func TestWhatBreaksTheRulesIsNotStored(t *testing.T) {
	s := allocation.NewStore(kubefake.NewStore().IPBlocks(), nil)
	broken := take(t, fresh("b1"), "web")
	broken.Held[netip.MustParseAddr("203.0.113.9")] = ipblock.Holder{Namespace: "shop", Name: "gateway"}
	if _, err := s.Save(t.Context(), broken); err == nil || !strings.Contains(err.Error(), "203.0.113.9") {
		t.Errorf("said %v", err)
	}
	if _, err := s.Get(t.Context(), "b1"); !errors.Is(err, allocation.ErrNotFound) {
		t.Errorf("something is stored: %v", err)
	}
}

// TestALedgerThatIsChanged: nor when the answer shows it with another holder.
func TestALedgerThatIsChanged(t *testing.T) {
	store := kubefake.NewStore()
	s := allocation.NewStore(store.IPBlocks(), nil)
	l := save(t, s, fresh("b1"))
	store.Admit = func(changed, _ metav1.Object) {
		allocations := changed.(*v1beta1.IPBlock).Status.Allocations //nolint:errcheck // it has no others
		(*allocations)[0].Services[0].Name = "another"
	}
	if _, err := s.Save(t.Context(), take(t, l, "web")); err == nil || !strings.Contains(err.Error(), "webhook") {
		t.Errorf("said %v, want an error that names the webhook", err)
	}
}

// TestTwoObjectsOfOneBlock: neither is believed, and the remedy is named; one that says nothing does no harm.
func TestTwoObjectsOfOneBlock(t *testing.T) {
	blocks := kubefake.NewStore().IPBlocks()
	store := allocation.NewStore(blocks, nil)
	first := save(t, store, fresh("60473c2509268bc77fd06d40"))
	second := &v1beta1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: v1beta1.SharedPrefix(v1beta1.DefaultNetwork) + "1"},
		Spec: v1beta1.IPBlockSpec{Source: v1beta1.SourceBought, Purpose: v1beta1.PurposeShared, BlockID: first.BlockID}}
	created, err := blocks.Create(t.Context(), second, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Get(t.Context(), first.BlockID); err != nil {
		t.Errorf("beside an object that says nothing: %v", err)
	}
	created.Status = v1beta1.IPBlockStatus{CIDR: first.CIDR.String(), Allocations: &[]v1beta1.Allocation{}}
	if _, err := blocks.UpdateStatus(t.Context(), created, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	listing, err := store.List(t.Context())
	if err != nil || len(listing.Ledgers) > 0 || len(listing.Unreadable) == 0 {
		t.Fatalf("%+v, %v", listing, err)
	}
	_, err = store.Get(t.Context(), first.BlockID)
	if !errors.Is(err, allocation.ErrUnreadable) || !strings.Contains(err.Error(), first.Object) ||
		!strings.Contains(err.Error(), created.Name) || !strings.Contains(err.Error(), contract.AllowDeletion) {
		t.Errorf("said %v", err)
	}
}

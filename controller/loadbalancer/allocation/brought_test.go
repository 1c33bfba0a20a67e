package allocation_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
)

func write(t *testing.T, objects allocation.IPBlocks, name string, spec v1beta1.IPBlockSpec) *v1beta1.IPBlock {
	t.Helper()
	object, err := objects.Create(t.Context(), &v1beta1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return object
}

func brings(id string, namespaces ...string) v1beta1.IPBlockSpec {
	return v1beta1.IPBlockSpec{Purpose: v1beta1.PurposeShared, Source: v1beta1.SourceBrought, BlockID: id,
		AllowedNamespaces: namespaces}
}

// TestWhoBringsABlock: only a person does, for Services; what the controller named, and what is bought or for nodes,
// permits nothing.
func TestWhoBringsABlock(t *testing.T) {
	objects := kubefake.NewStore().IPBlocks()
	nodes := brings("b3")
	nodes.Purpose = v1beta1.PurposeNodes
	bought := brings("b4")
	bought.Source = v1beta1.SourceBought
	for name, spec := range map[string]v1beta1.IPBlockSpec{
		"mine": brings("b1", "shop", "tools"), v1beta1.NamePrefix + "b2": brings("b2"), "for-nodes": nodes,
		"to-buy": bought, v1beta1.SharedPrefix(v1beta1.DefaultNetwork) + "1": brings("b5"),
	} {
		write(t, objects, name, spec)
	}
	err := kubefake.EditStatus(t.Context(), objects, "to-buy", func(s *v1beta1.IPBlockStatus) {
		*s = v1beta1.IPBlockStatus{CIDR: "203.0.113.8/29", Allocations: &[]v1beta1.Allocation{}}
	})
	if err != nil {
		t.Fatal(err)
	}
	listing, err := allocation.NewStore(objects, nil).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(listing.Ledgers) != 1 || listing.Ledgers[0].Object != "to-buy" || listing.Ledgers[0].Brought {
		t.Errorf("ledgers are %+v, want that of the block that a person has ordered", listing.Ledgers)
	}
	want := ipblock.BroughtBlocks{{Object: "mine", BlockID: "b1", Namespaces: []string{"shop", "tools"}}}
	if diff := cmp.Diff(want, listing.BroughtBlocks); diff != "" {
		t.Errorf("brought are (-want +got):\n%s", diff)
	}
	if nodes := listing.BroughtForNodes; len(nodes) != 1 || nodes[0].Name != "for-nodes" || nodes[0].BlockID != "b3" {
		t.Errorf("brought for nodes are %+v", nodes)
	}
	shared := v1beta1.SharedPrefix(v1beta1.DefaultNetwork)
	names := []string{v1beta1.NamePrefix + "b2", shared + "1", "for-nodes", "mine", "to-buy"}
	if !slices.Equal(names, listing.Names) {
		t.Errorf("the names are %q, want %q", listing.Names, names)
	}
	var unrecorded []string
	for _, l := range listing.Unrecorded {
		unrecorded = append(unrecorded, l.Object)
	}
	if diff := cmp.Diff([]string{v1beta1.NamePrefix + "b2", shared + "1"}, unrecorded); diff != "" {
		t.Errorf("objects without allocations are (-want +got):\n%s", diff)
	}
}

// TestTheObjectOfAPersonKeepsItsLedger: it is the one in which addresses are recorded, and stays without addresses.
func TestTheObjectOfAPersonKeepsItsLedger(t *testing.T) {
	objects := kubefake.NewStore().IPBlocks()
	created := write(t, objects, "mine", brings("b1", "shop"))
	s := allocation.NewStore(objects, nil)
	l := fresh("b1")
	l.Brought = true
	l.AssignedHere = true
	first := save(t, s, take(t, l, "web"))
	second := save(t, s, take(t, first, "api"))
	if second.Object != "mine" || !second.Brought {
		t.Errorf("the ledger is that of %q, brought %t", second.Object, second.Brought)
	}
	if err := s.Delete(t.Context(), first); !errors.Is(err, allocation.ErrConflict) {
		t.Errorf("an old version is removed: %v", err)
	}
	if err := s.Delete(t.Context(), second); err != nil {
		t.Error(err)
	}
	left, err := objects.Get(t.Context(), "mine", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(v1beta1.IPBlockStatus{CIDR: "203.0.113.8/29", Gateway: "203.0.113.9",
		Conditions: []metav1.Condition{}}, left.Status, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the status is (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(created.Spec, left.Spec); diff != "" {
		t.Errorf("the spec is (-want +got):\n%s", diff)
	}
	if err := objects.Delete(t.Context(), "mine", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), second); err != nil {
		t.Errorf("a ledger whose object is gone: %v", err)
	}
	again := save(t, s, take(t, l, "web"))
	if again.Object != v1beta1.NamePrefix+"b1" {
		t.Errorf("without the object of the person the ledger is that of %q", again.Object)
	}
}

// TestADamagedObjectOfAPerson says that the person has to create it again.
func TestADamagedObjectOfAPerson(t *testing.T) {
	objects := kubefake.NewStore().IPBlocks()
	write(t, objects, "mine", brings("b1"))
	s := allocation.NewStore(objects, nil)
	save(t, s, take(t, fresh("b1"), "web"))
	damage := func(s *v1beta1.IPBlockStatus) { s.CIDR = "" }
	if err := kubefake.EditStatus(t.Context(), objects, "mine", damage); err != nil {
		t.Fatal(err)
	}
	_, err := s.Get(t.Context(), "b1")
	if !errors.Is(err, allocation.ErrUnreadable) || !strings.Contains(err.Error(), "delete it and create it again") {
		t.Errorf("reading says %v", err)
	}
}

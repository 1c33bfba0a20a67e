package allocation_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/client"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
)

// keeping is a store with the ledger of one block, of which one Service has an address.
type keeping struct {
	*testing.T
	api    *kubefake.Store
	blocks *client.IPBlocks
	store  *allocation.Store
	ledger ipblock.Ledger
	object string
}

func newKeeping(t *testing.T) *keeping {
	t.Helper()
	k := &keeping{T: t, api: kubefake.NewStore()}
	k.blocks = k.api.IPBlocks()
	k.store = allocation.NewStore(k.blocks, nil)
	k.ledger = save(t, k.store, take(t, fresh("b1"), "web"))
	k.object = v1beta1.NamePrefix + "b1"
	return k
}

// deleted is the object after a person has deleted it, with annotations; nil when it is gone.
func (k *keeping) deleted(annotations map[string]string) *v1beta1.IPBlock {
	k.Helper()
	k.edit(func(object *v1beta1.IPBlock) { object.Annotations = annotations })
	if err := k.blocks.Delete(k.Context(), k.object, metav1.DeleteOptions{}); err != nil {
		k.Fatal(err)
	}
	return k.read()
}

func (k *keeping) edit(change func(*v1beta1.IPBlock)) {
	k.Helper()
	object := k.read()
	change(object)
	if _, err := k.blocks.Update(k.Context(), object, metav1.UpdateOptions{}); err != nil {
		k.Fatal(err)
	}
}

func (k *keeping) read() *v1beta1.IPBlock {
	k.Helper()
	object, err := k.blocks.Get(k.Context(), k.object, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		k.Fatal(err)
	}
	return object
}

func (k *keeping) list() allocation.Listing {
	k.Helper()
	listing, err := k.store.List(k.Context())
	if err != nil {
		k.Fatal(err)
	}
	return listing
}

func TestADeletedObjectStaysUntilItsBlockIsReleased(t *testing.T) {
	k := newKeeping(t)
	if object := k.deleted(nil); object == nil || object.DeletionTimestamp == nil {
		t.Fatalf("the object is %v, want one that is being deleted", object)
	}
	listing := k.list()
	if len(listing.Ledgers) != 1 || !listing.Ledgers[0].Deleted || !listing.Records[0].Deleted {
		t.Fatalf("the listing is %+v, want a ledger and a record that are deleted", listing)
	}
	l := listing.Ledgers[0]
	if _, _, err := l.Take(ipblock.Holder{Namespace: "shop", Name: "new", UID: "u"}, ipblock.Ask{}); !errors.Is(err,
		ipblock.ErrClosed) {
		t.Errorf("another Service gets an address: %v", err)
	}
	kept, grant, err := l.Take(ipblock.Holder{Namespace: "shop", Name: "web", UID: "u-web"}, ipblock.Ask{})
	if err != nil || grant.Address != netip.MustParseAddr("203.0.113.10") {
		t.Errorf("the Service that has an address gets %v, %v", grant, err)
	}
	if _, err := k.store.Save(t.Context(), kept); err != nil {
		t.Errorf("save: %v", err)
	}
	if err := k.store.Delete(t.Context(), k.list().Ledgers[0]); err != nil || k.read() != nil {
		t.Errorf("after its release: %v, %v", err, k.read())
	}
}

// TestNodesUseADeletedObject: which block the nodes need is not for a deletion to say.
func TestNodesUseADeletedObject(t *testing.T) {
	k := newKeeping(t)
	if err := k.store.Delete(t.Context(), k.ledger); err != nil {
		t.Fatal(err)
	}
	l := fresh("b1")
	l.Nodes = true
	save(t, k.store, l)
	if k.deleted(nil) == nil || k.list().Ledgers[0].Deleted {
		t.Errorf("the ledgers are %+v, want one that gives addresses", k.list().Ledgers)
	}
}

func TestAnAllowedDeletionForgetsAtOnce(t *testing.T) {
	k := newKeeping(t)
	allowed := map[string]string{contract.AllowDeletion: "true"}
	if k.deleted(allowed) == nil {
		t.Fatal("the object is gone before the controller looked")
	}
	if listing := k.list(); len(listing.Ledgers)+len(listing.Records) > 0 || k.read() != nil {
		t.Errorf("the listing is %+v, the object %v", listing, k.read())
	}
	k.ledger = save(t, k.store, take(t, fresh("b1"), "web"))
	k.edit(func(object *v1beta1.IPBlock) { object.Annotations = allowed })
	if listing := k.list(); len(listing.Ledgers) != 1 {
		t.Errorf("an object that is not deleted is forgotten: %+v", listing)
	}
}

// TestATerminatingDefinition: the deletion of all objects with their definition says nothing about their blocks.
func TestATerminatingDefinition(t *testing.T) {
	gvr := v1beta1.GroupVersion.WithResource("ipblocks")
	for name, allowed := range map[string]bool{"not allowed": false, "allowed": true} {
		t.Run(name, func(t *testing.T) {
			k := newKeeping(t)
			if err := k.api.Undefine(gvr); err != nil {
				t.Fatal(err)
			}
			if allowed {
				k.api.AllowUndefine(gvr)
			}
			_, err := k.store.List(t.Context())
			if !errors.Is(err, client.ErrTerminating) ||
				!strings.Contains(err.Error(), contract.AllowDeletion+"=true") {
				t.Errorf("the listing ends with %v", err)
			}
			if _, err := k.store.Save(t.Context(), take(t, fresh("b2"), "web")); err == nil {
				t.Error("another block is recorded")
			}
			_, defined := k.api.Definition(gvr)
			if defined == allowed {
				t.Errorf("the definition is there: %v, want %v", defined, !allowed)
			}
			if _, err := k.store.List(t.Context()); allowed && !client.Undefined(err) {
				t.Errorf("after the definition is gone: %v", err)
			}
		})
	}
}

func TestARemovedFinalizerIsWrittenAgain(t *testing.T) {
	k := newKeeping(t)
	k.edit(func(object *v1beta1.IPBlock) { object.Finalizers = nil })
	unprotected := k.list().Records.Unprotected()
	if len(unprotected) != 1 {
		t.Fatalf("the records are %+v, want one without protection", k.list().Records)
	}
	if err := allocation.Protect(t.Context(), k.store.Objects(), unprotected[0]); err != nil ||
		!slices.Contains(k.read().Finalizers, contract.IPBlockFinalizer) || len(k.list().Records.Unprotected()) > 0 {
		t.Errorf("Protect: %v, the object is %v", err, k.read())
	}
}

// TestTheFinalizerIsChecked: nothing is bought for an object from which a webhook takes the finalizer.
func TestTheFinalizerIsChecked(t *testing.T) {
	api := kubefake.NewStore()
	api.Admit = func(changed, _ metav1.Object) { changed.SetFinalizers(nil) }
	store := allocation.NewStore(api.IPBlocks(), nil)
	for range 2 {
		listing, err := store.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		record := allocation.ForService(store.Objects(), v1beta1.DefaultNetwork,
			ipblock.Holder{Namespace: "shop", Name: "web", UID: "u"},
			listing.Records)
		_, err = record.Begin(t.Context(), noon, 29)
		if err == nil || !strings.Contains(err.Error(), "finalizer") || !strings.Contains(err.Error(), "webhook") {
			t.Errorf("the purchase begins: %v", err)
		}
	}
}

// TestAPurchaseIsTakenBackFromADeletedObject: a person deletes it while the API refuses to sell.
func TestAPurchaseIsTakenBackFromADeletedObject(t *testing.T) {
	blocks := kubefake.NewStore().IPBlocks()
	store := allocation.NewStore(blocks, nil)
	record := allocation.ForService(store.Objects(), v1beta1.DefaultNetwork,
		ipblock.Holder{Namespace: "shop", Name: "web", UID: "u"}, nil)
	intent, err := record.Begin(t.Context(), noon, 29)
	if err != nil {
		t.Fatal(err)
	}
	if err := blocks.Delete(t.Context(), v1beta1.ServicePrefix+"u", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := record.TakeBack(t.Context(), intent); err != nil {
		t.Errorf("TakeBack: %v", err)
	}
	if list, err := blocks.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) > 0 {
		t.Errorf("left are %+v, %v", list, err)
	}
}

// TestAReaderChangesNothing: who only looks may not read definitions, and takes no finalizer off.
func TestAReaderChangesNothing(t *testing.T) {
	k := newKeeping(t)
	k.deleted(map[string]string{contract.AllowDeletion: "true"})
	listing, err := allocation.NewReader(onlyLists{k.blocks}).List(t.Context())
	if err != nil || len(listing.Ledgers) != 1 || !listing.Ledgers[0].Deleted || k.read() == nil {
		t.Errorf("the listing is %+v, %v", listing, err)
	}
}

// onlyLists is an API server for a user with no other right.
type onlyLists struct{ allocation.IPBlocks }

func (onlyLists) Definition(context.Context) (metav1.ObjectMeta, error) {
	return metav1.ObjectMeta{}, errors.New("forbidden")
}

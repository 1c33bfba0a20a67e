package reconcile_test

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/client"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/kubefake"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
)

// ipBlocks are the IPBlocks of the cluster as the controller reaches them: it may die before and after each call, and
// fails decides which writes fail.
type ipBlocks struct {
	*client.IPBlocks
	world *world
	fails func() error
}

func (b *ipBlocks) Get(ctx context.Context, name string, o metav1.GetOptions) (*v1beta1.IPBlock, error) {
	b.world.mayCrash()
	return b.IPBlocks.Get(ctx, name, o)
}

func (b *ipBlocks) List(ctx context.Context, o metav1.ListOptions) (*v1beta1.IPBlockList, error) {
	b.world.mayCrash()
	return b.IPBlocks.List(ctx, o)
}

func (b *ipBlocks) Create(ctx context.Context, object *v1beta1.IPBlock, o metav1.CreateOptions) (*v1beta1.IPBlock,
	error) {
	b.world.mayCrash()
	defer b.world.mayCrash()
	return b.IPBlocks.Create(ctx, object, o)
}

func (b *ipBlocks) Update(ctx context.Context, object *v1beta1.IPBlock, o metav1.UpdateOptions) (*v1beta1.IPBlock,
	error) {
	b.world.mayCrash()
	defer b.world.mayCrash()
	return b.IPBlocks.Update(ctx, object, o)
}

func (b *ipBlocks) UpdateStatus(ctx context.Context, object *v1beta1.IPBlock, o metav1.UpdateOptions,
) (*v1beta1.IPBlock, error) {
	b.world.mayCrash()
	defer b.world.mayCrash()
	if b.fails != nil {
		if err := b.fails(); err != nil {
			return nil, err
		}
	}
	return b.IPBlocks.UpdateStatus(ctx, object, o)
}

func (b *ipBlocks) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	b.world.mayCrash()
	defer b.world.mayCrash()
	return b.IPBlocks.Delete(ctx, name, o)
}

// ledgerStore reaches the ledgers as they are stored, past the crashes of the controller.
func (w *world) ledgerStore() *allocation.Store {
	return allocation.NewStore(w.objects.IPBlocks, w.clock.Now)
}

// ipBlock returns the IPBlock of a block; nil when there is none.
func (w *world) ipBlock(id string) *v1beta1.IPBlock {
	object, err := w.objects.IPBlocks.Get(w.ctx, w.objectOf(id), metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return object
}

// editIPBlock changes the status of the IPBlock of a block as a person does.
func (w *world) editIPBlock(id string, change func(*v1beta1.IPBlockStatus)) {
	w.t.Helper()
	if err := kubefake.EditStatus(w.ctx, w.objects.IPBlocks, w.objectOf(id), change); err != nil {
		w.t.Fatal(err)
	}
}

// deleteIPBlock does what the message about an unreadable ledger says, loseIPBlock removes an object at once.
func (w *world) deleteIPBlock(name string) {
	w.t.Helper()
	if err := kubefake.DeleteAllowed(w.ctx, w.objects.IPBlocks, name); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) loseIPBlock(name string) {
	w.t.Helper()
	if err := kubefake.Lose(w.ctx, w.objects.IPBlocks, name); err != nil {
		w.t.Fatal(err)
	}
}

// damageLedger makes the ledger of the block of the pool unreadable, repairLedger readable again.
func damageLedger(w *world) {
	w.editIPBlock(w.blockID(), func(s *v1beta1.IPBlockStatus) {
		s.Location = s.CIDR // which no one reads: a backup
		s.CIDR = ""
	})
}

func repairLedger(w *world, id string) {
	w.editIPBlock(id, func(s *v1beta1.IPBlockStatus) { s.CIDR = s.Location })
}

// objectOf is the name of the object of a block.
func (w *world) objectOf(id string) string {
	w.t.Helper()
	list, err := w.objects.IPBlocks.List(w.ctx, metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, object := range list.Items {
		if object.Spec.BlockID == id {
			return object.Name
		}
	}
	return v1beta1.NamePrefix + id
}

// repairAdvised repairs the object that an event names.
func repairAdvised(w *world, advised []string) {
	object, err := w.objects.IPBlocks.Get(w.ctx, advised[1], metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	repairLedger(w, object.Spec.BlockID)
}

// bringTagged has a person create IPBlocks for the blocks of the account that ofCluster marks.
func (w *world) bringTagged(blocks []pnapsim.BlockSeed) {
	w.t.Helper()
	for _, b := range blocks {
		if b.Tags[contract.TagCluster] == clusterUID && b.Tags[contract.TagUsage] == "" {
			w.bringBlock(givenAs(b.ID), b.ID)
		}
	}
}

// bring has a person create an IPBlock for the brought block, which Services of some namespaces may name; of all if
// none is given.
func (w *world) bring(name string, namespaces ...string) {
	w.t.Helper()
	w.bringBlock(name, broughtID, namespaces...)
}

// ofNodes is the IPBlock of bringForNodes.
const ofNodes = "of-the-nodes"

// bringForNodes has a person create an IPBlock by which the brought block is for the nodes.
func (w *world) bringForNodes() {
	w.t.Helper()
	w.createIPBlock(ofNodes, v1beta1.IPBlockSpec{Source: v1beta1.SourceBrought, Purpose: v1beta1.PurposeNodes,
		BlockID: broughtID})
}

func (w *world) bringBlock(name, id string, namespaces ...string) {
	w.t.Helper()
	w.createIPBlock(name, v1beta1.IPBlockSpec{Source: v1beta1.SourceBrought, Purpose: v1beta1.PurposeShared,
		BlockID: id, AllowedNamespaces: namespaces})
}

func (w *world) createIPBlock(name string, spec v1beta1.IPBlockSpec) {
	w.t.Helper()
	object := &v1beta1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	if _, err := w.objects.IPBlocks.Create(w.ctx, object, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

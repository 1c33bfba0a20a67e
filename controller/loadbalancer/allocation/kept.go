package allocation

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/client"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// kept is IPBlocks whose objects have a finalizer from the start, so that what is known of a block that is paid for is
// not lost by a deletion. Those of brought blocks, which people create, have it while they record addresses: then a
// deletion waits until the block is unassigned and no address is in quarantine.
type kept struct{ IPBlocks }

// Create implements IPBlocks.
func (k kept) Create(ctx context.Context, object *v1beta1.IPBlock, o metav1.CreateOptions) (*v1beta1.IPBlock, error) {
	return withFinalizer(k.IPBlocks.Create(ctx, protect(object), o))
}

// Update implements IPBlocks.
func (k kept) Update(ctx context.Context, object *v1beta1.IPBlock, o metav1.UpdateOptions) (*v1beta1.IPBlock, error) {
	if object.DeletionTimestamp != nil { // the API server refuses a new finalizer now
		return k.IPBlocks.Update(ctx, object, o)
	}
	return withFinalizer(k.IPBlocks.Update(ctx, protect(object), o))
}

// UpdateStatus implements IPBlocks: the finalizer stands before the first address.
func (k kept) UpdateStatus(ctx context.Context, object *v1beta1.IPBlock, o metav1.UpdateOptions) (*v1beta1.IPBlock,
	error) {
	if records(object) && !hasFinalizer(object) && object.DeletionTimestamp == nil {
		protected, err := k.Update(ctx, object, metav1.UpdateOptions{})
		if err != nil {
			return nil, err
		}
		protected.Status = object.Status
		object = protected
	}
	stored, err := k.IPBlocks.UpdateStatus(ctx, object, o)
	if err != nil || stored.Spec.Source != v1beta1.SourceBrought || records(stored) {
		return stored, err
	}
	return k.release(ctx, stored)
}

// Delete implements IPBlocks: the finalizer goes first. An object that is left without one, because the process ended
// then, says the same as before.
func (k kept) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	object, err := k.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if version := o.Preconditions.ResourceVersion; object.ResourceVersion != *version {
		return apierrors.NewConflict(v1beta1.GroupVersion.WithResource("ipblocks").GroupResource(), name, ErrConflict)
	}
	object, err = k.release(ctx, object)
	if err != nil || object.DeletionTimestamp != nil {
		return err
	}
	o.Preconditions = &metav1.Preconditions{UID: &object.UID, ResourceVersion: &object.ResourceVersion}
	return k.IPBlocks.Delete(ctx, name, o)
}

// List implements IPBlocks. The deletion of an object says that its block is to be released once nothing uses it. With
// the annotation that allows it, the object goes at once; and where the definition itself is being deleted, that of the
// objects says nothing.
func (k kept) List(ctx context.Context, o metav1.ListOptions) (*v1beta1.IPBlockList, error) {
	list, err := k.IPBlocks.List(ctx, o)
	if err != nil || !slices.ContainsFunc(list.Items, isTerminating) {
		return list, err
	}
	definition, err := k.Definition(ctx)
	if err != nil {
		return nil, err
	}
	terminating := definition.DeletionTimestamp != nil
	var left []v1beta1.IPBlock
	for _, object := range list.Items {
		allowed := terminating && allowsDeletion(definition) ||
			object.DeletionTimestamp != nil && allowsDeletion(object.ObjectMeta)
		if !allowed || !hasFinalizer(&object) {
			left = append(left, object)
			continue
		}
		klog.FromContext(ctx).Info("Forgetting an IPBlock whose deletion is allowed", "object", object.Name, "block",
			object.Spec.BlockID)
		_, err := k.release(ctx, &object)
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // another look does the same
			return nil, client.Explain("remove the finalizer of IPBlock "+object.Name, err)
		}
	}
	if terminating {
		return nil, client.ErrTerminating
	}
	list.Items = left
	return list, nil
}

// release takes the finalizer off an object.
func (k kept) release(ctx context.Context, object *v1beta1.IPBlock) (*v1beta1.IPBlock, error) {
	if !hasFinalizer(object) {
		return object, nil
	}
	object = object.DeepCopy()
	object.Finalizers = slices.DeleteFunc(object.Finalizers, func(f string) bool {
		return f == contract.IPBlockFinalizer
	})
	return k.IPBlocks.Update(ctx, object, metav1.UpdateOptions{})
}

// records reports whether an object says anything of addresses.
func records(object *v1beta1.IPBlock) bool { return object.Status.Allocations != nil }

func isTerminating(object v1beta1.IPBlock) bool {
	return object.DeletionTimestamp != nil && hasFinalizer(&object)
}

func allowsDeletion(object metav1.ObjectMeta) bool {
	return object.Annotations[contract.AllowDeletion] == "true"
}

func hasFinalizer(object *v1beta1.IPBlock) bool {
	return slices.Contains(object.Finalizers, contract.IPBlockFinalizer)
}

// protect adds the finalizer.
func protect(object *v1beta1.IPBlock) *v1beta1.IPBlock {
	if hasFinalizer(object) {
		return object
	}
	object = object.DeepCopy()
	object.Finalizers = append(object.Finalizers, contract.IPBlockFinalizer)
	return object
}

// withFinalizer checks what the API server stored: a webhook may have taken the finalizer off.
func withFinalizer(stored *v1beta1.IPBlock, err error) (*v1beta1.IPBlock, error) {
	if err == nil && !hasFinalizer(stored) {
		return nil, client.NotKept("finalizer", stored.Name)
	}
	return stored, err
}

package allocation

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/client"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
)

// Preview is IPBlocks for a dry run: where the API server does not know the kind yet, as before a migration, there are
// none; and one that would be created is answered as if it were there.
type Preview struct{ IPBlocks }

// previewed is the version of an object that would be created.
const previewed = "preview"

// List implements IPBlocks.
func (p Preview) List(ctx context.Context, o metav1.ListOptions) (*v1beta1.IPBlockList, error) {
	all, err := p.IPBlocks.List(ctx, o)
	if client.Undefined(err) {
		return &v1beta1.IPBlockList{}, nil
	}
	return all, err
}

// Get implements IPBlocks.
func (p Preview) Get(ctx context.Context, name string, o metav1.GetOptions) (*v1beta1.IPBlock, error) {
	object, err := p.IPBlocks.Get(ctx, name, o)
	if client.Undefined(err) {
		return nil, apierrors.NewNotFound(v1beta1.GroupVersion.WithResource("ipblocks").GroupResource(), name)
	}
	return object, err
}

// Create implements IPBlocks: it asks nothing of the API server, which would forget the object.
func (p Preview) Create(_ context.Context, object *v1beta1.IPBlock, _ metav1.CreateOptions) (*v1beta1.IPBlock, error) {
	created := object.DeepCopy()
	created.ResourceVersion = previewed
	return created, nil
}

// UpdateStatus implements IPBlocks.
func (p Preview) UpdateStatus(ctx context.Context, object *v1beta1.IPBlock, o metav1.UpdateOptions) (*v1beta1.IPBlock,
	error) {
	if object.ResourceVersion == previewed {
		return object, nil
	}
	return p.IPBlocks.UpdateStatus(ctx, object, o)
}

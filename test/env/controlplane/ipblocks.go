package controlplane

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/client"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// ForgetIPBlock removes an IPBlock of an account that ends with a test: without its finalizers, past the policy for
// objects with addresses.
func ForgetIPBlock(ctx context.Context, blocks *client.IPBlocks, name string) error {
	_, err := blocks.Patch(ctx, name, types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null,"annotations":{"`+contract.AllowDeletion+`":"true"}}}`),
		metav1.PatchOptions{})
	if err == nil {
		err = blocks.Delete(ctx, name, metav1.DeleteOptions{})
	}
	if apierrors.IsNotFound(err) { // it was being deleted already
		return nil
	}
	return err
}

package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// errOutdated says that the Service changed since it was read. The next look sees the change.
var errOutdated = errors.New("the Service changed meanwhile")

// current reads the Service as it is now; nil when it is gone or another one has taken its name.
func (b *Balancer) current(ctx context.Context, service *corev1.Service) (*corev1.Service, error) {
	live, err := b.byName(ctx, service)
	if err != nil || live == nil || live.UID != service.UID {
		return nil, err
	}
	return live, nil
}

// byName reads whichever Service bears the name now; nil when none does.
func (b *Balancer) byName(ctx context.Context, service *corev1.Service) (*corev1.Service, error) {
	live, err := b.config.Kube.CoreV1().Services(service.Namespace).Get(ctx, service.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Service %s/%s: %w", service.Namespace, service.Name, err)
	}
	return live, nil
}

// patch is a JSON merge patch (RFC 7386) of a Service: a nil value removes a field.
type patch struct {
	// Exactly demands that the Service is still the version that was read: compare-and-swap.
	exactly     bool
	annotations map[string]any
	spec        map[string]any
}

func (p patch) empty() bool { return len(p.annotations) == 0 && len(p.spec) == 0 }

// apply patches the Service and returns the new version. errOutdated when the compare-and-swap failed
// or the Service is gone.
func (b *Balancer) patchService(ctx context.Context, service *corev1.Service, p patch) (*corev1.Service, error) {
	if p.empty() {
		return service, nil
	}
	metadata := map[string]any{"annotations": p.annotations, "uid": service.UID}
	if p.exactly {
		metadata["resourceVersion"] = service.ResourceVersion
	}
	body := map[string]any{"metadata": metadata}
	if len(p.spec) > 0 {
		body["spec"] = p.spec
	}
	return b.send(ctx, service, types.MergePatchType, body)
}

func (b *Balancer) send(ctx context.Context, service *corev1.Service, kind types.PatchType, body map[string]any,
	subresources ...string) (*corev1.Service, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode a patch of Service %s/%s: %w", service.Namespace, service.Name, err)
	}
	updated, err := b.config.Kube.CoreV1().Services(service.Namespace).Patch(ctx, service.Name, kind, raw,
		metav1.PatchOptions{}, subresources...)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil, fmt.Errorf("patch Service %s/%s: %w (%w)", service.Namespace, service.Name, errOutdated, err)
	case err != nil:
		return nil, fmt.Errorf("patch Service %s/%s: %w", service.Namespace, service.Name, err)
	default:
		return updated, nil
	}
}

// differing keeps of wanted what the annotations do not say already; nil stands for an absent annotation.
func differing(have map[string]string, wanted map[string]any) map[string]any {
	changes := map[string]any{}
	for name, value := range wanted {
		old, present := have[name]
		if (value == nil && present) || (value != nil && (!present || old != value)) {
			changes[name] = value
		}
	}
	return changes
}

package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// FieldManager is the name under which the API server records what the controller writes on Services.
const FieldManager = "phoenixnap-cloud-controller-manager"

// ErrOutdated says that the Service changed since it was read, or is gone. The next sync sees the change.
var ErrOutdated = errors.New("the Service changed meanwhile")

// Draft is a Service with the changes of one sync. It is not safe for concurrent use.
type Draft struct {
	// Service is the Service as it is to be: annotations, finalizers, status and spec.loadBalancerIP may be changed.
	// Save replaces its content by the answer of the API server. Where the Service is gone, it is the version that was
	// known last, and changes of it are lost.
	Service *corev1.Service
	// Successor is a Service that has taken the name of this one, which is gone; nil when Read found none.
	Successor *corev1.Service
	// Gone is true when the API server has no Service of this UID any more, as far as it is known.
	Gone bool

	kube       kubernetes.Interface
	stored     *corev1.Service
	saved      []func()
	superseded []string
}

// NewDraft returns a draft of a Service as it was read. It makes no calls, and the Service itself is not changed.
func NewDraft(kube kubernetes.Interface, service *corev1.Service) *Draft {
	return &Draft{Service: service.DeepCopy(), stored: service.DeepCopy(), kube: kube}
}

// Read reads the Service again. Changes that were not saved are lost.
func (d *Draft) Read(ctx context.Context) error {
	d.saved = nil
	live, err := d.kube.CoreV1().Services(d.Service.Namespace).Get(ctx, d.Service.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		d.Gone = true
		return nil
	case err != nil:
		return fmt.Errorf("read Service %s/%s: %w", d.Service.Namespace, d.Service.Name, err)
	case live.UID != d.Service.UID:
		d.Gone = true
		d.Successor = live
		return nil
	}
	d.keep(live)
	return nil
}

// Superseded are the resource versions of the Service that are known to be old: a copy with one of them lacks what the
// draft has read or written since.
func (d *Draft) Superseded() []string { return d.superseded }

// keep takes over a version of the API server.
func (d *Draft) keep(live *corev1.Service) {
	d.supersede(d.stored, live)
	d.stored = live
	live.DeepCopyInto(d.Service)
}

func (d *Draft) supersede(old, live *corev1.Service) {
	if old.ResourceVersion != live.ResourceVersion {
		d.superseded = append(d.superseded, old.ResourceVersion)
	}
}

// Set sets annotations; a nil value removes one. It reports whether any was different.
func (d *Draft) Set(annotations map[string]any) (changed bool) {
	differing := differing(d.Service, annotations)
	for name, value := range differing {
		text, present := value.(string)
		if !present {
			delete(d.Service.Annotations, name)
			continue
		}
		metav1.SetMetaDataAnnotation(&d.Service.ObjectMeta, name, text)
	}
	return len(differing) > 0
}

// differing returns those of the annotations that a Service does not have so; nil stands for an absent one.
func differing(service *corev1.Service, wanted map[string]any) map[string]any {
	differing := map[string]any{}
	for name, value := range wanted {
		old, present := service.Annotations[name]
		if (value == nil && present) || (value != nil && (!present || old != value)) {
			differing[name] = value
		}
	}
	return differing
}

// AfterSave has f called once the changes up to now are written. It is not called when that fails or when there are
// none, because the next sync makes the same changes again.
func (d *Draft) AfterSave(f func()) { d.saved = append(d.saved, f) }

// Save writes what was changed: one request, and one more if the spec is among it. It is a compare-and-swap, because
// each change was decided on the version that was read. Of a Service that is gone it writes nothing. Changes that could
// not be written are lost, so that no later write makes them.
//
// Errors: ErrOutdated (wrapped) when the Service changed since, or is gone; anything else is a failure of the API
// server.
func (d *Draft) Save(ctx context.Context) error {
	saved := d.saved
	d.saved = nil
	metadata := metadataPatch(d.stored, d.Service)
	status := statusPatch(d.stored, d.Service)
	respec := d.stored.Spec.LoadBalancerIP != d.Service.Spec.LoadBalancerIP
	if d.Gone || !respec && len(metadata) == 0 && len(status) == 0 {
		return nil
	}
	live := d.stored
	var err error
	if respec { // the status subresource does not write the spec, but the metadata
		spec := map[string]any{"loadBalancerIP": nil}
		if d.Service.Spec.LoadBalancerIP != "" {
			spec["loadBalancerIP"] = d.Service.Spec.LoadBalancerIP
		}
		live, err = d.send(ctx, live, metadata, map[string]any{"spec": spec})
		metadata = map[string]any{}
	}
	if err == nil && len(metadata)+len(status) > 0 {
		before := live
		if live, err = d.send(ctx, before, metadata, map[string]any{"status": status}, "status"); err == nil {
			d.supersede(before, live)
		}
	}
	if err != nil {
		d.keep(d.stored)
		return err
	}
	d.keep(live)
	for _, f := range saved {
		f()
	}
	return nil
}

// send patches exactly that version of exactly this Service.
func (d *Draft) send(ctx context.Context, version *corev1.Service, metadata, patch map[string]any,
	subresources ...string) (*corev1.Service, error) {
	patch["metadata"] = metadata
	metadata["uid"] = version.UID
	metadata["resourceVersion"] = version.ResourceVersion
	name := version.Namespace + "/" + version.Name
	raw, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encode a patch of Service %s: %w", name, err)
	}
	live, err := d.kube.CoreV1().Services(version.Namespace).Patch(ctx, version.Name, types.StrategicMergePatchType,
		raw, metav1.PatchOptions{FieldManager: FieldManager}, subresources...)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil, fmt.Errorf("patch Service %s: %w (%w)", name, ErrOutdated, err)
	case err != nil:
		return nil, fmt.Errorf("patch Service %s: %w", name, err)
	default:
		return live, nil
	}
}

// metadataPatch is what of the annotations and finalizers differs.
func metadataPatch(before, after *corev1.Service) map[string]any {
	patch := map[string]any{}
	annotations := map[string]any{}
	for name := range before.Annotations {
		annotations[name] = nil
	}
	for name, value := range after.Annotations {
		annotations[name] = value
	}
	if differing := differing(before, annotations); len(differing) > 0 {
		patch["annotations"] = differing
	}
	if added := missing(after.Finalizers, before.Finalizers); len(added) > 0 {
		patch["finalizers"] = added
	}
	if removed := missing(before.Finalizers, after.Finalizers); len(removed) > 0 {
		patch["$deleteFromPrimitiveList/finalizers"] = removed
	}
	return patch
}

// missing are those of all that some lacks.
func missing(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(one string) bool { return slices.Contains(some, one) })
}

// statusPatch is what of the ingress and the conditions differs.
func statusPatch(before, after *corev1.Service) map[string]any {
	patch := map[string]any{}
	if !equality.Semantic.DeepEqual(before.Status.LoadBalancer.Ingress, after.Status.LoadBalancer.Ingress) {
		ingress := map[string]any{"ingress": nil}
		if len(after.Status.LoadBalancer.Ingress) > 0 {
			ingress["ingress"] = after.Status.LoadBalancer.Ingress
		}
		patch["loadBalancer"] = ingress
	}
	var conditions []any
	for _, condition := range after.Status.Conditions {
		old := meta.FindStatusCondition(before.Status.Conditions, condition.Type)
		if old == nil || !equality.Semantic.DeepEqual(*old, condition) {
			conditions = append(conditions, condition)
		}
	}
	for _, condition := range before.Status.Conditions {
		if meta.FindStatusCondition(after.Status.Conditions, condition.Type) == nil {
			conditions = append(conditions, map[string]string{"$patch": "delete", "type": condition.Type})
		}
	}
	if len(conditions) > 0 {
		patch["conditions"] = conditions
	}
	return patch
}

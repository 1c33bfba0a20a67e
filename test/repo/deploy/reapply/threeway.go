package reapply

import (
	"encoding/json"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
)

// predicted is what Argo CD expects of an object: the live one with the patch that leads from what was last applied to
// the manifest, which is the same here. Argo CD fills in the defaults that it knows first; this does not, for a
// policy of a newer API has others.
func predicted(t *testing.T, object *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	live, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	applied := []byte(object.GetAnnotations()[corev1.LastAppliedConfigAnnotation])
	merged, err := merge(object, applied, applied, live)
	if err != nil {
		t.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
	}
	result := &unstructured.Unstructured{}
	if err := result.UnmarshalJSON(merged); err != nil {
		t.Fatal(err)
	}
	return result
}

// merge makes the patch and applies it.
func merge(object *unstructured.Unstructured, applied, wanted, live []byte) ([]byte, error) {
	versioned, err := scheme.Scheme.New(object.GroupVersionKind())
	if err != nil { // the kind of a custom resource
		patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch(applied, wanted, live)
		if err != nil {
			return nil, err
		}
		return jsonpatch.MergePatch(live, patch)
	}
	meta, err := strategicpatch.NewPatchMetaFromStruct(versioned)
	if err != nil {
		return nil, err
	}
	patch, err := strategicpatch.CreateThreeWayMergePatch(applied, wanted, live, meta, true)
	if err != nil {
		return nil, err
	}
	return strategicpatch.StrategicMergePatch(live, patch, versioned)
}

package kubefake

import (
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
)

// known is the scheme of all kinds that clients know: those of Kubernetes and those of this project.
var known = sync.OnceValue(func() *runtime.Scheme {
	all := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1beta1.AddToScheme} {
		if err := add(all); err != nil {
			panic(err) // two kinds have the same name
		}
	}
	return all
})

// kinds are the kinds of the resources that clients know.
var kinds = sync.OnceValue(func() map[schema.GroupVersionResource]schema.GroupVersionKind {
	all := map[schema.GroupVersionResource]schema.GroupVersionKind{}
	for kind := range known().AllKnownTypes() {
		if object, err := known().New(kind); err == nil {
			if _, err := meta.Accessor(object); err == nil {
				plural, _ := meta.UnsafeGuessKindToResource(kind)
				all[plural] = kind
			}
		}
	}
	return all
})

// request is what a client asks of the Store.
type request struct {
	key         // name is empty for all objects of a resource
	kind        schema.GroupVersionKind
	subresource string
	raw         *http.Request
}

// parse reads a request. The paths are those of the API concepts of Kubernetes:
// https://kubernetes.io/docs/reference/using-api/api-concepts/
func parse(raw *http.Request) (request, error) {
	parts := strings.Split(strings.Trim(raw.URL.Path, "/"), "/")
	r := request{raw: raw}
	switch {
	case len(parts) > 2 && parts[0] == "api":
		r.gvr.Version = parts[1]
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		r.gvr.Group = parts[1]
		r.gvr.Version = parts[2]
		parts = parts[3:]
	default:
		return r, notFound(raw)
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		r.namespace = parts[1]
		parts = parts[2:]
	}
	r.gvr.Resource = parts[0]
	if len(parts) > 1 {
		r.name = parts[1]
	}
	if len(parts) > 2 {
		r.subresource = parts[2]
	}
	kind, known := kinds()[r.gvr]
	r.kind = kind
	if !known || len(parts) > 3 || r.subresource != "" && (r.subresource != "status" || !r.hasStatus()) {
		return r, notFound(raw)
	}
	return r, nil
}

func notFound(raw *http.Request) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, raw.Method, schema.GroupResource{}, raw.URL.Path,
		"the server could not find the requested resource", 0, true)
}

func (r request) hasStatus() bool {
	object, err := known().New(r.kind)
	return err == nil && statusOf(object).IsValid()
}

// statusOf is the field Status of an object, or the zero Value.
func statusOf(object runtime.Object) reflect.Value {
	return reflect.ValueOf(object).Elem().FieldByName("Status")
}

// body decodes what was sent.
func (r request) body() (runtime.Object, error) {
	sent, err := known().New(r.kind)
	if err != nil {
		return nil, err
	}
	return sent, r.decode(sent)
}

func (r request) decode(into any) error {
	raw, err := r.read()
	if err != nil || len(raw) == 0 {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

func (r request) read() ([]byte, error) {
	if r.raw.Body == nil {
		return nil, nil
	}
	return io.ReadAll(r.raw.Body)
}

// serve carries a request out and returns the object of the answer.
func (s *Store) serve(r request) (runtime.Object, error) {
	switch {
	case r.raw.Method == http.MethodGet && r.name == "":
		return s.list(r)
	case r.raw.Method == http.MethodGet:
		return s.Get(r.gvr, r.namespace, r.name)
	case r.raw.Method == http.MethodPost && r.name == "":
		return s.post(r)
	case r.raw.Method == http.MethodPut:
		return s.change(r.key, func(stored runtime.Object) (runtime.Object, error) {
			sent, err := r.body()
			if err != nil {
				return nil, err
			}
			return r.part(sent, stored)
		})
	case r.raw.Method == http.MethodPatch:
		return s.change(r.key, r.patched)
	case r.raw.Method == http.MethodDelete:
		options := metav1.DeleteOptions{}
		if err := r.decode(&options); err != nil {
			return nil, err
		}
		return &metav1.Status{Status: metav1.StatusSuccess}, s.delete(r, options)
	default:
		return nil, apierrors.NewMethodNotSupported(r.gvr.GroupResource(), r.raw.Method)
	}
}

// delete deletes one object, or all of a list.
func (s *Store) delete(r request, options metav1.DeleteOptions) error {
	if r.name != "" {
		return s.Delete(r.gvr, r.namespace, r.name, options)
	}
	listed, err := s.list(r)
	if err != nil {
		return err
	}
	return meta.EachListItem(listed, func(item runtime.Object) error {
		each, err := meta.Accessor(item)
		if err != nil {
			return err
		}
		return s.Delete(r.gvr, each.GetNamespace(), each.GetName(), options)
	})
}

func (s *Store) post(r request) (runtime.Object, error) {
	sent, err := r.body()
	if err != nil {
		return nil, err
	}
	made, err := meta.Accessor(sent)
	if err != nil {
		return nil, err
	}
	made.SetNamespace(r.namespace)
	if status := statusOf(sent); status.IsValid() && r.gvr.Resource != "nodes" { // kubelets register with a status
		status.SetZero()
	}
	return s.create(r.gvr, sent, r.namespace)
}

// list returns the objects of a resource with the version that they have together.
func (s *Store) list(r request) (runtime.Object, error) {
	chosen, err := selection(r)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	listed, err := s.List(r.gvr, r.kind, r.namespace)
	if err != nil {
		return nil, err
	}
	version, err := meta.ListAccessor(listed)
	if err != nil {
		return nil, err
	}
	version.SetResourceVersion(strconv.FormatInt(s.version, 10))
	all, err := meta.ExtractList(listed)
	if err != nil {
		return nil, err
	}
	kept := []runtime.Object{}
	for _, object := range all {
		if chosen(object) {
			kept = append(kept, object)
		}
	}
	listed.GetObjectKind().SetGroupVersionKind(r.kind.GroupVersion().WithKind(r.kind.Kind + "List"))
	return listed, meta.SetList(listed, kept)
}

// part takes from what was sent what a request may change: all but the status, or the status and metadata.
func (r request) part(sent, stored runtime.Object) (runtime.Object, error) {
	from := reflect.ValueOf(stored).Elem()
	to := reflect.ValueOf(sent).Elem()
	if from.Type() != to.Type() {
		return nil, fmt.Errorf("%s is sent in the place of %s", to.Type(), from.Type())
	}
	for i := range to.NumField() {
		name := to.Type().Field(i).Name
		isStatus := name == "Status"
		if name != "TypeMeta" && name != "ObjectMeta" && isStatus != (r.subresource == "status") &&
			(isStatus || r.subresource != "") {
			to.Field(i).Set(from.Field(i))
		}
	}
	return sent, nil
}

// patched is an object after a patch, which cannot name another UID.
func (r request) patched(stored runtime.Object) (runtime.Object, error) {
	patched, err := r.patch(stored)
	if err != nil {
		return nil, err
	}
	after, before, err := metadataOf(patched, stored)
	if err != nil {
		return nil, err
	}
	if after.GetUID() != before.GetUID() && after.GetResourceVersion() == before.GetResourceVersion() {
		return nil, apierrors.NewInvalid(r.kind.GroupKind(), r.name, field.ErrorList{field.Invalid(
			field.NewPath("metadata", "uid"), after.GetUID(), "field is immutable")})
	}
	return r.part(patched, stored)
}

// patch applies a patch to what is stored.
func (r request) patch(stored runtime.Object) (runtime.Object, error) {
	sent, err := r.read()
	if err != nil {
		return nil, err
	}
	before, err := json.Marshal(stored)
	if err != nil {
		return nil, err
	}
	patched, err := known().New(r.kind)
	if err != nil {
		return nil, err
	}
	var after []byte
	switch kind := types.PatchType(r.raw.Header.Get("Content-Type")); kind {
	case types.JSONPatchType:
		decoded, decodeErr := jsonpatch.DecodePatch(sent)
		if decodeErr != nil {
			return nil, apierrors.NewBadRequest(decodeErr.Error())
		}
		after, err = decoded.Apply(before)
	case types.MergePatchType:
		after, err = jsonpatch.MergePatch(before, sent)
	case types.StrategicMergePatchType:
		after, err = strategicpatch.StrategicMergePatch(before, sent, patched)
	default:
		return nil, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, r.raw.Method,
			r.gvr.GroupResource(), r.name, fmt.Sprintf("patches of type %q are not served", kind), 0, true)
	}
	if err != nil {
		return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, r.raw.Method,
			r.gvr.GroupResource(), r.name, err.Error(), 0, true)
	}
	return patched, json.Unmarshal(after, patched)
}

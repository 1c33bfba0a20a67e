package controlplane

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools/subprocess"
)

// fieldManager owns the fields that Apply sets, as with kubectl apply --server-side.
const fieldManager = "kubectl"

// Manifest is YAML or JSON with any number of objects.
type Manifest struct {
	// Name is where it comes from, for errors: a file or directory.
	Name string
	// Data is the text.
	Data []byte
}

// Apply applies manifests as a cluster administrator. See the function Apply.
func (c *ControlPlane) Apply(ctx context.Context, manifests ...Manifest) error {
	return Apply(ctx, c.admin, manifests...)
}

// ApplyFiles reads (see Read) and applies files and directories as a cluster administrator.
func (c *ControlPlane) ApplyFiles(ctx context.Context, paths ...string) error {
	manifests, err := Read(ctx, paths...)
	if err != nil {
		return err
	}
	return c.Apply(ctx, manifests...)
}

// applyFromRoot applies files and directories of the source tree.
func (c *ControlPlane) applyFromRoot(ctx context.Context, paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	root, err := tools.ModuleRoot()
	if err != nil {
		return err
	}
	var absolute []string
	for _, path := range paths {
		absolute = append(absolute, filepath.Join(root, path))
	}
	return c.ApplyFiles(ctx, absolute...)
}

// Apply applies manifests by server-side apply with strict field validation, object by object in their order, as
// kubectl apply --server-side --force-conflicts does. It continues after an error; the errors name manifest and
// object. A namespaced object that names no namespace goes to "default".
func Apply(ctx context.Context, config *rest.Config, manifests ...Manifest) error {
	a, err := newApplier(config)
	if err != nil {
		return err
	}
	var errs []error
	for _, manifest := range manifests {
		objects, err := decode(manifest.Data)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", manifest.Name, err))
			continue
		}
		for _, object := range objects {
			if err := a.apply(ctx, object); err != nil {
				errs = append(errs, fmt.Errorf("%s: apply %s %s: %w", manifest.Name, object.GetKind(), keyOf(object),
					err))
			}
		}
	}
	return errors.Join(errs...)
}

// applier applies objects of any kind that the server knows.
type applier struct {
	client dynamic.Interface
	mapper meta.RESTMapper
}

func newApplier(config *rest.Config) (*applier, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	return &applier{client: client, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(kinds))},
		nil
}

func (a *applier) apply(ctx context.Context, object *unstructured.Unstructured) error {
	if object.GetName() == "" {
		return errors.New("it has no metadata.name")
	}
	kind := object.GroupVersionKind()
	mapping, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	content, err := json.Marshal(object)
	if err != nil {
		return err
	}
	force := true
	options := metav1.PatchOptions{FieldManager: fieldManager, Force: &force,
		FieldValidation: metav1.FieldValidationStrict}
	_, err = a.resource(mapping, object.GetNamespace()).Patch(ctx, object.GetName(), types.ApplyPatchType, content,
		options)
	return err
}

func (a *applier) resource(mapping *meta.RESTMapping, namespace string) dynamic.ResourceInterface {
	resource := a.client.Resource(mapping.Resource)
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return resource
	}
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return resource.Namespace(namespace)
}

// keyOf is how kubectl names an object: namespace/name, or only the name.
func keyOf(object *unstructured.Unstructured) string {
	if object.GetNamespace() == "" {
		return object.GetName()
	}
	return object.GetNamespace() + "/" + object.GetName()
}

// decode splits a manifest into objects. Lists are taken apart, documents without content are left out.
func decode(manifest []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifest)))
	for number := 1; ; number++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
		found, err := decodeDocument(document)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
		objects = append(objects, found...)
	}
}

func decodeDocument(document []byte) ([]*unstructured.Unstructured, error) {
	content, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, err
	}
	if string(content) == "null" {
		return nil, nil
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(content); err != nil {
		return nil, err
	}
	if !object.IsList() {
		return []*unstructured.Unstructured{object}, nil
	}
	list, err := object.ToList()
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for i := range list.Items {
		objects = append(objects, &list.Items[i])
	}
	return objects, nil
}

// Read reads manifests. A path is a file, a directory with a kustomization, which kubectl renders, or a
// directory whose YAML and JSON files are taken in the order of their names, as kubectl apply does.
func Read(ctx context.Context, paths ...string) ([]Manifest, error) {
	var manifests []Manifest
	for _, path := range paths {
		read, err := readPath(ctx, path)
		if err != nil {
			return nil, fmt.Errorf("read the manifests %s: %w", path, err)
		}
		manifests = append(manifests, read...)
	}
	return manifests, nil
}

func readPath(ctx context.Context, path string) ([]Manifest, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.IsDir():
		return readFiles(path)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(entries, isKustomization) {
		return render(ctx, path)
	}
	var files []string
	for _, entry := range entries {
		if !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(entry.Name())) {
			files = append(files, filepath.Join(path, entry.Name()))
		}
	}
	return readFiles(files...)
}

func readFiles(paths ...string) ([]Manifest, error) {
	var manifests []Manifest
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		manifests = append(manifests, Manifest{Name: path, Data: data})
	}
	return manifests, nil
}

// isKustomization reports whether a file makes its directory one for kustomize.
func isKustomization(entry os.DirEntry) bool {
	return slices.Contains([]string{"kustomization.yaml", "kustomization.yml", "Kustomization"}, entry.Name())
}

// render has kubectl build a kustomization.
func render(ctx context.Context, dir string) ([]Manifest, error) {
	kubectl, err := tools.Binary(ctx, "kubectl")
	if err != nil {
		return nil, err
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, kubectl, "kustomize", dir)
	cmd.Stdout = &stdout
	cmd.Stderr = &stderr
	if err := subprocess.Run(cmd); err != nil {
		return nil, fmt.Errorf("kubectl kustomize: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return []Manifest{{Name: dir, Data: stdout.Bytes()}}, nil
}

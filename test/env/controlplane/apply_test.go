//go:build linux

package controlplane

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDecode(t *testing.T) {
	for name, tc := range map[string]struct {
		manifest string
		want     []string
		err      string
	}{
		"two documents": {
			manifest: "# comment\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: a}}\n---\n\n---\n# only a " +
				"comment\n---\napiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: a}\n",
			want: []string{"Namespace a", "Service a/s"},
		},
		"a list": {
			manifest: "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Node, metadata: {name: first}}, " +
				"{apiVersion: v1, kind: Node, metadata: {name: second}}]}",
			want: []string{"Node first", "Node second"},
		},
		"json":  {manifest: `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}`, want: []string{"Node n"}},
		"empty": {manifest: ""},
		"no kind": {manifest: "---\n{apiVersion: v1, kind: Node, metadata: {name: n}}\n---\n{apiVersion: v1}",
			err: "document 2"},
		"key twice": {manifest: "apiVersion: v1\nkind: Node\nkind: Pod\n", err: "already set"},
		"no yaml":   {manifest: "a: b: c", err: "document 1"},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := decode([]byte(tc.manifest))
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("decode() = %v, want an error with %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, object := range objects {
				got = append(got, object.GetKind()+" "+keyOf(object))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
		})
	}
}

func TestApplyFilesTwiceAndChanged(t *testing.T) {
	ctx := t.Context()
	file := filepath.Join(t.TempDir(), "config.yaml")
	client := clientOf(t, cp.Config()).CoreV1().ConfigMaps(metav1.NamespaceDefault)
	for _, value := range []string{"one", "one", "two"} {
		writeFile(t, file, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: applied}\ndata: {key: "+value+"}\n")
		if err := cp.ApplyFiles(ctx, file); err != nil {
			t.Fatal(err)
		}
		applied, err := client.Get(ctx, "applied", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]string{"key": value}, applied.Data); diff != "" {
			t.Errorf("data (-want +got):\n%s", diff)
		}
	}
}

// TestApplyNewKind needs the list of kinds to be asked again after a definition was applied.
func TestApplyNewKind(t *testing.T) {
	ctx := t.Context()
	definition := Manifest{Name: "definition", Data: []byte(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.test.example}
spec:
  group: test.example
  scope: Namespaced
  names: {kind: Thing, plural: things}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`)}
	thing := Manifest{Name: "thing", Data: []byte("{apiVersion: test.example/v1, kind: Thing, metadata: {name: t}}")}
	if err := cp.Apply(ctx, definition); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return cp.Apply(ctx, thing) })
}

func TestApplyNamesFileAndObject(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "a.yaml"), "{apiVersion: v1, kind: ConfigMap, metadata: {name: typo}, dat: {}}\n")
	writeFile(t, filepath.Join(dir, "b.yaml"),
		"{apiVersion: v1, kind: Unheard, metadata: {name: u}}\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {}}\n")
	writeFile(t, filepath.Join(dir, "c.yaml"), "{apiVersion: v1, kind: ConfigMap, metadata: {name: fine}}\n")
	err := cp.ApplyFiles(ctx, dir)
	if err == nil {
		t.Fatal("ApplyFiles() = nil, want errors")
	}
	for _, want := range []string{
		`a.yaml: apply ConfigMap typo`, `.dat`,
		`b.yaml: apply Unheard u`, `no metadata.name`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("ApplyFiles() = %v\nwant it to contain %q", err, want)
		}
	}
	if _, err := clientOf(t, cp.Config()).CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(ctx, "fine",
		metav1.GetOptions{}); err != nil {
		t.Errorf("the object after the bad ones was not applied: %v", err)
	}
}

func TestApplyAsAUserWithoutRights(t *testing.T) {
	manifest := Manifest{Name: "secret",
		Data: []byte("{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: kube-system}}")}
	if err := Apply(t.Context(), mustUser(t, "mallory"), manifest); err == nil ||
		!strings.Contains(err.Error(), "forbidden") {
		t.Errorf("Apply() = %v, want it forbidden", err)
	}
}

func TestReadKustomization(t *testing.T) {
	base := t.TempDir()
	overlay := t.TempDir()
	writeFile(t, filepath.Join(base, "kustomization.yaml"),
		"resources: [config.yaml]\nconfigMapGenerator: [{name: generated, literals: [a=b]}]\n")
	writeFile(t, filepath.Join(base, "config.yaml"), "{apiVersion: v1, kind: ConfigMap, metadata: {name: plain}}\n")
	relative, err := filepath.Rel(overlay, base)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(overlay, "kustomization.yaml"), "namePrefix: over-\nresources: ["+relative+"]\n")
	if err := cp.ApplyFiles(t.Context(), overlay); err != nil {
		t.Fatal(err)
	}
	list, err := clientOf(t, cp.Config()).CoreV1().ConfigMaps(metav1.NamespaceDefault).List(t.Context(),
		metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{"over-plain", "over-generated-"} {
		if !containsPrefix(list.Items, prefix) {
			t.Errorf("no ConfigMap begins with %s", prefix)
		}
	}
}

func TestReadMissing(t *testing.T) {
	if _, err := Read(t.Context(), "/nonexistent/manifests"); err == nil ||
		!strings.Contains(err.Error(), "/nonexistent/manifests") {
		t.Errorf("Read() = %v, want an error that names the path", err)
	}
}

// TestForTest starts and stops a control plane as a test of another package does.
func TestForTest(t *testing.T) {
	var dir string
	t.Run("inner", func(t *testing.T) {
		own := ForTest(t)
		dir = own.dir.path
		_, err := clientOf(t, own.Config()).CoreV1().ServiceAccounts("kube-system").Get(t.Context(), "absent",
			metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("get an absent ServiceAccount: %v, want NotFound", err)
		}
	})
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s outlives the test", dir)
	}
}

func containsPrefix(configs []corev1.ConfigMap, prefix string) bool {
	for i := range configs {
		if strings.HasPrefix(configs[i].Name, prefix) {
			return true
		}
	}
	return false
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

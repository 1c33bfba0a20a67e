package docs

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/config"
)

// TestExamplesOfTheSecretAreAccepted gives every secret that a page shows to the controller's own reader: the file
// itself, or what a Secret holds.
//
//proves:known-bugs/broken-examples
func TestExamplesOfTheSecretAreAccepted(t *testing.T) {
	found := 0
	for _, b := range blocks(t) {
		if !strings.Contains(b.text, "clientSecret") || b.language != "json" && b.language != "yaml" {
			continue
		}
		found++
		content := b.text
		if b.language == "yaml" {
			var manifest struct{ StringData map[string]string }
			if err := yaml.Unmarshal([]byte(b.text), &manifest); err != nil {
				t.Errorf("%s: %v", b.page, err)
			}
			content = manifest.StringData["cloud-sa.json"]
		}
		path := filepath.Join(t.TempDir(), "cloud-sa.json")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := config.Load(path, nil, func(string) string { return "" }); err != nil {
			t.Errorf("%s: %v\n%s", b.page, err, b.text)
		}
	}
	if found < 2 {
		t.Errorf("only %d pages show a secret; the pattern is out of date", found)
	}
}

// TestJSONOfThePagesIsJSON: users copy it.
func TestJSONOfThePagesIsJSON(t *testing.T) {
	found := 0
	for _, b := range blocks(t) {
		if b.language == "json" {
			found++
			if !json.Valid([]byte(b.text)) {
				t.Errorf("%s: no JSON:\n%s", b.page, b.text)
			}
		}
	}
	if found < 2 {
		t.Errorf("only %d blocks of JSON found", found)
	}
}

// TestManifestsAreStrict: a key that stands twice in a mapping makes a manifest that some tools refuse, and a
// wildcard grants more than is needed.
//
//proves:known-bugs/loose-manifests
func TestManifestsAreStrict(t *testing.T) {
	objects := 0
	if err := filepath.WalkDir(filepath.Join(root, "deploy"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".yaml") || strings.Contains(filepath.ToSlash(path), "/templates/") {
			return err // templates of a chart are no YAML before they are rendered
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		reader := utilyaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(raw)))
		defer func() { _ = reader.Close() }() // it reads from memory
		buffer := make([]byte, len(raw)+1)
		for {
			n, err := reader.Read(buffer)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			objects++
			checkManifest(t, path, buffer[:n])
		}
	}); err != nil {
		t.Fatal(err)
	}
	if objects < 15 {
		t.Errorf("only %d objects found", objects)
	}
}

func checkManifest(t *testing.T, path string, document []byte) {
	t.Helper()
	var object struct {
		Kind     string
		Metadata struct{ Name string }
		Rules    []struct{ APIGroups, Resources, Verbs []string }
	}
	var whole map[string]any
	if err := yaml.UnmarshalStrict(document, &whole); err != nil {
		t.Errorf("%s: %v", path, err)
	}
	if err := yaml.Unmarshal(document, &object); err != nil {
		t.Errorf("%s: %v", path, err)
	}
	if strings.HasPrefix(object.Metadata.Name, "system:") {
		t.Errorf("%s: %s %s takes a name that Kubernetes keeps for its own", path, object.Kind, object.Metadata.Name)
	}
	for _, rule := range object.Rules {
		for _, each := range append(append(rule.APIGroups, rule.Resources...), rule.Verbs...) {
			if strings.Contains(each, "*") {
				t.Errorf("%s: %s %s grants %q", path, object.Kind, object.Metadata.Name, each)
			}
		}
	}
}

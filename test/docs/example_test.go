package docs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/config"
)

// TestExamplesOfTheSecretAreAccepted gives every secret that a page shows to the controller's own reader.
func TestExamplesOfTheSecretAreAccepted(t *testing.T) {
	fenced := regexp.MustCompile("(?s)```(?:json|yaml|YAML)?\n(.*?)```")
	found := 0
	pages := []string{filepath.Join(root, "README.md")}
	if err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			pages = append(pages, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range fenced.FindAllSubmatch(raw, -1) {
			if !bytes.Contains(match[1], []byte("clientSecret")) {
				continue
			}
			found++
			secret := filepath.Join(t.TempDir(), "cloud.json")
			if err := os.WriteFile(secret, match[1], 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := config.Load(secret, nil, func(string) string { return "" }); err != nil {
				t.Errorf("%s: %v\n%s", page, err, match[1])
			}
		}
	}
	if found == 0 {
		t.Error("no page shows a secret; the pattern is out of date")
	}
}

// TestManifestsAreStrict: a key that stands twice in a mapping makes a manifest that some tools refuse, and a
// wildcard grants what nobody asked for.
func TestManifestsAreStrict(t *testing.T) {
	objects := 0
	if err := filepath.WalkDir(filepath.Join(root, "deploy"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".yaml") {
			return err
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

package deploy

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/config"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
)

// valueCase is what one value of the chart changes.
type valueCase struct {
	// Set is the value, With are others that it needs, by their paths.
	Set  any            `json:"set"`
	With map[string]any `json:"with"`
	// Kustomization makes the same of the overlay kubeadm and of the definitions; Files stand beside it.
	Kustomization map[string]any `json:"kustomization"`
	Files         map[string]any `json:"files"`
}

// flags have helm set the values of the case; without a path, only those that it needs.
func (c valueCase) flags(t *testing.T, path string) []string {
	t.Helper()
	values := maps.Clone(c.With)
	if values == nil {
		values = map[string]any{}
	}
	if path != "" {
		values[path] = c.Set
	}
	var flags []string
	for _, path := range slices.Sorted(maps.Keys(values)) {
		raw, err := json.Marshal(values[path])
		must(t, err)
		flags = append(flags, "--set-json", path+"="+string(raw))
	}
	return flags
}

// render is what kustomize makes of the case. kustomize takes directories only by relative paths, and files only from
// its own directory.
func (c valueCase) render(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	c.Kustomization["resources"] = slices.Concat([]any{"deploy/overlays/kubeadm", "deploy/crds"},
		list(c.Kustomization["resources"]))
	raw, err := json.Marshal(c.Kustomization)
	must(t, err)
	kubeVIP, err := os.ReadFile(filepath.Join(sourceTree(t), "deploy", "kube-vip", "kube-vip.yaml"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "kube-vip.yaml"), kubeVIP, 0o600))
	for name, content := range c.Files {
		text, err := yaml.Marshal(content)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	text := strings.ReplaceAll(string(raw), `"deploy/kube-vip/`, `"`)
	return built(t, dir, strings.ReplaceAll(text, `"deploy/`, `"`+deployFrom(t, dir)+"/"))
}

func list(value any) []any {
	items, _ := value.([]any)
	return items
}

func valueCases(t *testing.T) map[string]valueCase {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "values.yaml"))
	must(t, err)
	cases := map[string]valueCase{}
	must(t, yaml.UnmarshalStrict(text, &cases))
	return cases
}

// TestEveryValueChangesWhatItSays sets one value of the chart after the other, and expects what kustomize makes of the
// overlay in the same case, to the last field.
func TestEveryValueChangesWhatItSays(t *testing.T) {
	rendered := map[string]string{} // many cases begin with the same values
	for path, c := range valueCases(t) {
		t.Run(path, func(t *testing.T) {
			flags := c.flags(t, "")
			without, known := rendered[strings.Join(flags, " ")]
			if !known {
				var err error
				without, err = template(t, flags...)
				if err != nil && path != "kubeVIP.interface" && path != "agent.enabled" {
					t.Errorf("without the value: %v\n%s", err, without)
				}
				rendered[strings.Join(flags, " ")] = without
			}
			text, err := template(t, c.flags(t, path)...)
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			if without == text {
				t.Error("the value changes nothing")
			}
			if diff := gocmp.Diff(documents(t, string(c.render(t))), documents(t, text)); diff != "" {
				t.Errorf("the chart differs from the kustomization (-kustomization +chart):\n%s", diff)
			}
		})
	}
}

// read parses a file of the chart.
func readChart(t *testing.T, name string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chart(t), name))
	must(t, err)
	content := map[string]any{}
	must(t, yaml.UnmarshalStrict(text, &content))
	return content
}

// leaves are the paths of the values that have no others below them.
func leaves(below string, values map[string]any) []string {
	var paths []string
	for name, value := range values {
		if nested, _ := value.(map[string]any); len(nested) > 0 {
			paths = append(paths, leaves(below+name+".", nested)...)
		} else {
			paths = append(paths, below+name)
		}
	}
	return paths
}

func TestEveryValueHasACase(t *testing.T) {
	cases := valueCases(t)
	paths := leaves("", readChart(t, "values.yaml"))
	if len(paths) < 50 {
		t.Errorf("only %d values found", len(paths))
	}
	for _, path := range paths {
		if _, ok := cases[path]; !ok {
			t.Errorf("testdata/values.yaml does not say what %s changes", path)
		}
	}
}

// properties follows the references of a schema.
func properties(schema, of map[string]any) map[string]any {
	if reference, ok := of["$ref"].(string); ok {
		of = object(object(schema["definitions"])[strings.TrimPrefix(reference, "#/definitions/")])
	}
	return object(of["properties"])
}

// object is the JSON object that value is, or nil.
func object(value any) map[string]any {
	found, _ := value.(map[string]any)
	return found
}

// undeclared are the properties of the schema that have no default in values.yaml.
func undeclared(schema, of, values map[string]any, below string) []string {
	var paths []string
	for name, property := range properties(schema, of) {
		value, ok := values[name]
		nested := object(value)
		switch {
		case !ok:
			paths = append(paths, below+name)
		case len(nested) > 0:
			paths = append(paths, undeclared(schema, object(property), nested, below+name+".")...)
		}
	}
	return paths
}

// closed reports every object of a schema that has properties and takes others, too.
func closed(t *testing.T, path string, of any) {
	t.Helper()
	switch typed := of.(type) {
	case map[string]any:
		if _, isObject := typed["properties"].(map[string]any); isObject && typed["additionalProperties"] != false {
			t.Errorf("%s takes values that the schema does not name", path)
		}
		for name, each := range typed {
			closed(t, path+"/"+name, each)
		}
	case []any:
		for _, each := range typed {
			closed(t, path, each)
		}
	}
}

// TestSchemaNamesEveryValue: the schema and values.yaml have the same values, and the fields of the Secret are those
// that the controller reads.
func TestSchemaNamesEveryValue(t *testing.T) {
	schema := readChart(t, "values.schema.json")
	closed(t, "", schema)
	got := undeclared(schema, schema, readChart(t, "values.yaml"), "")
	slices.Sort(got)
	if !slices.Equal(got, []string{"enabled", "global"}) {
		t.Errorf("the schema has %v and values.yaml does not, want only what parent charts pass on", got)
	}
	fields := properties(schema, object(properties(schema, schema)["cloudConfig"]))
	for _, option := range config.Options() {
		if _, ok := fields[option.Field]; !ok && option.Field != "" {
			t.Errorf("cloudConfig does not take the field %s", option.Field)
		}
		delete(fields, option.Field)
	}
	for name := range fields {
		t.Errorf("cloudConfig takes %s, which the controller does not know", name)
	}
}

// wrong replaces every leaf by a value of no type that any has, and adds one of no name to every map.
func wrong(values map[string]any) map[string]any {
	mistakes := map[string]any{"misspelt": map[string]any{}}
	for name, value := range values {
		nested := object(value)
		if len(nested) > 0 {
			mistakes[name] = wrong(nested)
		} else {
			mistakes[name] = map[string]any{"nonsense": []any{}}
		}
	}
	return mistakes
}

// TestSchemaRefusesEveryWrongValue makes all mistakes at once, and expects helm to name each.
func TestSchemaRefusesEveryWrongValue(t *testing.T) {
	values := readChart(t, "values.yaml")
	text, err := yaml.Marshal(wrong(values))
	must(t, err)
	out, err := template(t, "--values", write(t, string(text)))
	if err == nil {
		t.Fatal("everything is accepted")
	}
	for _, path := range leaves("", wrong(values)) {
		path, isName := strings.CutSuffix(strings.TrimSuffix(path, ".nonsense"), "misspelt")
		pattern := fmt.Sprintf(`(?m)at '/%s['/]`, strings.ReplaceAll(path, ".", "/"))
		if isName {
			at := strings.ReplaceAll(strings.TrimSuffix("/"+path, "."), ".", "/")
			pattern = fmt.Sprintf(`(?m)at '%s.*misspelt`, strings.TrimSuffix(at, "/"))
		}
		if !regexp.MustCompile(pattern).MatchString(out) {
			t.Errorf("nothing matches %s in\n%s", pattern, out)
		}
	}
}

// TestNotesShowNoSecret renders the notes with credentials among the values.
func TestNotesShowNoSecret(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, controlplane.WriteKubeconfig(kubeconfig, cp.Config(), ""))
	out, err := runHelm(t.Context(), "install", "pnap", chart(t), "--namespace", "kube-system", "--dry-run=client",
		"--take-ownership", "--kubeconfig", kubeconfig, "--set", "cloudConfig.clientID=the-client,cloudConfig.clientSecret=the-secret,announcer=none")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, notes, found := strings.Cut(out, "\nNOTES:\n")
	if !found || !strings.Contains(notes, "pnap-cloud-config that this chart created") ||
		strings.Contains(notes, "the-client") || strings.Contains(notes, "the-secret") {
		t.Errorf("the notes are\n%s", notes)
	}
}

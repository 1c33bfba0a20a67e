package deploy

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/yaml"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/repo/deploy/reapply"
)

// resolve follows the reference of a schema.
func resolve(schema map[string]any, of any) map[string]any {
	found := object(of)
	if reference, ok := found["$ref"].(string); ok {
		return object(object(schema["definitions"])[strings.TrimPrefix(reference, "#/definitions/")])
	}
	return found
}

// emptyOf is the empty value of what a schema allows. There is none for global, whose form is the parent chart's.
func emptyOf(of map[string]any) any {
	if _, ok := of["enum"]; ok {
		return ""
	}
	types, _ := of["type"].([]any)
	empty := map[any]any{"string": "", "array": []any{}, "object": map[string]any{}, "boolean": false, "integer": 0}
	for _, each := range types {
		if value, ok := empty[each]; ok {
			return value
		}
	}
	return nil
}

// walk finds every value that the schema knows, whether values.yaml has a default for it or not, with its empty value.
// Where names are free it takes one.
func walk(schema, of map[string]any, below string, found map[string]any) {
	for name, property := range object(of["properties"]) {
		property := resolve(schema, property)
		found[below+name] = emptyOf(property)
		walk(schema, property, below+name+".", found)
	}
	free, ok := of["additionalProperties"]
	if _, closed := free.(bool); ok && !closed && below != "" {
		found[below+"example"] = emptyOf(resolve(schema, free))
	}
}

// contexts are the values beside the one that is tried: the templates read most values only in some of them.
var contexts = map[string]string{
	"everything": `
manageVLAN: true
cloudConfig: {clientID: a, clientSecret: b, loadbalancer: 'kube-vip://60473c2509268bc77fd06d29'}
policies: {denyExternalIPs: true, publishers: [{namespace: a, name: b}]}
controller: {trustedCA: {configMap: a}, nodeSelector: {a: b}, podLabels: {a: b}, podAnnotations: {a: b}}
agent: {metrics: node, nodeSelector: {a: b}, podLabels: {a: b}, podAnnotations: {a: b}}
monitoring:
  podMonitor: {enabled: true, labels: {a: b}}
  prometheusRule: {enabled: true, labels: {a: b}}
  dashboard: {enabled: true}
kubeVIP: {enabled: true, interface: bond0.56, podLabels: {a: b}, podAnnotations: {a: b}}`,
	"agents": `
announcer: agent
manageVLAN: true
controller: {affinity: {nodeAffinity: {}}}
agent: {resources: {requests: {cpu: "1"}}, affinity: {podAffinity: {}}}`,
}

// trial is a value in a context.
type trial struct {
	context, path string
	value         any
	out           string
	err           error
}

// trials renders the chart with every value null and empty, in every context.
func trials(t *testing.T) []*trial {
	t.Helper()
	values := map[string]any{}
	schema := readChart(t, "values.schema.json")
	walk(schema, schema, "", values)
	if len(values) < 100 || len(contexts) < 2 {
		t.Errorf("only %d values found", len(values))
	}
	var all []*trial
	for context := range contexts {
		for path, empty := range values {
			all = append(all, &trial{context: context, path: path})
			if empty != nil {
				all = append(all, &trial{context: context, path: path, value: empty})
			}
		}
	}
	files := map[string]string{}
	for name, text := range contexts {
		files[name] = write(t, text)
	}
	var group errgroup.Group
	group.SetLimit(runtime.NumCPU())
	for _, each := range all {
		group.Go(func() error {
			raw, err := json.Marshal(each.value)
			if err != nil {
				return err
			}
			each.out, each.err = RenderChart(t.Context(), sourceTree(t), "--values", files[each.context],
				"--set-json", each.path+"="+string(raw))
			return nil
		})
	}
	must(t, group.Wait())
	return all
}

// crashed is what helm prints when a template fails by itself, and not by its own words.
var crashed = regexp.MustCompile(`nil pointer|error calling (?:[^f]|f[^a])|wrong type|can't evaluate|unexpected`)

// TestEveryValueMayBeNullOrEmpty: the API server takes what the chart makes of such values, or the chart says in words
// which value is wrong.
func TestEveryValueMayBeNullOrEmpty(t *testing.T) {
	objects := map[string]bool{}
	var manifest strings.Builder
	for _, each := range trials(t) {
		named := strings.Contains(each.out, each.path) ||
			strings.Contains(each.out, "'/"+strings.ReplaceAll(each.path, ".", "/")+"'")
		where := fmt.Sprintf("%s=%v with %s", each.path, each.value, each.context)
		switch {
		case each.err == nil:
			for _, object := range documents(t, each.out) {
				if object.GroupVersionKind().Group != "monitoring.coreos.com" {
					add(t, &manifest, objects, where, object)
				}
			}
		case crashed.MatchString(each.out) || !named:
			t.Errorf("%s: %s", where, each.out)
		}
	}
	file := write(t, manifest.String())
	out, err := reapply.NewCluster(t, cp.Config()).Run(t,
		"apply", "--server-side", "--dry-run=server", "--validate=strict",
		"-f", file)
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if lines := strings.Count(out, "serverside-applied (server dry run)"); lines != len(objects) || lines < 100 {
		t.Errorf("the API server takes %d of %d objects", lines, len(objects))
	}
}

// TestEveryValueMayBeItsDefault: to write a default down changes nothing.
func TestEveryValueMayBeItsDefault(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chart(t), "values.yaml"))
	must(t, err)
	plain, err := template(t)
	must(t, err)
	copied, err := template(t, "--values", write(t, string(text)))
	must(t, err)
	if diff := gocmp.Diff(plain, copied); diff != "" {
		t.Errorf("with all defaults written down (-without +with):\n%s", diff)
	}
}

// TestWhatReplacesNull: what the templates take in the place of null is the default of values.yaml, or nothing.
func TestWhatReplacesNull(t *testing.T) {
	helpers, err := os.ReadFile(filepath.Join(chart(t), "templates", "_helpers.tpl"))
	must(t, err)
	_, rest, found := strings.Cut(string(helpers), `{{- define "phoenixnap.defaults" }}`)
	text, _, ended := strings.Cut(rest, "{{- end }}")
	if !found || !ended {
		t.Fatal("the chart has no defaults")
	}
	replaced := map[string]any{}
	must(t, yaml.UnmarshalStrict([]byte(text), &replaced))
	compare(t, "", readChart(t, "values.yaml"), replaced)
}

func compare(t *testing.T, below string, values, replaced map[string]any) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := values[name]
		other, ok := replaced[name]
		switch {
		case !ok:
			t.Errorf("nothing takes the place of %s%s", below, name)
		case len(object(other)) > 0:
			compare(t, below+name+".", object(value), object(other))
		case !reflect.DeepEqual(other, value) && reflect.ValueOf(other).Kind() != reflect.Bool &&
			reflect.ValueOf(other).Len() > 0:
			t.Errorf("%s%s is replaced by %v, and its default is %v", below, name, other, value)
		}
	}
	for name := range replaced {
		if _, ok := values[name]; !ok {
			t.Errorf("%s%s is no value of the chart", below, name)
		}
	}
}

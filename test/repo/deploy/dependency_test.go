package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// parentChart makes a chart that has another one as a dependency, and returns its directory. settings are more
// fields of the dependency.
func parentChart(t *testing.T, name, dependency, settings string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	must(t, os.MkdirAll(dir, 0o755))
	text := fmt.Sprintf("apiVersion: v2\nname: %s\nversion: 1.0.0\ndependencies:\n- name: %s\n  version: '>=0.0.0-0'\n"+
		"  repository: file://%s\n%s", name, filepath.Base(dependency), dependency, settings)
	must(t, os.WriteFile(filepath.Join(dir, "Chart.yaml"), []byte(text), 0o600))
	if out, err := runHelm(t.Context(), "dependency", "update", dir); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// renderIn renders a chart as a release of a namespace.
func renderIn(t *testing.T, namespace, dir string, flags ...string) (string, error) {
	t.Helper()
	return runHelm(t.Context(), slices.Concat([]string{"template", "site", dir, "--namespace", namespace,
		"--kube-version", NewestKubernetes()}, flags)...)
}

// TestChartAsDependency: a parent chart switches it on and off, passes values on under an alias, and has values of its
// own for all charts. What is installed is what the chart installs by itself.
func TestChartAsDependency(t *testing.T) {
	const name = "phoenixnap-cloud-provider"
	conditional := parentChart(t, "platform", chart(t), "  condition: "+name+".enabled\n  tags: [network]\n")
	aliased := parentChart(t, "platform", chart(t), "  alias: pnap\n  condition: pnap.enabled\n")
	above := parentChart(t, "site", aliased, "  condition: platform.enabled\n")
	for _, tc := range []struct {
		parent, set string
		// direct are the values that give the same without a parent; off means that there are no objects.
		direct string
		off    bool
	}{
		{parent: conditional},
		{parent: conditional, set: name + ".enabled=true"},
		{parent: conditional, set: name + ".enabled=false", off: true},
		{parent: conditional, set: "tags.network=false", off: true},
		{parent: conditional, set: "tags.network=false," + name + ".enabled=true"},
		{parent: conditional, set: "global.imageRegistry=example.com,global.nested.list[0]=1"},
		{parent: conditional, set: name + ".controller.replicas=1", direct: "controller.replicas=1"},
		{parent: aliased, set: "pnap.enabled=true,pnap.announcer=agent,pnap.manageVLAN=true,global.a=b",
			direct: "announcer=agent,manageVLAN=true"},
		{parent: aliased, set: "pnap.enabled=false", off: true},
		{parent: aliased, set: "pnap.controller=null,pnap.agent.image=null,pnap.policies=null",
			direct: "controller=null,agent.image=null,policies=null"},
		{parent: aliased, set: "pnap.agent.tolerations=null", direct: "agent.tolerations=null"},
		{parent: above},
		{parent: above, set: "platform.enabled=false", off: true},
		{parent: above, set: "platform.enabled=true,platform.pnap.enabled=false", off: true},
		{parent: above, set: "global.a=b,platform.pnap.enabled=true,platform.pnap.distribution=k3s", direct: "distribution=k3s"},
	} {
		for _, namespace := range []string{"kube-system", "platform"} {
			text, err := renderIn(t, namespace, tc.parent, "--set", tc.set)
			if err != nil {
				t.Errorf("%s in %s: %v\n%s", tc.set, namespace, err, text)
				continue
			}
			direct, err := template(t, "--set", tc.direct)
			must(t, err)
			want := documents(t, direct)
			if tc.off {
				want = nil
			}
			if diff := gocmp.Diff(want, documents(t, text)); diff != "" {
				t.Errorf("%s in %s differs from the chart itself (-chart +dependency):\n%s", tc.set, namespace, diff)
			}
		}
	}
	if out, err := renderIn(t, "platform", aliased, "--set", "pnap.controler.replicas=1"); err == nil ||
		!strings.Contains(out, "controler") {
		t.Errorf("a misspelt value of the dependency: %v\n%s", err, out)
	}
}

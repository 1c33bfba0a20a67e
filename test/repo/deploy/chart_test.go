package deploy

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func chart(t *testing.T) string { return filepath.Join(sourceTree(t), filepath.FromSlash(Chart)) }

func template(t *testing.T, set ...string) (string, error) {
	t.Helper()
	return RenderChart(t.Context(), sourceTree(t), set...)
}

// withDefinitions is an overlay with the definition of the kinds, which the chart has, too.
func withDefinitions(t *testing.T, overlay []byte) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(sourceTree(t), filepath.FromSlash(Definitions)))
	must(t, err)
	return string(overlay) + "\n---\n" + string(text)
}

// documents are the objects of a manifest, in an order of their own.
func documents(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	for document := range strings.SplitSeq("\n"+text, "\n---\n") {
		object := map[string]any{}
		must(t, yaml.Unmarshal([]byte(document+"\n"), &object))
		if len(object) > 0 {
			all = append(all, &unstructured.Unstructured{Object: object})
		}
	}
	key := func(o *unstructured.Unstructured) string {
		return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
	}
	slices.SortFunc(all, func(a, b *unstructured.Unstructured) int { return cmp.Compare(key(a), key(b)) })
	return all
}

// TestChartIsWhatTheOverlaysAre compares the chart with every overlay.
func TestChartIsWhatTheOverlaysAre(t *testing.T) {
	for _, overlay := range overlays(t) {
		values, err := ChartValues(overlay)
		must(t, err)
		text, err := template(t, values...)
		if err != nil {
			t.Fatalf("%s: %v\n%s", overlay, err, text)
		}
		rendered, err := os.ReadFile(Rendered(sourceTree(t), overlay))
		must(t, err)
		want := documents(t, withDefinitions(t, rendered))
		have := documents(t, text)
		enough := 20
		if strings.HasSuffix(overlay, nodesOnly) {
			enough = 15
		}
		if len(want) < enough {
			t.Errorf("%s has %d objects", overlay, len(want))
		}
		if diff := gocmp.Diff(want, have); diff != "" {
			t.Errorf("%s: the chart differs from the overlay (-overlay +chart):\n%s", overlay, diff)
		}
	}
}

// TestChartValuesAreWhatComponentsMake compares the chart with values that an overlay has only with a component.
func TestChartValuesAreWhatComponentsMake(t *testing.T) {
	for component, value := range map[string]string{
		"metrics": "agent.metrics=node", "deny-external-ips": "policies.denyExternalIPs=true",
		"single": "controller.replicas=1",
	} {
		for _, overlay := range overlays(t) {
			values, err := ChartValues(overlay)
			must(t, err)
			text, err := template(t, append(values, "--set", value)...)
			if err != nil {
				t.Fatalf("%s with %s: %v\n%s", overlay, value, err, text)
			}
			want := documents(t, withDefinitions(t, composedText(t, overlay, component)))
			if diff := gocmp.Diff(want, documents(t, text)); diff != "" {
				t.Errorf("%s: the chart with %s differs from the overlay with components/%s (-overlay +chart):\n%s",
					overlay, value, component, diff)
			}
		}
	}
}

// TestChartVariants renders what no overlay has.
func TestChartVariants(t *testing.T) {
	text, err := template(t, "--set", "policies.publishers[0].namespace=a,policies.publishers[0].name=b",
		"--set",
		"distribution=any,announcer=none,policies.enabled=false,agent.metrics=node,controller.image.tag=v9.9.9",
		"--set", "controller.extraArgs={--dry-run,--v=2},agent.extraArgs={--uplink=bond1},imagePullSecrets={ours}")
	must(t, err)
	for _, want := range []string{
		"phoenixnap-cloud-controller-manager:v9.9.9", `- "--dry-run"`, `- "--v=2"`, `- "--uplink=bond1"`,
		"- name: ours", "- --metrics-on-private-addresses",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing", want)
		}
	}
	for _, unwanted := range []string{"ValidatingAdmissionPolicy", "node-role.kubernetes.io/control-plane: ",
		"phoenixnap:publish-addresses"} {
		if strings.Contains(text, unwanted) {
			t.Errorf("%s is in the chart", unwanted)
		}
	}
	must(t, cp.ApplyFiles(t.Context(), write(t, text)))
}

// TestChartMonitorsWhatItInstalls: without agents there is nothing to collect but from the controller, whose port has
// the name that its PodMonitor asks for.
func TestChartMonitorsWhatItInstalls(t *testing.T) {
	text, err := template(t, "--set", "announcer=none,agent.enabled=false,monitoring.podMonitor.enabled=true")
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var monitored []string
	for _, o := range documents(t, text) {
		if o.GetKind() == "PodMonitor" {
			monitored = append(monitored, o.GetName())
		}
	}
	if !slices.Equal(monitored, []string{"phoenixnap-cloud-controller-manager"}) ||
		strings.Count(text, "- name: metrics\n              containerPort: 10258\n") != 1 {
		t.Errorf("PodMonitors %v in\n%s", monitored, text)
	}
}

// TestChartWithEveryValueIsAccepted sends what no overlay has to the API server.
func TestChartWithEveryValueIsAccepted(t *testing.T) {
	var flags []string
	for path, c := range valueCases(t) {
		if strings.HasPrefix(path, "monitoring.") || path == "agent.enabled" || path == "announcer" ||
			path == "policies.enabled" {
			continue // the operator's kinds are those of test/repo/monitoring; the others leave objects out
		}
		flags = append(flags, c.flags(t, path)...)
	}
	text, err := template(t, flags...)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if got := len(documents(t, text)); got < 40 {
		t.Errorf("%d objects", got)
	}
	must(t, cp.ApplyFiles(t.Context(), write(t, text)))
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "manifest.yaml")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestChartPassesLint(t *testing.T) {
	if out, err := runHelm(t.Context(), "lint", "--strict", chart(t)); err != nil ||
		!strings.Contains(out, "1 chart(s) linted, 0 chart(s) failed") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestChartRefusesWrongValues makes one mistake at a time.
func TestChartRefusesWrongValues(t *testing.T) {
	for mistake, says := range map[string]string{
		"distribution=rke": "distribution", "announcer=metallb": "announcer", "manageVLAN=perhaps": "manageVLAN",
		"controller.replicas=0": "replicas",
		"controler.replicas=1":  "controler", "agent.extraArgs={uplink}": "extraArgs",
		"cloudConfigSecret=a b": "cloudConfigSecret", "controller.image.tag=a b": "tag",
		"enabled=false": "enabled=false is for the condition of a chart that has this one as a dependency",
		"controller.env[0].name=SSL_CERT_DIR,controller.trustedCA.secret=a": "remove it from controller.env",
		"cloudConfig.clientID=a,cloudConfig.clientSecret=12345":             "/cloudConfig/clientSecret",
		"controller.resources.limits.memory=much":                           "/controller/resources/limits/memory",
		"announcer=agent,agent.enabled=false":                               "agent.enabled", "manageVLAN=true,agent.enabled=false": "agent.enabled",
		"policies.publishers={metallb}": "publishers", "policies.publishers[0].name=controller": "namespace",
		"controller.image.digest=v2.0.0":             "/controller/image/digest",
		"controller.port=80":                         "/controller/port",
		"agent.tolerations[0].oprator=Exists":        "oprator",
		"kubeVIP.enabled=true":                       "set it to the VLAN interface of the nodes, such as bond0.56",
		"kubeVIP.enabled=true,announcer=agent":       "kubeVIP.enabled=true needs announcer=kube-vip",
		"kubeVIP.interface=eth 0":                    "/kubeVIP/interface",
		"monitoring.podMonitor.enabled=true":         "monitoring.podMonitor.enabled=true needs agent.metrics=node",
		"cloudConfig.clientID=a":                     "cloudConfig.clientSecret is missing: set it",
		"cloudConfig.clientId=a":                     "clientId",
		"agent.env[0].name=PNAP_AGENT_NODE_NAME":     "remove it from agent.env",
		"agent.env[0].name=A,agent.env[1].name=A":    "agent.env sets A twice: keep one of them",
		`agent.podLabels.app\.kubernetes\.io/name=a`: "remove it from agent.podLabels",
		"cloudConfig.clientID=a,cloudConfig.clientSecret=b,cloudConfig.loadbalancer=agent://c": "set both to the same",
	} {
		if out, err := template(t, "--set", mistake); err == nil || !strings.Contains(out, says) {
			t.Errorf("%s: %v\n%s", mistake, err, out)
		}
	}
	if out, err := runHelm(t.Context(), "template", "pnap", chart(t), "--namespace", "default", "--kube-version",
		NewestKubernetes()); err == nil || !strings.Contains(out, "install it with --namespace kube-system") {
		t.Errorf("in another namespace: %v\n%s", err, out)
	}
}

// TestChartIsCurrent: what it shares with the kustomizations is the same.
func TestChartIsCurrent(t *testing.T) {
	entries, err := os.ReadDir(filepath.Join(chart(t), "manifests"))
	must(t, err)
	if len(entries) != len(copied()) {
		t.Errorf("%d manifests in the chart, want %d", len(entries), len(copied()))
	}
	for name, source := range copied() {
		want, err := os.ReadFile(filepath.Join(sourceTree(t), source))
		must(t, err)
		have, err := os.ReadFile(filepath.Join(chart(t), "manifests", name))
		must(t, err)
		if !bytes.Equal(want, have) {
			t.Errorf("%s/manifests/%s is not %s: run make manifests", Chart, name, source)
		}
	}
}

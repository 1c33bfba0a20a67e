package docs

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// TestTheDiagnosisShownIsOne: the page shows lines of what diagnose writes in the tests of its package, in their order.
func TestTheDiagnosisShownIsOne(t *testing.T) {
	const page, written = "docs/guides/broken-vlan.md", "agent/diagnose/testdata/failure.txt"
	rest := read(t, written)
	shown := 0
	for _, b := range blocks(t) {
		if b.page != page || !strings.Contains(b.text, "fix this first") {
			continue
		}
		for line := range strings.Lines(b.text) {
			if line = strings.TrimSuffix(line, "\n"); line == "…" || line == "" {
				continue
			}
			shown++
			_, after, found := strings.Cut(rest, line+"\n")
			if !found {
				t.Errorf("%s: %s has no line %q there", page, written, line)
				continue
			}
			rest = after
		}
	}
	if shown < 15 {
		t.Errorf("%s shows %d lines", page, shown)
	}
}

// shownNodes are the Nodes of the guide of the installation: before, and after the controller and the agents saw to
// them.
var shownNodes = []string{`
apiVersion: v1
kind: Node
metadata: {name: server-1, labels: {node-role.kubernetes.io/control-plane: ""}}
spec:
  taints:
    - {key: node-role.kubernetes.io/control-plane, effect: NoSchedule}
    - {key: node.cloudprovider.kubernetes.io/uninitialized, value: "true", effect: NoSchedule}
    - {key: node.kubernetes.io/not-ready, effect: NoSchedule}
`, `
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: server-1, labels: {node-role.kubernetes.io/control-plane: "", node.kubernetes.io/exclude-from-external-load-balancers: "", topology.kubernetes.io/region: ASH}}
  spec:
    providerID: phoenixnap://5fc7a7aee5bd9d4e4a1b2c3d
    taints: [{key: node-role.kubernetes.io/control-plane, effect: NoSchedule}]
- apiVersion: v1
  kind: Node
  metadata: {name: server-2, labels: {topology.kubernetes.io/region: ASH, phoenixnap.com/vlan-ready: "true"}}
  spec: {providerID: phoenixnap://5fc7a7aee5bd9d4e4a1b2c3e}
`}

// TestTheNodesShownAreWhatKubectlPrints has kubectl print such Nodes. Ages differ.
func TestTheNodesShownAreWhatKubectlPrints(t *testing.T) {
	const page = "docs/guides/install.md"
	var shown []block
	for _, b := range blocks(t) {
		if b.page == page && b.language == "console" {
			shown = append(shown, b)
		}
	}
	if len(shown) != len(shownNodes) {
		t.Fatalf("%s shows %d consoles, want %d", page, len(shown), len(shownNodes))
	}
	plane := controlplane.ForTest(t)
	b := &bench{programs: map[string]string{"kubectl": kubectlOf(t)},
		kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	must(t, controlplane.WriteKubeconfig(b.kubeconfig, plane.Config(), ""))
	const status = `{"status":{"conditions":[{"type":"Ready","status":"True"}],"nodeInfo":{"kubeletVersion":"v1.37.2"}}}`
	for i, console := range shown {
		must(t, plane.Apply(t.Context(), controlplane.Manifest{Name: page, Data: []byte(shownNodes[i])}))
		for _, node := range []string{"server-1", "server-2"}[:i+1] {
			_, err := b.run(t.Context(), t, 30*time.Second, nil, "patch", "node", node, "--subresource=status",
				"--type=strategic", "-p", status)
			must(t, err)
		}
		if i > 0 { // the API server gives it to every new Node, and Kubernetes takes it away once the Node is ready
			_, err := b.run(t.Context(), t, 30*time.Second, nil, "taint", "node", "server-2",
				"node.kubernetes.io/not-ready-")
			must(t, err)
		}
		for part := range strings.SplitSeq(strings.TrimPrefix(console.text, "$ "), "\n$ ") {
			command, want, _ := strings.Cut(strings.TrimSuffix(part, "\n"), "\n")
			got := printed(t, b, command)
			if diff := cmp.Diff(columns(want), columns(got)); diff != "" {
				t.Errorf("%s: %s (-page +kubectl):\n%s", page, command, diff)
			}
		}
	}
}

func kubectlOf(t *testing.T) string {
	t.Helper()
	path, err := tools.Binary(t.Context(), "kubectl")
	must(t, err)
	return path
}

// printed is what a command of kubectl prints.
func printed(t *testing.T, b *bench, command string) string {
	t.Helper()
	commands, err := shellCommands(command)
	must(t, err)
	out, err := b.run(t.Context(), t, 30*time.Second, nil, commands[0][1:]...)
	must(t, err)
	return out
}

var age = regexp.MustCompile(`^[0-9]+[smhd][0-9smhd]*$`)

// columns are the words of each line; those that show an age are alike.
func columns(text string) [][]string {
	var all [][]string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		for i, word := range words {
			if age.MatchString(word) {
				words[i] = "age"
			}
		}
		all = append(all, words)
	}
	return all
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

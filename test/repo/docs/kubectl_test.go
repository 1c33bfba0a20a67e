package docs

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// bench is where the commands of the pages are tried.
type bench struct {
	programs   map[string]string
	kubeconfig string
	// secret is a file with the Secret that the guide of the installation shows.
	secret string
}

// onTheCluster are what the pages speak of, by the names that they use.
const onTheCluster = `
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: worker-1}}
- {apiVersion: v1, kind: Node, metadata: {name: server-2}}
- {apiVersion: v1, kind: Node, metadata: {name: srv-a}}
- {apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: default}, spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: nginx}]}}}}
- {apiVersion: v1, kind: Service, metadata: {name: web, namespace: default}, spec: {type: LoadBalancer, allocateLoadBalancerNodePorts: false, selector: {app: web}, ports: [{port: 80}]}}
- {apiVersion: v1, kind: Service, metadata: {name: phoenixnap-control-plane, namespace: kube-system}, spec: {ports: [{port: 443}]}}
- {apiVersion: apps/v1, kind: Deployment, metadata: {name: cloud-provider-phoenixnap, namespace: kube-system}, spec: {selector: {matchLabels: {app: v1}}, template: {metadata: {labels: {app: v1}}, spec: {containers: [{name: v1, image: v1}]}}}}
- {apiVersion: v1, kind: Secret, metadata: {name: phoenixnap-cloud-config, namespace: kube-system}}
- {apiVersion: v1, kind: ServiceAccount, metadata: {name: cloud-controller-manager, namespace: kube-system}}
- {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: "system:cloud-controller-manager"}}
- {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: "system:cloud-controller-manager"}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:cloud-controller-manager"}}
- {apiVersion: v1, kind: Secret, metadata: {name: phoenixnap-announcer, namespace: kube-system}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: phoenixnap-announcer, namespace: kube-system}}
- {apiVersion: networking.phoenixnap.com/v1beta1, kind: PublicNetwork, metadata: {name: default}, spec: {id: 60473c2509268bc77fd06d29, announcer: KubeVIP}}
- {apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: phoenixnap-cloud-controller-manager, namespace: kube-system}, spec: {holderIdentity: server-1}}
`

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{programs: map[string]string{"agent": program(t, "./agent"), "controller": program(t, "./controller")}}
	var err error
	if b.programs["kubectl"], err = tools.Binary(t.Context(), "kubectl"); err != nil {
		t.Fatal(err)
	}
	plane := controlplane.ForTest(t)
	b.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := controlplane.WriteKubeconfig(b.kubeconfig, plane.Config(), ""); err != nil {
		t.Fatal(err)
	}
	if err := plane.Apply(t.Context(), controlplane.Manifest{Name: "what the pages speak of",
		Data: []byte(onTheCluster)}); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"apply", "-k", "deploy/crds"}, {"apply", "-k", "deploy/overlays/kubeadm"},
		{"apply", "-f", "deploy/kube-vip/kube-vip.yaml"},
		// what the guide does before it deletes the definition, and a dry run does not
		{"annotate", "crd", "ipblocks.networking.phoenixnap.com", "publicnetworks.networking.phoenixnap.com",
			contract.AllowDeletion + "=true"}} {
		if out, err := b.run(t.Context(), t, 30*time.Second, nil, args...); err != nil {
			t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	b.keepSecret(t)
	return b
}

// keepSecret writes the Secret that the guide of the installation shows into a file, as it says.
func (b *bench) keepSecret(t *testing.T) {
	t.Helper()
	b.secret = filepath.Join(t.TempDir(), "secret.yaml")
	for _, each := range blocks(t) {
		if each.page == "docs/guides/install.md" && each.language == "yaml" &&
			strings.Contains(each.text, "kind: Secret\n") {
			if err := os.WriteFile(b.secret, []byte(each.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// run calls kubectl in the root of the project.
func (b *bench) run(ctx context.Context, t *testing.T, limit time.Duration, in []byte, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.programs["kubectl"], args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "KUBECONFIG="+b.kubeconfig, "HOME="+t.TempDir())
	cmd.Stdin = bytes.NewReader(in)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// How kubectl is tried.
var (
	// reads run as they are; what has a dry run is given one, and of any other command the verb and the flags are read.
	reads = []string{
		"get", "describe", "events", "version", "cluster-info", "api-resources", "auth", "explain", "top", "config",
		"kustomize",
	}
	// absent is the output of commands that wait for a pod, and a drain or a rollout that has no controller to carry it
	// out.
	absent = regexp.MustCompile(
		`timed out waiting|No resources found|not found|exceeded its progress deadline|pods? .*(not exist|no pods)`)
	// ofTheReader is the output for a Node, or of an object in the namespace default, that only the page knows.
	ofTheReader = regexp.MustCompile(`\(NotFound\): (nodes|services|pods|deployments\.apps|ipblocks\.networking\.phoenixnap\.com) "([^"]*)" not found`)
)

// kubectl tries one command and returns what is wrong with it.
func (b *bench) kubectl(t *testing.T, args []string) string {
	t.Helper()
	verb, at := verbOf(args)
	if verb == "pnap" {
		return b.plugin(t, args[at+1:])
	}
	if verb == "krew" { // a plugin of other people, which is not on this machine
		return ""
	}
	inside := args
	if dashes := slices.Index(args, "--"); dashes >= 0 {
		inside = args[:dashes]
		if command := args[dashes+1:]; programOf(command[0]) == "agent" {
			if problem := b.flags(t, "agent", command[1:]); problem != "" {
				return problem
			}
		}
	}
	inside, problem := fromRelease(t, b.withSecret(inside))
	if problem != "" {
		return problem
	}
	help, err := b.run(t.Context(), t, 30*time.Second, nil, append(slices.Clone(inside), "--help")...)
	if err != nil {
		return fmt.Sprintf("%v: %s", err, help)
	}
	return b.try(t, verb, inside, help)
}

// try runs a command of kubectl in the way that fits it; help is what it prints with --help.
func (b *bench) try(t *testing.T, verb string, args []string, help string) string {
	t.Helper()
	limit := 30 * time.Second
	watching := slices.Contains(args, "--watch") || slices.Contains(args, "-w")
	changing := false
	waiting := false
	switch {
	case slices.Contains(reads, verb) && watching:
		limit = time.Second
	case slices.Contains(reads, verb):
	case strings.Contains(help, " --dry-run="):
		changing = true
		args = append(slices.Clone(args), "--dry-run=server")
	case strings.Contains(help, " --pod-running-timeout="): // nothing starts pods here
		waiting = true
		args = append(slices.Clone(args), "--pod-running-timeout=1s")
	case strings.Contains(help, " --timeout="):
		waiting = true
		args = append(slices.Clone(args), "--timeout=1s")
	case verb != "rollout":
		return ""
	}
	if verb == "exec" {
		args = append(args, "--", "true")
	}
	var in []byte
	if slices.Contains(args, "-") {
		in = []byte(read(t, "deploy/rendered/kubeadm/deployment.yaml")) // what the pipe before it would hand over
	}
	out, err := b.run(t.Context(), t, limit, in, args...)
	switch {
	case err == nil, watching && (out == "" || strings.Contains(out, "NAME")):
		return ""
	case (waiting || verb == "rollout") && absent.MatchString(out):
		return ""
	case changing && strings.Contains(out, "already exists"):
		return "" // what the page is about to create exists already, because other pages use it
	case changing && strings.Contains(out, "ensure CRDs are installed first"):
		return "" // kinds of the Prometheus operator, which is not installed here
	case belongsToTheReader(args, out):
		return ""
	}
	return fmt.Sprintf("%v: %s", err, out)
}

// belongsToTheReader reports whether only an object is missing that a page made up; those of the project are there.
func belongsToTheReader(args []string, out string) bool {
	missing := ofTheReader.FindStringSubmatch(out)
	elsewhere := slices.ContainsFunc(args, func(arg string) bool {
		return strings.HasPrefix(arg, "-n") || strings.HasPrefix(arg, "--namespace")
	})
	return missing != nil && !strings.Contains(missing[2], "phoenixnap") && (missing[1] == "nodes" || !elsewhere)
}

// withSecret puts the file that the guide shows in the place of secret.yaml, and of a file that the reader has.
func (b *bench) withSecret(args []string) []string {
	args = slices.Clone(args)
	for i, arg := range args {
		switch arg {
		case "secret.yaml":
			args[i] = b.secret
		case "--from-file=ca.crt":
			args[i] += "=" + b.secret
		}
	}
	return args
}

// verbOf finds the verb behind the flags that may stand before it.
func verbOf(args []string) (verb string, at int) {
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "-n" || args[i] == "--namespace" || args[i] == "--kubeconfig":
			i++
		case !strings.HasPrefix(args[i], "-"):
			return args[i], i
		}
	}
	return "", len(args)
}

// plugin has the plugin of kubectl read its flags.
func (b *bench) plugin(t *testing.T, args []string) string {
	t.Helper()
	const pkg = "./controller/kubectl-pnap"
	if sources, err := filepath.Glob(filepath.Join(root, pkg, "*.go")); err != nil || len(sources) == 0 {
		return "" // the plugin is a program of its own, which may be left out of a tree
	}
	if b.programs["pnap"] == "" {
		b.programs["pnap"] = program(t, pkg)
	}
	return b.flags(t, "pnap", args)
}

// manifests has the API server check what pages show as YAML. A part of a Service becomes a whole one.
func (b *bench) manifests(t *testing.T) {
	checked := 0
	for _, each := range blocks(t) {
		if each.language != "yaml" {
			continue
		}
		for _, document := range strings.Split(each.text, "\n---\n") {
			manifest, foreign, err := whole(document)
			if err != nil {
				t.Errorf("%s: %v in\n%s", each.page, err, document)
			}
			if foreign || err != nil {
				continue
			}
			checked++
			if out, err := b.run(t.Context(), t, 30*time.Second, manifest, "apply", "--dry-run=server", "-f",
				"-"); err != nil {
				t.Errorf("%s: %v: %s\n%s", each.page, err, out, document)
			}
		}
	}
	if checked < 5 {
		t.Errorf("only %d manifests found", checked)
	}
}

// whole makes a manifest of what a page shows; foreign ones are no objects of the API server.
func whole(document string) (manifest []byte, foreign bool, err error) {
	object := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
		return nil, false, fmt.Errorf("read a manifest: %w", err)
	}
	version, _ := object["apiVersion"].(string)
	// A file of a node has its path above it. TestHelmChartOfTheGuide reads the chart.
	if group, _, _ := strings.Cut(version, "/"); strings.HasPrefix(document, "# /etc/") ||
		slices.Contains([]string{"kubeadm.k8s.io", "kustomize.config.k8s.io", "helm.cattle.io"}, group) {
		return nil, true, nil
	}
	if object["kind"] == nil {
		object["apiVersion"] = "v1"
		object["kind"] = "Service"
		metadata, _ := object["metadata"].(map[string]any)
		if metadata == nil {
			metadata = map[string]any{}
		}
		metadata["name"] = "part"
		object["metadata"] = metadata
		if object["spec"] == nil {
			object["spec"] = map[string]any{"type": "LoadBalancer", "ports": []any{map[string]any{"port": 80}}}
		}
	}
	manifest, err = yaml.Marshal(object)
	return manifest, false, err
}

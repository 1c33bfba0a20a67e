package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// restricted makes a namespace in which the API server enforces the restricted profile of the Pod Security Standards.
func restricted(t *testing.T) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(cp.Config())
	must(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "restricted",
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), namespace,
		metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		must(t, err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := client.CoreV1().ServiceAccounts("restricted").Create(t.Context(), account,
		metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		must(t, err)
	}
	return client
}

// TestPrivileges asks the API server what keeps the pods from the restricted profile, and expects no more than is
// needed.
func TestPrivileges(t *testing.T) {
	client := restricted(t)
	const hostNetwork = "host namespaces (hostNetwork=true)"
	root := []string{hostNetwork,
		`probe or lifecycle host (container "agent" uses probe or lifecycle host "127.0.0.1")`,
		`unrestricted capabilities (container "agent" must not include "NET_RAW" in securityContext.capabilities.add)`,
		"runAsNonRoot != true (pod or container \"agent\" must set securityContext.runAsNonRoot=true)",
		`runAsUser=0 (container "agent" must not set runAsUser=0)`}
	managing := slices.Clone(root)
	managing[2] = `unrestricted capabilities (container "agent" must not include "NET_ADMIN", "NET_RAW" in securityContext.capabilities.add)`
	for _, tc := range []struct {
		who  string
		spec corev1.PodSpec
		want []string
	}{
		{"controller", controller(t, "kubeadm").Spec.Template.Spec, []string{hostNetwork,
			`probe or lifecycle host (container "controller" uses probe or lifecycle host "127.0.0.1")`}},
		{"agent", agent(t, "kubeadm").Spec.Template.Spec, root},
		{"agent that manages", agent(t, "kubeadm-manage-vlan").Spec.Template.Spec, managing},
	} {
		tc.spec.ServiceAccountName = "default"
		tc.spec.PriorityClassName = ""
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod"}, Spec: tc.spec}
		_, err := client.CoreV1().Pods("restricted").Create(t.Context(), pod,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want it refused", tc.who, err)
			continue
		}
		_, violations, _ := strings.Cut(err.Error(), `violates PodSecurity "restricted:latest": `)
		if violations != strings.Join(tc.want, ", ") {
			t.Errorf("%s violates: %s\nwant: %s", tc.who, violations, strings.Join(tc.want, ", "))
		}
	}
}

// TestContainers: nothing can be written to, and nothing may grow without bounds.
func TestContainers(t *testing.T) {
	for _, overlay := range overlays(t) {
		specs := []corev1.PodSpec{controller(t, overlay).Spec.Template.Spec}
		if !strings.HasSuffix(overlay, nodesOnly) {
			specs = append(specs, agent(t, overlay).Spec.Template.Spec)
		}
		for _, spec := range specs {
			for _, c := range spec.Containers {
				if s := c.SecurityContext; s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
					t.Errorf("%s: the root file system of %s can be written to", overlay, c.Name)
				}
				if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() ||
					c.Resources.Limits.Memory().IsZero() || !c.Resources.Limits.Cpu().IsZero() {
					t.Errorf("%s: resources of %s: %v", overlay, c.Name, c.Resources)
				}
				if c.LivenessProbe == nil || c.ReadinessProbe == nil {
					t.Errorf("%s: probes of %s: %v, %v", overlay, c.Name, c.LivenessProbe, c.ReadinessProbe)
				}
			}
			if spec.DNSPolicy != corev1.DNSDefault || !spec.HostNetwork {
				t.Errorf("%s: network of the host %t, DNS policy %s", overlay, spec.HostNetwork, spec.DNSPolicy)
			}
		}
	}
}

// TestKubeVIPIsConfined: kube-vip has no more than it needs, too, and the probes ask where it serves.
func TestKubeVIPIsConfined(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(sourceTree(t), "deploy", "kube-vip", "kube-vip.yaml"))
	must(t, err)
	spec := typed[*appsv1.DaemonSet](t, string(text)).Spec.Template.Spec
	c := spec.Containers[0]
	if profile := spec.SecurityContext.SeccompProfile; profile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("seccomp profile %v", profile)
	}
	if added := c.SecurityContext.Capabilities.Add; !slices.Equal(added, []corev1.Capability{"NET_ADMIN", "NET_RAW"}) ||
		!slices.Equal(c.SecurityContext.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("capabilities %v", c.SecurityContext.Capabilities)
	}
	if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() ||
		c.Resources.Limits.Memory().IsZero() || !c.Resources.Limits.Cpu().IsZero() {
		t.Errorf("resources %v", c.Resources)
	}
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
		asked := corev1.EnvVar{Name: "prometheus_server", Value: probe.HTTPGet.Host + ":" + probe.HTTPGet.Port.String()}
		if !slices.Contains(c.Env, asked) || probe.HTTPGet.Host != "127.0.0.1" {
			t.Errorf("a probe asks %v", probe.HTTPGet)
		}
	}
}

// TestWhatAgentsRequest: an agent that announces has to send a heartbeat ten times a second, on a busy node too. The
// chart, which is the same otherwise, leaves the last word to its user.
func TestWhatAgentsRequest(t *testing.T) {
	requests := func(name string, daemonSet *appsv1.DaemonSet, want string) {
		t.Helper()
		spec := daemonSet.Spec.Template.Spec
		if got := spec.Containers[0].Resources.Requests.Cpu().String(); got != want ||
			spec.PriorityClassName != "system-node-critical" {
			t.Errorf("%s: the agent requests %s of CPU with the priority %s, want %s", name, got,
				spec.PriorityClassName, want)
		}
	}
	announces := func(d *appsv1.DaemonSet) bool {
		return d.Spec.Template.Spec.Containers[0].StartupProbe != nil
	}
	announcing := 0
	for _, overlay := range withAgents(t) {
		want := "10m"
		if announces(agent(t, overlay)) {
			announcing++
			want = "100m"
		}
		requests(overlay, agent(t, overlay), want)
	}
	if announcing < 2 {
		t.Errorf("%d overlays have the agents announce", announcing)
	}
	for set, want := range map[string]string{
		"announcer=kube-vip": "10m", "announcer=none": "10m", "announcer=agent": "100m",
		"announcer=agent,agent.resources.requests.cpu=250m": "250m", "agent.resources.requests.cpu=20m": "20m",
		"announcer=agent,agent.resources.requests.memory=64Mi": "100m",
	} {
		text, err := template(t, "--set", set)
		must(t, err)
		daemonSet := typed[*appsv1.DaemonSet](t, text)
		requests(set, daemonSet, want)
		if limits := daemonSet.Spec.Template.Spec.Containers[0].Resources.Limits; limits.Memory().String() != "96Mi" ||
			len(limits) != 1 {
			t.Errorf("%s: limits %v", set, limits)
		}
	}
}

// typed is the only object of a type in a manifest. Of a definition client-go has no type.
func typed[T runtime.Object](t *testing.T, text string) (found T) {
	t.Helper()
	for _, o := range documents(t, text) {
		if o.GetKind() == "CustomResourceDefinition" {
			continue
		}
		raw, err := o.MarshalJSON()
		must(t, err)
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
		must(t, err)
		if one, ok := object.(T); ok {
			found = one
		}
	}
	return found
}

// TestArguments: the programs know every flag that the manifests give.
func TestArguments(t *testing.T) {
	for _, overlay := range []string{"kubeadm-manage-vlan", "k3s"} {
		deployment, daemonSet := composed(t, overlay, "metrics")
		for pkg, spec := range map[string]corev1.PodSpec{"./controller": deployment.Spec.Template.Spec,
			"./agent": daemonSet.Spec.Template.Spec} {
			program, err := tools.Product(t.Context(), pkg)
			must(t, err)
			args := spec.Containers[0].Args
			if out, err := exec.CommandContext(t.Context(), program,
				append(slices.Clone(args), "--help")...).CombinedOutput(); err != nil {
				t.Errorf("%s %v: %v\n%s", pkg, args, err, out)
			}
			if _, err := exec.CommandContext(t.Context(), program,
				append(slices.Clone(args), "--no-such-flag", "--help")...).CombinedOutput(); err == nil {
				t.Errorf("%s accepts any flag", pkg)
			}
		}
	}
}

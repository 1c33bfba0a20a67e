package deploy

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// everyManifest is all that users can install: each overlay, each with the component of metrics, kube-vip, and the
// chart with every value. The keys say which.
func everyManifest(t *testing.T) map[string]string {
	t.Helper()
	if manifests != nil {
		return manifests
	}
	kubeVIP, err := os.ReadFile(filepath.Join(sourceTree(t), "deploy", "kube-vip", "kube-vip.yaml"))
	must(t, err)
	all := map[string]string{"kube-vip": string(kubeVIP)}
	for _, overlay := range overlays(t) {
		text, err := os.ReadFile(Rendered(sourceTree(t), overlay))
		must(t, err)
		all[overlay] = string(text)
		all[overlay+" with components/metrics"] = string(composedText(t, overlay, "metrics"))
	}
	for path, c := range valueCases(t) {
		text, err := template(t, c.flags(t, path)...)
		must(t, err)
		all["chart with "+path] = text
	}
	manifests = all
	return all
}

// manifests is what everyManifest has made.
var manifests map[string]string

// pods are the templates of a manifest, by the name of their workload.
func pods(t *testing.T, manifest string) map[string]corev1.PodSpec {
	t.Helper()
	found := map[string]corev1.PodSpec{}
	for _, o := range documents(t, manifest) {
		template, ok, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
		must(t, err)
		if !ok {
			continue
		}
		var spec corev1.PodSpec
		must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(template, &spec))
		found[o.GetName()] = spec
	}
	return found
}

// addressField is a field of the downward API that exists only once the Node has an address.
var addressField = regexp.MustCompile(`"fieldPath":"status\.(hostIPs?|podIPs?)"`)

// TestPodsNeedNoAddressOfTheirNode: a kubelet with --cloud-provider=external and without --node-ip knows no address of
// its Node until the controller has initialised it. Until then a container that asks for one is not created. A probe
// without a host would ask the same address.
func TestPodsNeedNoAddressOfTheirNode(t *testing.T) {
	checked := 0
	for name, manifest := range everyManifest(t) {
		for workload, spec := range pods(t, manifest) {
			checked++
			raw, err := json.Marshal(spec)
			must(t, err)
			if field := addressField.Find(raw); field != nil {
				t.Errorf("%s: %s needs %s, so it cannot start on a Node without addresses", name, workload, field)
			}
			for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
				for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
					if probe != nil && probe.HTTPGet != nil && probe.HTTPGet.Host != "127.0.0.1" {
						t.Errorf("%s: a probe of %s asks the host %q, want loopback",
							name, workload, probe.HTTPGet.Host)
					}
				}
			}
		}
	}
	if want := 2 * len(slices.Collect(maps.Keys(valueCases(t)))); checked < want {
		t.Errorf("%d workloads were looked at, want %d or more", checked, want)
	}
}

// TestNothingIsServedPublicly: the network of the pods is that of the host, so an address that a flag names may be the
// Internet's.
func TestNothingIsServedPublicly(t *testing.T) {
	bind := regexp.MustCompile(`^--(bind-address|metrics-bind-address)=(.*)$`)
	for name, manifest := range everyManifest(t) {
		for workload, spec := range pods(t, manifest) {
			for _, c := range spec.Containers {
				bound := 0
				for _, arg := range c.Args {
					if flag := bind.FindStringSubmatch(arg); flag != nil {
						bound++
						if host, _, _ := strings.Cut(flag[2], ":"); host != "127.0.0.1" {
							t.Errorf("%s: %s has %s, want loopback", name, workload, arg)
						}
					}
				}
				if want := strings.HasPrefix(workload, "phoenixnap-"); (bound == 1) != want {
					t.Errorf("%s: %s has %v", name, workload, c.Args)
				}
			}
		}
	}
}

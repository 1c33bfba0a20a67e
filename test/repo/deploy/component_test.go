package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/listen"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
)

// deployFrom is the relative path of the directory deploy from a temporary directory.
func deployFrom(t *testing.T, dir string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(dir)
	must(t, err)
	relative, err := filepath.Rel(dir, filepath.Join(sourceTree(t), "deploy"))
	must(t, err)
	return filepath.ToSlash(relative)
}

// built is what kustomize makes of a kustomization in a directory.
func built(t *testing.T, dir, kustomization string) []byte {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(kustomization), 0o600))
	manifests, err := controlplane.Read(t.Context(), dir)
	must(t, err)
	return manifests[0].Data
}

// composedText is the result of adding a component to an overlay, in a separate directory.
func composedText(t *testing.T, overlay, component string) []byte {
	t.Helper()
	dir := t.TempDir()
	return built(t, dir, fmt.Sprintf("resources: [%[1]s/overlays/%[2]s]\ncomponents: [%[1]s/components/%[3]s]\n",
		deployFrom(t, dir), overlay, component))
}

// composed are its workloads.
func composed(t *testing.T, overlay, component string) (*appsv1.Deployment, *appsv1.DaemonSet) {
	t.Helper()
	var deployment *appsv1.Deployment
	var daemonSet *appsv1.DaemonSet
	for _, o := range documents(t, string(composedText(t, overlay, component))) {
		raw, err := o.MarshalJSON()
		must(t, err)
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
		must(t, err)
		switch typed := object.(type) {
		case *appsv1.Deployment:
			deployment = typed
		case *appsv1.DaemonSet:
			daemonSet = typed
		}
	}
	return deployment, daemonSet
}

// TestMetricsComponent: a Prometheus in the cluster reaches what it serves, by a named port where there is one.
func TestMetricsComponent(t *testing.T) {
	deployment, daemonSet := composed(t, "kubeadm", "metrics")
	plain := controller(t, "kubeadm").Spec.Template.Spec.Containers[0]
	controller := deployment.Spec.Template.Spec.Containers[0]
	if len(controller.Ports) != 1 || controller.Ports[0].Name != "metrics" ||
		controller.Ports[0].ContainerPort != controller.LivenessProbe.HTTPGet.Port.IntVal {
		t.Errorf("%s: ports %v, probe %v", controller.Name, controller.Ports, controller.LivenessProbe.HTTPGet)
	}
	agents := agent(t, "kubeadm").Spec.Template.Spec.Containers[0].Args
	for _, args := range [][2][]string{{plain.Args, controller.Args},
		{agents, daemonSet.Spec.Template.Spec.Containers[0].Args}} {
		if want := slices.Concat(args[0], []string{"--" + listen.Flag}); !slices.Equal(args[1], want) {
			t.Errorf("the arguments are %v, want %v", args[1], want)
		}
	}
}

// TestAgentsUpdateBesideEachOther: where the agents announce, the new agent of a node starts before the old one ends.
// So no port may be declared, which only one pod of a node could have, and what the old agent answers must not make the
// new one count as started.
func TestAgentsUpdateBesideEachOther(t *testing.T) {
	_, daemonSet := composed(t, "kubeadm-agent", "metrics")
	update := daemonSet.Spec.UpdateStrategy.RollingUpdate
	if update.MaxSurge.String() != "10%" || update.MaxUnavailable.String() != "0" {
		t.Errorf("an update is %v", update)
	}
	container := daemonSet.Spec.Template.Spec.Containers[0]
	if len(container.Ports) != 0 || container.StartupProbe == nil || container.StartupProbe.Exec == nil {
		t.Errorf("ports %v, startup probe %v", container.Ports, container.StartupProbe)
	}
}

// TestComponentsCompose puts one component onto the result of another.
func TestComponentsCompose(t *testing.T) {
	for component, holds := range map[string]func(*appsv1.Deployment, *appsv1.DaemonSet) bool{
		"single": func(d *appsv1.Deployment, _ *appsv1.DaemonSet) bool { return *d.Spec.Replicas == 1 },
		"manage-vlan": func(_ *appsv1.Deployment, s *appsv1.DaemonSet) bool {
			return len(s.Spec.Template.Spec.Containers[0].Args) == 3
		},
	} {
		deployment, daemonSet := composed(t, "k3s-agent", component)
		if !holds(deployment, daemonSet) {
			t.Errorf("%s on k3s-agent: %v, %v", component, deployment.Spec, daemonSet.Spec)
		}
	}
}

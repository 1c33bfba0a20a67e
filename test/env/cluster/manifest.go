package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// workload is a DaemonSet as a supervisor without a kubelet sees it: where it may run, and its container's
// command line. It is read from the shipped manifest, so the lab runs what users install.
type workload struct {
	pod       *corev1.Pod
	container corev1.Container
}

// loadWorkload reads the one DaemonSet in the manifest at path.
func loadWorkload(path string) (workload, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return workload{}, fmt.Errorf("read DaemonSet: %w", err)
	}
	for dec := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096); ; {
		var set appsv1.DaemonSet
		if err := dec.Decode(&set); errors.Is(err, io.EOF) {
			return workload{}, fmt.Errorf("%s holds no DaemonSet with one container", path)
		} else if err != nil {
			return workload{}, fmt.Errorf("%s: %w", path, err)
		}
		if set.Kind == "DaemonSet" && len(set.Spec.Template.Spec.Containers) == 1 {
			return workload{
				pod:       &corev1.Pod{Spec: set.Spec.Template.Spec},
				container: set.Spec.Template.Spec.Containers[0],
			}, nil
		}
	}
}

// mayRunOn reports whether the DaemonSet controller would keep a pod on node: by node selector and required
// node affinity, as the scheduler reads them.
func (w workload) mayRunOn(node *corev1.Node) (bool, error) {
	match, err := nodeaffinity.GetRequiredNodeAffinity(w.pod).Match(node)
	if err != nil {
		return false, fmt.Errorf("match DaemonSet with node %s: %w", node.Name, err)
	}
	return match, nil
}

// environment is the container's environment on the named node as NAME=value; override replaces or adds.
func (w workload) environment(node string, override map[string]string) ([]string, error) {
	values := map[string]string{}
	for _, v := range w.container.Env {
		switch {
		case v.ValueFrom == nil:
			values[v.Name] = v.Value
		case v.ValueFrom.FieldRef != nil && v.ValueFrom.FieldRef.FieldPath == "spec.nodeName":
			values[v.Name] = node
		default:
			return nil, fmt.Errorf("container %s: the lab cannot resolve the environment variable %s", w.container.Name,
				v.Name)
		}
	}
	for name, value := range override {
		values[name] = value
	}
	env := make([]string, 0, len(values))
	for name, value := range values {
		env = append(env, name+"="+value)
	}
	sort.Strings(env)
	return env, nil
}

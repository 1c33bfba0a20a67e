package zone

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/utils/ptr"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

const (
	// patience bounds a wait; what is awaited takes seconds.
	patience = 3 * time.Minute
	replicas = 4

	zoneLabel     = "topology.kubernetes.io/zone"
	betaZoneLabel = "failure-domain.beta.kubernetes.io/zone"
	server3ID     = "5fa54d1e91867c03a0a7b4a6"
)

// deployments are those of the test, with the label over whose values they are spread.
var deployments = map[string]string{"stable": zoneLabel, "beta": betaZoneLabel}

// world is a control plane with kube-controller-manager and kube-scheduler, and an account with servers at two
// locations: node-1 and node-2 at ASH, node-3 at PHX.
type world struct {
	*testing.T
	plane *controlplane.ControlPlane
	kube  kubernetes.Interface
	url   string
	dir   string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	seed := simtest.Seed()
	seed.Accounts[0].Servers = append(seed.Accounts[0].Servers, pnapsim.ServerSeed{
		ID: server3ID, Hostname: "node-3", Type: "d2.c3.xlarge", Location: "PHX", NetworkType: "PRIVATE_ONLY",
		PrivateIPs: []string{"10.0.0.13"},
	})
	_, url := simtest.New(t, pnapsim.Config{Clock: pnapsim.NewRealClock(1)}, seed)
	plane := controlplane.ForTest(t)
	w := &world{T: t, plane: plane, kube: plane.Kube(), url: url, dir: t.ArtifactDir()}
	// Only what makes pods of a Deployment: there are no kubelets, for whose silence others would evict them.
	w.start("kube-controller-manager", "--use-service-account-credentials",
		"--controllers=deployment-controller,replicaset-controller,serviceaccount-controller,"+
			"endpointslice-controller")
	w.start("kube-scheduler")
	return w
}

// start starts a program of Kubernetes as the user that the API server's own roles are for.
func (w *world) start(name string, flags ...string) {
	w.Helper()
	program, err := tools.Binary(w.Context(), name)
	w.ok(err)
	config, err := w.plane.User("system:" + name)
	w.ok(err)
	kubeconfig := filepath.Join(w.TempDir(), name+".kubeconfig")
	w.ok(controlplane.WriteKubeconfig(kubeconfig, config, ""))
	process, err := controlplane.StartProgram(w.dir, name, program, append([]string{
		"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--secure-port=0"}, flags...)...)
	w.ok(err)
	w.Cleanup(func() { w.ended(process.Stop(patience)) })
}

// startController starts the shipped controller with its manifest.
func (w *world) startController() {
	w.Helper()
	w.ok(w.plane.ApplyFiles(w.Context(), filepath.Join("..", "..", "..", "deploy", "rendered", "kubeadm",
		"deployment.yaml")))
	process, err := w.plane.StartController(w.Context(), w.TempDir(), fmt.Appendf(nil,
		`{"clientID":%q,"clientSecret":%q,"base-url":%q,"location":"ASH","loadbalancer":"kube-vip://%s"}`,
		simtest.ClientID, simtest.ClientSecret, w.url, simtest.NetworkID))
	w.ok(err)
	w.Cleanup(func() { w.ended(process.Stop(patience)) })
}

// ok ends the test after an error of its surroundings.
func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) ended(err error) {
	w.Helper()
	if err != nil {
		w.Error(err)
	}
}

// until waits until check returns no error.
func (w *world) until(check func() error) {
	w.Helper()
	var last error
	if wait.PollUntilContextTimeout(w.Context(), 100*time.Millisecond, patience, true,
		func(context.Context) (bool, error) {
			last = check()
			return last == nil, nil
		}) != nil {
		w.Fatalf("after %s: %v", patience, last)
	}
}

// node registers a Ready Node with room for pods.
func (w *world) node(name string, change func(*corev1.Node)) {
	w.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelHostname: name}}}
	change(node)
	created, err := w.kube.CoreV1().Nodes().Create(w.Context(), node, metav1.CreateOptions{})
	w.ok(err)
	created.Spec.Taints = node.Spec.Taints // without not-ready, which the node lifecycle controller would remove
	created, err = w.kube.CoreV1().Nodes().Update(w.Context(), created, metav1.UpdateOptions{})
	w.ok(err)
	created.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	created.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110"),
		corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("16Gi")}
	_, err = w.kube.CoreV1().Nodes().UpdateStatus(w.Context(), created, metav1.UpdateOptions{})
	w.ok(err)
}

// initialised registers a Node as an older version of the controller has initialised it, without a zone.
func (w *world) initialised(name, serverID, kind, location string) {
	w.Helper()
	w.node(name, func(node *corev1.Node) {
		node.Spec.ProviderID = contract.ProviderID(serverID)
		node.Labels[corev1.LabelInstanceType] = kind
		node.Labels[corev1.LabelInstanceTypeStable] = kind
		node.Labels[corev1.LabelFailureDomainBetaRegion] = location
		node.Labels[corev1.LabelTopologyRegion] = location
	})
}

// deploy creates a Deployment whose pods must be spread evenly over the values of a label.
func (w *world) deploy(name, key string) {
	w.Helper()
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	_, err := w.kube.AppsV1().Deployments(metav1.NamespaceDefault).Create(w.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(replicas)), Selector: selector,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: selector.MatchLabels},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Name: "pause", Image: "pause"}},
					TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
						MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selector,
						MinDomains: ptr.To(int32(2)), // the Nodes get their zones one after the other
					}},
				},
			},
		},
	}, metav1.CreateOptions{})
	w.ok(err)
}

func (w *world) pods(deployment string) ([]corev1.Pod, error) {
	list, err := w.kube.CoreV1().Pods(metav1.NamespaceDefault).List(w.Context(),
		metav1.ListOptions{LabelSelector: "app=" + deployment})
	if err == nil && len(list.Items) != replicas {
		err = fmt.Errorf("Deployment %s has %d pods", deployment, len(list.Items))
	}
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// stays returns no error if the scheduler has refused to place every pod for want of the label.
func (w *world) stays(deployment string) error {
	pods, err := w.pods(deployment)
	for _, pod := range pods {
		at := -1
		for i, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled {
				at = i
			}
		}
		switch {
		case pod.Spec.NodeName != "":
			return fmt.Errorf("pod %s is on %s", pod.Name, pod.Spec.NodeName)
		case at < 0:
			return fmt.Errorf("pod %s was not considered", pod.Name)
		}
		if condition := pod.Status.Conditions[at]; condition.Reason != corev1.PodReasonUnschedulable ||
			!strings.Contains(condition.Message, "missing required label") {
			return fmt.Errorf("pod %s: %s %s", pod.Name, condition.Reason, condition.Message)
		}
	}
	return err
}

// spread returns no error if the pods are placed evenly over the locations.
func (w *world) spread(deployment string) error {
	pods, err := w.pods(deployment)
	if err != nil {
		return err
	}
	got := map[string]int{}
	for _, pod := range pods {
		got[map[string]string{"node-1": "ASH", "node-2": "ASH", "node-3": "PHX"}[pod.Spec.NodeName]]++
	}
	if want := map[string]int{"ASH": replicas / 2, "PHX": replicas / 2}; !maps.Equal(got, want) {
		return fmt.Errorf("pods of %s by location: %v, want %v", deployment, got, want)
	}
	return nil
}

// labels returns no error if a Node has exactly these labels.
func (w *world) labels(name, kind, location string) error {
	node, err := w.kube.CoreV1().Nodes().Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	want := map[string]string{
		"kubernetes.io/hostname":                   name,
		"beta.kubernetes.io/instance-type":         kind,
		"node.kubernetes.io/instance-type":         kind,
		"failure-domain.beta.kubernetes.io/region": location,
		"topology.kubernetes.io/region":            location,
		betaZoneLabel:                              location,
		zoneLabel:                                  location,
		"phoenixnap.com/location":                  location,
		"phoenixnap.com/network-type":              "PRIVATE_ONLY",
		"phoenixnap.com/os":                        "ubuntu-jammy",
		"phoenixnap.com/server-type":               kind,
	}
	if !maps.Equal(node.Labels, want) {
		return fmt.Errorf("node %s has the labels %v, want %v", name, node.Labels, want)
	}
	if len(node.Spec.Taints) > 0 {
		return fmt.Errorf("node %s has the taints %v", name, node.Spec.Taints)
	}
	return nil
}

// Deployments that must be spread over zones stay Pending on Nodes without a zone. The controller gives the zone to new
// Nodes and to those that were initialised without one, and kube-scheduler places the pods, evenly.
func TestDeploymentIsSpreadOverZones(t *testing.T) {
	w := newWorld(t)
	w.initialised("node-1", simtest.Server1ID, "s1.c1.small", "ASH")
	w.initialised("node-3", server3ID, "d2.c3.xlarge", "PHX")
	w.node("node-2", func(node *corev1.Node) {
		node.Spec.Taints = []corev1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider, Value: "true",
			Effect: corev1.TaintEffectNoSchedule}}
	})
	for name, key := range deployments {
		w.deploy(name, key)
	}
	for name := range deployments {
		w.until(func() error { return w.stays(name) })
	}

	w.startController()
	began := time.Now()
	w.until(func() error {
		return errors.Join(w.labels("node-1", "s1.c1.small", "ASH"), w.labels("node-2", "s1.c1.small", "ASH"),
			w.labels("node-3", "d2.c3.xlarge", "PHX"))
	})
	for name := range deployments {
		w.until(func() error { return w.spread(name) })
	}
	t.Logf("figure zone_deployment_placed %.1f s", time.Since(began).Seconds())
}

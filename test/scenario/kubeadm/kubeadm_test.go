//go:build linux

package kubeadm

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"sigs.k8s.io/yaml"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/installer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

const (
	// patience bounds a wait; what is awaited takes seconds.
	patience = 3 * time.Minute
	// server is a server of the simulated account, and the Node of that name.
	server = "node-1"
	root   = "../../.."
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// guide is kubeadm with the configuration of the guide for the Node.
func guide(t *testing.T, admin *rest.Config) installer.Kubeadm {
	t.Helper()
	config, err := installer.Guide(filepath.Join(root, "docs/guides/install.md"))
	must(t, err)
	kubeadm, err := installer.NewKubeadm(t.TempDir(), config.For(server, netip.MustParseAddr("10.0.0.11")), admin)
	must(t, err)
	return kubeadm
}

// TestWhatTheKubeletIsStartedWith: kubeadm gives the kubelet the flag that everything hangs on, no address, and no
// taint; and no component of the control plane a cloud provider.
func TestWhatTheKubeletIsStartedWith(t *testing.T) {
	kubeadm := guide(t, nil)
	for _, phase := range [][]string{{"kubelet-start"}, {"control-plane", "all"}} {
		_, err := kubeadm.Init(t.Context(), phase...)
		must(t, err)
	}
	flags, err := kubeadm.KubeletFlags()
	must(t, err)
	if want := []string{"--hostname-override=" + server, "--cloud-provider=external"}; !slices.Equal(flags, want) {
		t.Errorf("the kubelet is started with %q, want %q", flags, want)
	}
	var kubelet map[string]any
	raw, err := os.ReadFile(kubeadm.Path(installer.KubeletConfig))
	must(t, err)
	must(t, yaml.Unmarshal(raw, &kubelet))
	for _, absent := range []string{"registerWithTaints", "providerID", "address"} {
		if value, ok := kubelet[absent]; ok {
			t.Errorf("the kubelet's configuration has %s: %v", absent, value)
		}
	}
	manifests, err := filepath.Glob(kubeadm.Path("/etc/kubernetes/manifests/kube-*.yaml"))
	must(t, err)
	for _, path := range manifests {
		raw, err := os.ReadFile(path)
		must(t, err)
		if strings.Contains(string(raw), "--cloud-provider") {
			t.Errorf("%s has a cloud provider", filepath.Base(path))
		}
	}
	if len(manifests) != 3 {
		t.Errorf("kubeadm wrote the manifests %q", manifests)
	}
}

// world is a control plane with what makes and places pods, an account, and one control-plane node of kubeadm.
type world struct {
	*testing.T
	plane *controlplane.ControlPlane
	kube  kubernetes.Interface
}

func newWorld(t *testing.T) *world {
	t.Helper()
	plane := controlplane.ForTest(t)
	w := &world{T: t, plane: plane, kube: plane.Kube()}
	w.start("kube-controller-manager", "--use-service-account-credentials",
		"--controllers=deployment-controller,replicaset-controller,daemonset-controller,serviceaccount-controller")
	w.start("kube-scheduler")
	w.register()
	_, err := guide(t, plane.Config()).Init(t.Context(), "mark-control-plane")
	must(t, err)
	return w
}

// start starts a program of Kubernetes as the user that the API server's own roles are for.
func (w *world) start(name string, flags ...string) {
	w.Helper()
	program, err := tools.Binary(w.Context(), name)
	must(w.T, err)
	config, err := w.plane.User("system:" + name)
	must(w.T, err)
	kubeconfig := filepath.Join(w.TempDir(), name+".kubeconfig")
	must(w.T, controlplane.WriteKubeconfig(kubeconfig, config, ""))
	process, err := controlplane.StartProgram(w.ArtifactDir(), name, program, append([]string{
		"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--secure-port=0"}, flags...)...)
	must(w.T, err)
	w.Cleanup(func() {
		if err := process.Stop(patience); err != nil {
			w.Error(err)
		}
	})
}

// register makes the Node as a kubelet does that is started with the flags of the guide: tainted, without an address,
// and not ready, because there is no network plugin.
func (w *world) register() {
	w.Helper()
	config, err := w.plane.User("system:node:"+server, "system:nodes")
	must(w.T, err)
	kubelet, err := kubernetes.NewForConfig(config)
	must(w.T, err)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: server,
			Labels: map[string]string{corev1.LabelHostname: server, corev1.LabelOSStable: "linux"}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider,
			Value: "true", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse,
				Reason: "KubeletNotReady", Message: "cni plugin not initialized"}},
			Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110"),
				corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("16Gi")},
		},
	}
	_, err = kubelet.CoreV1().Nodes().Create(w.Context(), node, metav1.CreateOptions{})
	must(w.T, err)
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

func (w *world) node() *corev1.Node {
	w.Helper()
	node, err := w.kube.CoreV1().Nodes().Get(w.Context(), server, metav1.GetOptions{})
	must(w.T, err)
	return node
}

// placed returns no error if a pod of a name is placed on the node, and needs nothing that a kubelet does not know of
// it yet.
func (w *world) placed(name string) error {
	pods, err := w.kube.CoreV1().Pods(metav1.NamespaceSystem).List(w.Context(),
		metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + name})
	if err != nil {
		return err
	}
	for _, pod := range pods.Items {
		if pod.Spec.NodeName == server {
			return nil
		}
	}
	return fmt.Errorf("%d pods of %s, none on %s: %v", len(pods.Items), name, server, w.node().Spec.Taints)
}

// TestANewNodeOfKubeadm: kube-scheduler places controller and agent on a control-plane node as kubeadm leaves it,
// whatever more it is tainted with, and the controller initialises it.
func TestANewNodeOfKubeadm(t *testing.T) {
	w := newWorld(t)
	node := w.node()
	var taints []string
	for _, taint := range node.Spec.Taints {
		taints = append(taints, taint.Key+":"+string(taint.Effect))
	}
	slices.Sort(taints)
	// What the guide shows.
	if want := []string{"node-role.kubernetes.io/control-plane:NoSchedule",
		"node.cloudprovider.kubernetes.io/uninitialized:NoSchedule",
		"node.kubernetes.io/not-ready:NoSchedule"}; !slices.Equal(taints, want) || len(node.Status.Addresses) > 0 {
		t.Errorf("the Node has the taints %q and the addresses %v, want %q and none", taints, node.Status.Addresses, want)
	}
	for _, label := range []string{"node-role.kubernetes.io/control-plane",
		"node.kubernetes.io/exclude-from-external-load-balancers"} {
		if value, ok := node.Labels[label]; !ok || value != "" {
			t.Errorf("the Node has no label %s: %v", label, node.Labels)
		}
	}
	node.Spec.Taints = append(node.Spec.Taints,
		corev1.Taint{Key: "node.cluster.x-k8s.io/uninitialized", Effect: corev1.TaintEffectNoSchedule},
		corev1.Taint{Key: "node.cilium.io/agent-not-ready", Value: "true", Effect: corev1.TaintEffectNoExecute})
	_, err := w.kube.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
	must(t, err)

	must(t, w.plane.ApplyFiles(t.Context(), filepath.Join(root, "deploy/rendered/kubeadm-single/deployment.yaml")))
	for _, name := range []string{"phoenixnap-cloud-controller-manager", "phoenixnap-agent"} {
		w.until(func() error { return w.placed(name) })
	}

	_, url := simtest.New(t, pnapsim.Config{Clock: pnapsim.NewRealClock(1)}, simtest.Seed())
	process, err := w.plane.StartController(t.Context(), t.TempDir(), fmt.Appendf(nil,
		`{"clientID":%q,"clientSecret":%q,"base-url":%q,"location":"ASH","loadbalancer":"kube-vip://%s"}`,
		simtest.ClientID, simtest.ClientSecret, url, simtest.NetworkID))
	must(t, err)
	t.Cleanup(func() {
		if err := process.Stop(patience); err != nil {
			t.Error(err)
		}
	})
	w.until(func() error {
		node := w.node()
		hasAddress := slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool {
			return a.Type == corev1.NodeInternalIP
		})
		if !strings.HasPrefix(node.Spec.ProviderID, contract.ProviderName+"://") || !hasAddress {
			return fmt.Errorf("provider ID %q, addresses %v", node.Spec.ProviderID, node.Status.Addresses)
		}
		return nil
	})
}

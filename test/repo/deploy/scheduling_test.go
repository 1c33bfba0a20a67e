package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	componenthelpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

const (
	controlPlane = "node-role.kubernetes.io/control-plane"
	// uninitialized is the taint of a kubelet with --cloud-provider=external.
	uninitialized = "node.cloudprovider.kubernetes.io/uninitialized:NoSchedule"
	// notReady is the taint that the API server gives a Node on its creation.
	notReady = "node.kubernetes.io/not-ready:NoSchedule"
)

// node is a Node with a label and taints, each of the form key:effect.
func node(label, value string, taints ...string) *corev1.Node {
	n := &corev1.Node{}
	n.Name = "n"
	n.Labels = map[string]string{corev1.LabelOSStable: "linux"}
	if label != "" {
		n.Labels[label] = value
	}
	for _, taint := range taints {
		key, effect, _ := strings.Cut(taint, ":")
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffect(effect), Value: "true"})
	}
	return n
}

// runsOn is what the scheduler decides by labels and taints.
func runsOn(t *testing.T, spec corev1.PodSpec, n *corev1.Node) bool {
	t.Helper()
	match, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: spec}).Match(n)
	must(t, err)
	_, untolerated := componenthelpers.FindMatchingUntoleratedTaint(klog.Background(), n.Spec.Taints, spec.Tolerations,
		func(taint *corev1.Taint) bool {
			return taint.Effect != corev1.TaintEffectPreferNoSchedule
		}, false)
	return match && !untolerated
}

// newNodeTaints are the taints of a healthy node that is not ready for ordinary pods yet, or never is for them, and who
// sets each.
var newNodeTaints = map[string]string{
	uninitialized: "kubelet, --cloud-provider=external",
	notReady:      "API server, until the kubelet reports Ready",
	"node.kubernetes.io/network-unavailable:NoSchedule":        "kube-controller-manager, until a network plugin reports",
	"node.kubernetes.io/disk-pressure:NoSchedule":              "kube-controller-manager",
	"node.kubernetes.io/memory-pressure:NoSchedule":            "kube-controller-manager",
	"node.kubernetes.io/pid-pressure:NoSchedule":               "kube-controller-manager",
	controlPlane + ":NoSchedule":                               "kubeadm, RKE2 by Rancher",
	controlPlane + ":NoExecute":                                "RKE2, where a user follows its documentation",
	"node-role.kubernetes.io/etcd:NoExecute":                   "RKE2 by Rancher, k3s with etcd servers of their own",
	"node-role.kubernetes.io/etcd:NoSchedule":                  "Rancher",
	"node-role.kubernetes.io/master:NoSchedule":                "kubeadm before 1.24",
	"CriticalAddonsOnly:NoExecute":                             "k3s and RKE2, where a user follows their documentation",
	"CriticalAddonsOnly:NoSchedule":                            "cluster administrators",
	"node.cluster.x-k8s.io/uninitialized:NoSchedule":           "Cluster API, until the Node has a provider ID",
	"node.cluster.x-k8s.io/outdated-revision:PreferNoSchedule": "Cluster API",
	"node.cilium.io/agent-not-ready:NoExecute":                 "Cilium, as its documentation recommends",
	"node.cilium.io/agent-not-ready:NoSchedule":                "Cilium",
	"k8s.ovn.org/network-unavailable:NoSchedule":               "OVN-Kubernetes",
	"cni.istio.io/not-ready:NoSchedule":                        "Istio",
	"readiness.k8s.io/NetworkReady:NoSchedule":                 "the node readiness controller, with any name",
	"example.com/not-yet:NoSchedule":                           "cluster administrators",
}

// newNodes are the Nodes that installers make, before anything runs on them, by the overlay that fits them.
func newNodes(taint string) map[string]*corev1.Node {
	return map[string]*corev1.Node{
		"kubeadm": node(controlPlane, "", controlPlane+":NoSchedule", uninitialized, notReady, taint),
		"k3s":     node(controlPlane, "true", uninitialized, notReady, taint),
	}
}

// TestWhatKeepsOrdinaryPodsOffANewNode keeps neither the controller off, which may be what the node waits for, nor the
// agents. An ordinary pod would wait.
func TestWhatKeepsOrdinaryPodsOffANewNode(t *testing.T) {
	for name, manifest := range everyManifest(t) {
		for workload, spec := range pods(t, manifest) {
			switch {
			case name == "chart with controller.nodeSelector", name == "chart with controller.affinity",
				name == "chart with agent.nodeSelector", name == "chart with agent.affinity",
				name == "chart with agent.tolerations":
				continue // a user's own choice of nodes
			case workload == "kube-vip":
				continue // it waits for the controller's label on purpose
			}
			installer := "kubeadm"
			if strings.HasPrefix(name, "k3s") || spec.NodeSelector[controlPlane] == "true" {
				installer = "k3s"
			}
			for taint, by := range newNodeTaints {
				if n := newNodes(taint)[installer]; !runsOn(t, spec, n) {
					t.Errorf("%s: %s does not start on a new node of %s with the taint %s (%s)", name,
						workload, installer,
						taint, by)
				}
			}
		}
	}
	for taint := range newNodeTaints {
		for installer, n := range newNodes(taint) {
			if runsOn(t, corev1.PodSpec{}, n) {
				t.Errorf("an ordinary pod starts on a new node of %s with %s", installer, taint)
			}
		}
	}
}

// TestTaintsAreListed: the page lists the taints that were tried, and no others.
func TestTaintsAreListed(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(sourceTree(t), "docs", "reference", "support.md"))
	must(t, err)
	for taint, by := range newNodeTaints {
		if !strings.Contains(string(page), "| taint `"+taint+"` | "+by+" |") {
			t.Errorf("docs/reference/support.md does not list %s (%s)", taint, by)
		}
	}
	if listed := strings.Count(string(page), "\n| taint "); listed != len(newNodeTaints) {
		t.Errorf("docs/reference/support.md lists %d taints, %d were tried", listed, len(newNodeTaints))
	}
}

// TestScheduling: the controller runs on control-plane nodes only, and a node that is gone loses it. Agents run
// everywhere.
func TestScheduling(t *testing.T) {
	for name, tc := range map[string]struct {
		node *corev1.Node
		// by overlay
		kubeadm, k3s bool
	}{
		"a control-plane node of kubeadm": {node(controlPlane, "", controlPlane+":NoSchedule"), true, false},
		"a server of k3s":                 {node(controlPlane, "true"), false, true},
		"a worker":                        {node("", ""), false, false},
		"a new worker":                    {node("", "", uninitialized, notReady), false, false},
		"a control-plane node that fails": {node(controlPlane, "", "node.kubernetes.io/unreachable:NoExecute"), false,
			false},
		"a control-plane node that is out of service": {node(controlPlane, "",
			"node.kubernetes.io/out-of-service:NoExecute"), false, false},
		"a control-plane node whose kubelet reports that it is not ready": {node(controlPlane, "",
			"node.kubernetes.io/not-ready:NoExecute"), false, false},
		"a server that a user reserves for others": {node(controlPlane, "true", "example.com/reserved:NoExecute"), false,
			false},
		// As a pod of a DaemonSet does. While the old pod ends, the anti-affinity leads the new one to another node.
		"a server that a user drains": {node(controlPlane, "true", "node.kubernetes.io/unschedulable:NoSchedule"), false,
			true},
	} {
		for overlay, want := range map[string]bool{"kubeadm": tc.kubeadm, "k3s": tc.k3s} {
			if got := runsOn(t, controller(t, overlay).Spec.Template.Spec, tc.node); got != want {
				t.Errorf("%s: the controller of %s runs there: %t, want %t", name, overlay, got, want)
			}
			if !runsOn(t, agent(t, overlay).Spec.Template.Spec, tc.node) {
				t.Errorf("%s: the agent of %s does not run there", name, overlay)
			}
		}
	}
}

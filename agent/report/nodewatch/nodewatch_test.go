package nodewatch

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/nodenet"
)

// cp is the control plane of all tests of this package.
var cp *controlplane.ControlPlane

func TestMain(m *testing.M) { os.Exit(controlplane.Main(m, &cp)) }

// harness is both watchers at work on a real API server.
type harness struct {
	*testing.T
	*NodeWatcher
	*ServiceWatcher
	client kubernetes.Interface

	mu        sync.Mutex
	sightings []string
	changes   int
}

func watchNode(t *testing.T, name string) *harness {
	t.Helper()
	client, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	l := &harness{T: t, client: client}
	l.NodeWatcher = NewNodeWatcher(client, name, func(node *corev1.Node) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if node == nil {
			l.sightings = append(l.sightings, "gone")
			return
		}
		l.sightings = append(l.sightings, node.Name+" "+string(node.UID))
	})
	l.ServiceWatcher = NewServiceWatcher(client, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.changes++
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- l.NodeWatcher.Run(ctx) }()
	go func() { done <- l.ServiceWatcher.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		for range cap(done) {
			if err := <-done; err != nil {
				t.Errorf("Run returned %v after its context ended, want nil", err)
			}
		}
	})
	return l
}

func (h *harness) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *harness) eventually(what string, holds func() bool) {
	h.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); {
		if time.Now().After(deadline) {
			h.Fatalf("not within 20 s: %s", what)
		}
		<-time.After(20 * time.Millisecond)
	}
}

func (h *harness) seen() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Compact(slices.Clone(h.sightings))
}

func (h *harness) changeCount() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.changes
}

func TestOneNodeComesAndGoes(t *testing.T) {
	l := watchNode(t, "own")
	nodes := l.client.CoreV1().Nodes()
	var want []string
	for range 2 {
		for _, name := range []string{"other", "own"} {
			made, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
				metav1.CreateOptions{})
			l.must(err)
			if name == "own" {
				want = append(want, "own "+string(made.UID), "gone")
			}
		}
		l.eventually("the Node is seen", func() bool { return l.Node() != nil })
		for _, name := range []string{"own", "other"} {
			l.must(nodes.Delete(t.Context(), name, metav1.DeleteOptions{}))
		}
		l.eventually("the Node is gone", func() bool { return l.Node() == nil })
	}
	l.eventually("all was reported", func() bool { return len(l.seen()) == len(want) })
	if diff := cmp.Diff(want, l.seen()); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
}

func (h *harness) names() string {
	services, _ := h.Services()
	var names []string
	for _, s := range services {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// TestOnlyLoadBalancers: the API server sends no other Service, and one that becomes another type is gone.
func TestOnlyLoadBalancers(t *testing.T) {
	l := watchNode(t, "none")
	l.eventually("Services are listed", func() bool { _, known := l.Services(); return known })
	services := l.client.CoreV1().Services("default")
	for name, kind := range map[string]corev1.ServiceType{"a": corev1.ServiceTypeLoadBalancer,
		"b": corev1.ServiceTypeClusterIP, "c": corev1.ServiceTypeNodePort} {
		_, err := services.Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name,
			Annotations: map[string]string{
				contract.ServiceIPAddress: "203.0.113.5", "example.com/big": strings.Repeat("x", 1000),
			}}, Spec: corev1.ServiceSpec{Type: kind, Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{})
		l.must(err)
		t.Cleanup(func() {
			if err := services.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	become := func(name string, kind corev1.ServiceType) {
		patch := fmt.Sprintf(`{"spec":{"type":%q}}`, kind)
		_, err := services.Patch(t.Context(), name, "application/merge-patch+json", []byte(patch),
			metav1.PatchOptions{})
		l.must(err)
	}
	l.eventually("a is there", func() bool { return l.names() == "a" })
	become("b", corev1.ServiceTypeLoadBalancer)
	l.eventually("b came", func() bool { return l.names() == "a b" })
	become("a", corev1.ServiceTypeClusterIP)
	l.eventually("a went", func() bool { return l.names() == "b" })
	kept, _ := l.Services()
	if diff := cmp.Diff(map[string]string{contract.ServiceIPAddress: "203.0.113.5"}, kept[0].Annotations); diff != "" {
		t.Errorf("annotations kept (-want +got):\n%s", diff)
	}
	// The store is ahead of its handlers.
	l.eventually("three changes are reported", func() bool { return l.changeCount() >= 3 })
	if n := l.changeCount(); n != 3 {
		t.Errorf("%d changes reported, want 3", n)
	}
}

func TestStrip(t *testing.T) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "7",
			Annotations:   map[string]string{contract.NodeServerID: "s", "other": "x"},
			Labels:        map[string]string{contract.NodeVLANReady: "true", "zone": "z"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}},
		Spec: corev1.NodeSpec{PodCIDRs: []string{"10.0.0.0/24"}, Unschedulable: true,
			Taints: []corev1.Taint{{Key: corev1.TaintNodeUnschedulable}, {Key: "ToBeDeletedByClusterAutoscaler"}}},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady}, {Type: corev1.NodeDiskPressure},
				{Type: contract.ConditionVLANReady}},
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.11"}},
			Images:    []corev1.ContainerImage{{Names: []string{"big"}}},
		},
	}
	want := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "7",
			Annotations: map[string]string{contract.NodeServerID: "s"},
			Labels:      map[string]string{contract.NodeVLANReady: "true"}},
		Spec: corev1.NodeSpec{PodCIDRs: []string{"10.0.0.0/24"}, Unschedulable: true,
			Taints: []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler"}}},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady}, {Type: contract.ConditionVLANReady}},
			Addresses:  node.Status.Addresses,
		},
	}
	got, err := strip(node)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("(-want +got, %v):\n%s", err, diff)
	}
}

func networkOf(announcer string) contract.NodeNetwork {
	return contract.NodeNetwork{ID: "n", Announcer: announcer}
}

// What decides whether a Node may carry traffic is not stripped.
func TestStripKeepsWhatBars(t *testing.T) {
	for name, change := range map[string]func(*corev1.Node){
		"nothing":     func(*corev1.Node) {},
		"excluded":    func(n *corev1.Node) { n.Labels[corev1.LabelNodeExcludeBalancers] = "" },
		"handed over": func(n *corev1.Node) { n.Annotations[contract.NodeHandOver] = "true" },
		"unselected":  func(n *corev1.Node) { maps.Copy(n.Annotations, nodenet.On(networkOf(contract.AnnouncerNone))) },
		"deleted":     func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{} },
		"scaled down": func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "other"}, {Key: "ToBeDeletedByClusterAutoscaler"}}
		},
		"cordoned": func(n *corev1.Node) { n.Spec.Unschedulable = true },
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{},
			Annotations: nodenet.On(networkOf(contract.AnnouncerAgent))}}
		change(node)
		kept := stripNode(node)
		if got, want := (contract.Carriers{}).Barred(kept), (contract.Carriers{}).Barred(node); got != want ||
			kept.Spec.Unschedulable != node.Spec.Unschedulable {
			t.Errorf("%s: barred %+v, want %+v", name, got, want)
		}
	}
}

package metadata

import (
	"maps"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
)

// A real API server merges the conditions by type, rejects those for a changed Node, and allows the shipped
// ServiceAccount to read the Leases and write the conditions.
func TestAgentWatchOnAnAPIServer(t *testing.T) {
	cp := controlplane.ForTest(t)
	if err := cp.ApplyFiles(t.Context(), "../../../deploy/base/controller.yaml"); err != nil {
		t.Fatal(err)
	}
	shipped, err := cp.ServiceAccount(t.Context(), metav1.NamespaceSystem, "phoenixnap-cloud-controller-manager")
	if err != nil {
		t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(shipped)
	admin := kubernetes.NewForConfigOrDie(cp.Config())
	created := createOnServer(t, admin)

	nodes := informers.NewSharedInformerFactory(client, 0).Core().V1().Nodes()
	watch := NewAgentWatch(client, nodes, record.NewFakeRecorder(10))
	start := time.Now()
	look := func(cached *corev1.Node, after time.Duration) *corev1.Node {
		t.Helper()
		if err := nodes.Informer().GetIndexer().Replace([]any{cached}, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := watch.sync(testlog.Context(t), start.Add(after)); err != nil {
			t.Fatal(err)
		}
		current, err := admin.CoreV1().Nodes().Get(t.Context(), cached.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return current
	}
	status := func(node *corev1.Node) string {
		condition := contract.FindNodeCondition(node, contract.ConditionVLANReady)
		return string(condition.Status) + "/" + condition.Reason
	}

	look(created, 0)
	labelled := created.DeepCopy()
	labelled.Labels["changed"] = "meanwhile"
	if labelled, err = admin.CoreV1().Nodes().Update(t.Context(), labelled, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := status(look(created, silentAfter)); got != "True/AllChecksPassed" {
		t.Errorf("with a stale cache: %s", got)
	}
	after := look(labelled, silentAfter+time.Second)
	if got := status(after); got != "Unknown/AgentSilent" {
		t.Errorf("a silent agent: %s", got)
	}
	if ready := contract.FindNodeCondition(after, corev1.NodeReady); ready == nil ||
		ready.Status != corev1.ConditionTrue || len(after.Status.Conditions) != 2 {
		t.Errorf("conditions %v", after.Status.Conditions)
	}
}

// A zone that was set after the cached version is kept, and so is the rest of the Node; the shipped ServiceAccount may
// set a zone.
//
//proves:known-bugs/zone-overwritten
func TestAZoneThatTheCacheDoesNotKnowStays(t *testing.T) {
	cp := controlplane.ForTest(t)
	if err := cp.ApplyFiles(t.Context(), "../../../deploy/base/controller.yaml"); err != nil {
		t.Fatal(err)
	}
	shipped, err := cp.ServiceAccount(t.Context(), metav1.NamespaceSystem, "phoenixnap-cloud-controller-manager")
	if err != nil {
		t.Fatal(err)
	}
	nodes := kubernetes.NewForConfigOrDie(cp.Config()).CoreV1().Nodes()
	cached, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1",
		Labels: map[string]string{"a": "b"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	publisher := &NetworkPublisher{config: NetworkConfig{Client: kubernetes.NewForConfigOrDie(shipped)}}
	locate := func(cached *corev1.Node) map[string]string {
		t.Helper()
		if err := publisher.locate(testlog.Context(t), cached, pnap.Server{Location: "ASH"}); err != nil {
			t.Fatal(err)
		}
		current, err := nodes.Get(t.Context(), cached.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return current.Labels
	}
	labelled := cached.DeepCopy()
	labelled.Labels[corev1.LabelTopologyZone] = "rack-7"
	if labelled, err = nodes.Update(t.Context(), labelled, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, want := locate(cached), map[string]string{"a": "b", corev1.LabelTopologyZone: "rack-7"}; !maps.Equal(got,
		want) {
		t.Errorf("with a stale cache: %v, want %v", got, want)
	}
	delete(labelled.Labels, corev1.LabelTopologyZone)
	if labelled, err = nodes.Update(t.Context(), labelled, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"a": "b", corev1.LabelTopologyZone: "ASH", corev1.LabelFailureDomainBetaZone: "ASH"}
	if got := locate(labelled); !maps.Equal(got, want) {
		t.Errorf("a Node without a zone: %v, want %v", got, want)
	}
}

func createOnServer(t *testing.T, admin kubernetes.Interface) *corev1.Node {
	t.Helper()
	node, err := admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1",
		Labels: map[string]string{"a": "b"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
		{Type: contract.ConditionVLANReady, Status: corev1.ConditionTrue, Reason: "AllChecksPassed"},
	}
	if node, err = admin.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	renewed := metav1.NowMicro()
	if _, err := admin.CoordinationV1().Leases(metav1.NamespaceSystem).Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: contract.AgentLeasePrefix + node.Name},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &renewed},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return node
}

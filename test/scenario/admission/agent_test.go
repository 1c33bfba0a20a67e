package admission

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// agentOn is the client of the agent's pod on a Node.
func agentOn(t *testing.T, node string) kubernetes.Interface {
	t.Helper()
	config, err := cp.ServiceAccountOn(t.Context(), metav1.NamespaceSystem, "phoenixnap-agent", node)
	must(t, err)
	return clientOf(t, config)
}

// nodeOf makes a Node as a kubelet and the controller leave it.
func nodeOf(t *testing.T, admin kubernetes.Interface, name string) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}, Finalizers: []string{"example.com/keep"},
		Annotations:     map[string]string{contract.NodeServerID: "0123456789abcdef01234567"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: "default", UID: "1"}},
	}}
	created, err := admin.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	must(t, err)
	created.Status = corev1.NodeStatus{
		Addresses:   []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.11"}},
		Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")},
		Capacity:    corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")},
		Conditions:  []corev1.NodeCondition{condition(string(corev1.NodeReady), corev1.ConditionTrue)},
		Images:      []corev1.ContainerImage{{Names: []string{"example.com/a:1"}, SizeBytes: 1}},
	}
	_, err = admin.CoreV1().Nodes().UpdateStatus(t.Context(), created, metav1.UpdateOptions{})
	must(t, err)
	t.Cleanup(func() {
		ctx := cleanup(t)
		remove := []byte(`{"metadata":{"finalizers":null}}`)
		_, _ = admin.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, remove, metav1.PatchOptions{})
		_ = admin.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
	})
}

func condition(kind string, status corev1.ConditionStatus) corev1.NodeCondition {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	return corev1.NodeCondition{Type: corev1.NodeConditionType(kind), Status: status, Reason: "Test", Message: "test",
		LastHeartbeatTime: now, LastTransitionTime: now}
}

// object is a part of a patch.
type object map[string]any

func status(fields object) object { return object{"status": fields} }

func metadata(fields object) object { return object{"metadata": fields} }

func conditions(kinds ...string) object {
	var all []corev1.NodeCondition
	for _, kind := range kinds {
		all = append(all, condition(kind, corev1.ConditionFalse))
	}
	return status(object{"conditions": all})
}

// patchNode is how the agent writes: a strategic merge patch.
func patchNode(t *testing.T, client kubernetes.Interface, name string, patch object, subresources ...string) error {
	t.Helper()
	raw, err := json.Marshal(patch)
	must(t, err)
	_, err = client.CoreV1().Nodes().Patch(t.Context(), name, types.StrategicMergePatchType, raw, metav1.PatchOptions{},
		subresources...)
	return err
}

// TestAgentWritesToItsNode is all that an agent does to its Node, on a Node that others write to.
func TestAgentWritesToItsNode(t *testing.T) {
	admin := install(t)
	nodeOf(t, admin, "own")
	agent := agentOn(t, "own")
	ours := []string{contract.ConditionVLANReady, contract.ConditionAnnouncementHealthy}
	for what, patch := range map[string]object{
		"conditions":         conditions(ours...),
		"one condition":      conditions(contract.ConditionVLANReady),
		"an annotation":      metadata(object{"annotations": object{contract.NodeReportedIdentity: "{}"}}),
		"another annotation": metadata(object{"annotations": object{contract.NodeReportedAddresses: "{}"}}),
		"taken back":         metadata(object{"annotations": object{contract.NodeReportedAddresses: nil}}),
		"all in one": {"metadata": object{"annotations": object{contract.NodeReportedIdentity: "{}"}},
			"status": conditions(ours...)["status"]},
		"nothing":             {},
		"what is there twice": metadata(object{"labels": object{"kubernetes.io/hostname": "own"}}),
	} {
		if err := patchNode(t, agent, "own", patch, "status"); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	node, err := admin.CoreV1().Nodes().Get(t.Context(), "own", metav1.GetOptions{})
	must(t, err)
	for _, kind := range append(ours, string(corev1.NodeReady)) {
		if contract.FindNodeCondition(node, corev1.NodeConditionType(kind)) == nil {
			t.Errorf("the Node lacks the condition %s", kind)
		}
	}
}

// TestAgentIsConfinedToItsNode tries everything that RBAC lets an agent do, and the policy does not.
func TestAgentIsConfinedToItsNode(t *testing.T) {
	admin := install(t)
	nodeOf(t, admin, "mine")
	nodeOf(t, admin, "others")
	agent := agentOn(t, "mine")
	for what, tc := range map[string]struct {
		node  string
		patch object
		says  string
	}{
		"another Node": {"others", conditions(contract.ConditionVLANReady),
			"the agent on Node mine may not write Node others"},
		"another condition": {"mine", conditions("Ready"), "may change only these conditions of its Node"},
		"a new condition":   {"mine", conditions("example.com/New"), "may change only these conditions of its Node"},
		"a condition taken": {"mine", status(object{"conditions": []object{{"type": "Ready", "$patch": "delete"}}}),
			"may change only these conditions of its Node"},
		"ours and another": {"mine", conditions(contract.ConditionVLANReady, "Ready"),
			"may change only these conditions of its Node"},
		"a label": {"mine", metadata(object{"labels": object{contract.NodeVLANReady: "true"}}),
			"these metadata of its Node: labels"},
		"a label taken": {"mine", metadata(object{"labels": object{"kubernetes.io/hostname": nil}}),
			"these metadata of its Node"},
		"an owner": {"mine", metadata(object{"ownerReferences": []object{{"apiVersion": "v1", "kind": "Pod",
			"name": "p", "uid": "2"}}}), "ownerReferences"},
		"a finalizer": {"mine", metadata(object{"finalizers": []string{"example.com/mine"}}), "finalizers"},
		"a finalizer taken": {"mine",
			metadata(object{"$deleteFromPrimitiveList/finalizers": []string{"example.com/keep"}}),
			"these metadata of its Node"},
		"another annotation": {"mine",
			metadata(object{"annotations": object{contract.NodeServerID: "76543210fedcba9876543210"}}),
			"may change only these annotations"},
		"a new annotation": {"mine", metadata(object{"annotations": object{"example.com/new": "1"}}),
			"may change only these annotations"},
		"an annotation taken": {"mine", metadata(object{"annotations": object{contract.NodeServerID: nil}}),
			"may change only these annotations"},
		"addresses": {"mine",
			status(object{"addresses": []object{{"type": "InternalIP", "address": "10.9.9.9"}}}), "addresses"},
		"addresses taken": {"mine", status(object{"addresses": nil, "$retainKeys": []string{"conditions"}}),
			"may change the conditions in the status"},
		"allocatable":       {"mine", status(object{"allocatable": object{"cpu": "64"}}), "allocatable"},
		"capacity":          {"mine", status(object{"capacity": object{"example.com/gpu": "8"}}), "capacity"},
		"kubelet's version": {"mine", status(object{"nodeInfo": object{"kubeletVersion": "v9"}}), "nodeInfo"},
		"the kubelet's port": {"mine",
			status(object{"daemonEndpoints": object{"kubeletEndpoint": object{"Port": 1}}}), "daemonEndpoints"},
		"images":  {"mine", status(object{"images": []object{{"names": []string{"x"}}}}), "images"},
		"volumes": {"mine", status(object{"volumesInUse": []string{"v"}}), "volumesInUse"},
		"a field of a feature": {"mine", status(object{"features": object{"supplementalGroupsPolicy": true}}),
			"features"},
	} {
		err := patchNode(t, agent, tc.node, tc.patch, "status")
		if !refusedBy(err, "phoenixnap-agent-nodes") || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want it refused with %q", what, err, tc.says)
		}
	}
}

// TestAgentWithoutANodeWritesNothing holds a token that is bound to no pod.
func TestAgentWithoutANodeWritesNothing(t *testing.T) {
	admin := install(t)
	nodeOf(t, admin, "some")
	config, err := cp.ServiceAccount(t.Context(), metav1.NamespaceSystem, "phoenixnap-agent")
	must(t, err)
	agent := clientOf(t, config)
	if err := patchNode(t, agent, "some", conditions(contract.ConditionVLANReady), "status"); !refusedBy(err,
		"phoenixnap-agent-nodes") || !strings.Contains(err.Error(), "names no Node") {
		t.Errorf("a condition: %v", err)
	}
	if _, err := agent.CoordinationV1().Leases(metav1.NamespaceSystem).Create(t.Context(), leaseOf("some"),
		metav1.CreateOptions{}); !refusedBy(err, "phoenixnap-agent-leases") {
		t.Errorf("a Lease: %v", err)
	}
	if _, err := agent.CoreV1().Events("default").Create(t.Context(), event("", "Node", ""),
		metav1.CreateOptions{}); !refusedBy(err, "phoenixnap-agent-events") {
		t.Errorf("an event: %v", err)
	}
}

// TestWidenedRightsDoNotFreeAnAgent: the policies hold for an agent that was granted all rights, too.
func TestWidenedRightsDoNotFreeAnAgent(t *testing.T) {
	admin := install(t)
	nodeOf(t, admin, "wide")
	grantEverything(t, admin, "system:serviceaccount:kube-system:phoenixnap-agent")
	agent := agentOn(t, "wide")
	if err := patchNode(t, agent, "wide", metadata(object{"labels": object{"a": "b"}})); !refusedBy(err,
		"phoenixnap-agent-nodes") {
		t.Errorf("a label: %v", err)
	}
	if err := agent.CoreV1().Nodes().Delete(t.Context(), "wide", metav1.DeleteOptions{}); !refusedBy(err,
		"phoenixnap-agent-nodes") {
		t.Errorf("its deletion: %v", err)
	}
	if _, err := agent.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "made"}},
		metav1.CreateOptions{}); !refusedBy(err, "phoenixnap-agent-nodes") {
		t.Errorf("a Node: %v", err)
	}
	leases := agent.CoordinationV1().Leases(metav1.NamespaceSystem)
	must2(leases.Create(t.Context(), leaseOf("wide"), metav1.CreateOptions{}))(t)
	dropLeases(t, admin, "wide")
	if err := leases.Delete(t.Context(), contract.AgentLeasePrefix+"wide", metav1.DeleteOptions{}); !refusedBy(err,
		"phoenixnap-agent-leases") {
		t.Errorf("its Lease: %v", err)
	}
}

// dropLeases removes the Leases of some nodes when the test ends.
func dropLeases(t *testing.T, admin kubernetes.Interface, nodes ...string) {
	t.Cleanup(func() {
		for _, node := range nodes {
			must(t, admin.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(context.WithoutCancel(t.Context()),
				contract.AgentLeasePrefix+node, metav1.DeleteOptions{}))
		}
	})
}

func leaseOf(node string) *coordinationv1.Lease {
	now := metav1.NowMicro()
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: contract.AgentLeasePrefix + node},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &node, RenewTime: &now, AcquireTime: &now,
			LeaseDurationSeconds: ptr.To[int32](180)},
	}
}

func TestAgentRenewsOnlyItsOwnLease(t *testing.T) {
	admin := install(t)
	agent := agentOn(t, "l1").CoordinationV1().Leases(metav1.NamespaceSystem)
	own, err := agent.Create(t.Context(), leaseOf("l1"), metav1.CreateOptions{})
	must(t, err)
	own.Spec.RenewTime = ptr.To(metav1.NowMicro())
	must2(agent.Update(t.Context(), own, metav1.UpdateOptions{}))(t)

	if _, err := agent.Create(t.Context(), leaseOf("l2"), metav1.CreateOptions{}); !refusedBy(err,
		"phoenixnap-agent-leases") {
		t.Errorf("created another's Lease: %v", err)
	}
	other, err := admin.CoordinationV1().Leases(metav1.NamespaceSystem).Create(t.Context(), leaseOf("l2"),
		metav1.CreateOptions{})
	must(t, err)
	dropLeases(t, admin, "l1", "l2")
	if _, err := agent.Update(t.Context(), other, metav1.UpdateOptions{}); !refusedBy(err, "phoenixnap-agent-leases") {
		t.Errorf("renewed another's Lease: %v", err)
	}
	generated := leaseOf("l1")
	generated.Name = ""
	generated.GenerateName = contract.AgentLeasePrefix
	if _, err := agent.Create(t.Context(), generated, metav1.CreateOptions{}); !refusedBy(err,
		"phoenixnap-agent-leases") {
		t.Errorf("created a Lease with a generated name: %v", err)
	}
}

// event is one as the agent's recorder writes it.
func event(host, kind, name string) *corev1.Event {
	now := metav1.Now()
	namespace := "default"
	e := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: "test.", Namespace: namespace},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: kind, Name: name},
		Source:         corev1.EventSource{Component: "phoenixnap-agent", Host: host},
		Reason:         "Test", Message: "test", Type: corev1.EventTypeNormal, FirstTimestamp: now, LastTimestamp: now,
		Count: 1,
	}
	if kind == "Service" {
		e.InvolvedObject.Namespace = namespace
	}
	return e
}

func TestAgentSignsItsEvents(t *testing.T) {
	admin := install(t)
	events := agentOn(t, "e1").CoreV1().Events("default")
	for _, e := range []*corev1.Event{event("e1", "Node", "e1"), event("e1", "Service", "web")} {
		created, err := events.Create(t.Context(), e, metav1.CreateOptions{})
		must(t, err)
		created.Count++
		must2(events.Patch(t.Context(), created.Name, types.StrategicMergePatchType, []byte(`{"count":2}`),
			metav1.PatchOptions{}))(t)
	}
	foreign := event("e1", "Node", "e1")
	foreign.Source.Component = "kubelet"
	for what, e := range map[string]*corev1.Event{
		"as another agent": event("e2", "Node", "e1"), "as the kubelet": foreign,
		"about another Node": event("e1", "Node", "e2"), "about a Pod": event("e1", "Pod", "p"),
	} {
		if _, err := events.Create(t.Context(), e, metav1.CreateOptions{}); !refusedBy(err, "phoenixnap-agent-events") {
			t.Errorf("%s: %v", what, err)
		}
	}
	other, err := admin.CoreV1().Events("default").Create(t.Context(), event("e2", "Node", "e2"),
		metav1.CreateOptions{})
	must(t, err)
	if _, err := events.Patch(t.Context(), other.Name, types.StrategicMergePatchType,
		[]byte(`{"source":{"host":"e1"}}`), metav1.PatchOptions{}); !refusedBy(err, "phoenixnap-agent-events") {
		t.Errorf("took over the event of another component: %v", err)
	}
}

// TestAgentReadsNoSecrets: what RBAC refuses without any policy.
func TestAgentReadsNoSecrets(t *testing.T) {
	install(t)
	agent := agentOn(t, "s1")
	if _, err := agent.CoreV1().Secrets(metav1.NamespaceSystem).Get(t.Context(), "pnap-cloud-config",
		metav1.GetOptions{}); !forbidden(err) {
		t.Errorf("a Secret: %v", err)
	}
	if _, err := agent.CoreV1().Secrets(metav1.NamespaceSystem).List(t.Context(),
		metav1.ListOptions{}); !forbidden(err) {
		t.Errorf("all Secrets: %v", err)
	}
	if err := patchNode(t, agent, "s1", metadata(object{"labels": object{"a": "b"}})); !forbidden(err) {
		t.Errorf("metadata of its Node: %v", err)
	}
}

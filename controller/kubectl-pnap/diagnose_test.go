package main

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// agentPod creates the pod that the DaemonSet would create on a Node, in the given phase, and sets the kubelet's
// address.
func (s fixture) agentPod(node string, phase corev1.PodPhase, port int32) {
	s.Helper()
	s.ok(plane.ApplyFiles(s.Context(), deploy("base", "agent.yaml")))
	set := s.daemonSet()
	pods := s.kube.CoreV1().Pods(metav1.NamespaceSystem)
	pod, err := pods.Create(s.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: set.Name + "-" + node, Labels: set.Spec.Template.Labels},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: set.Spec.Template.Spec.ServiceAccountName,
			AutomountServiceAccountToken: ptr.To(false),
			Containers: []corev1.Container{{Name: set.Spec.Template.Spec.Containers[0].Name,
				Image: "none"}},
		},
	}, metav1.CreateOptions{})
	s.ok(err)
	s.Cleanup(func() {
		now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}
		s.ok(pods.Delete(context.WithoutCancel(s.Context()), pod.Name, now))
	})
	pod.Status.Phase = phase
	_, err = pods.UpdateStatus(s.Context(), pod, metav1.UpdateOptions{})
	s.ok(err)
	object, err := s.kube.CoreV1().Nodes().Get(s.Context(), node, metav1.GetOptions{})
	s.ok(err)
	object.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	object.Status.DaemonEndpoints.KubeletEndpoint.Port = port
	_, err = s.kube.CoreV1().Nodes().UpdateStatus(s.Context(), object, metav1.UpdateOptions{})
	s.ok(err)
}

// daemonSet returns the shipped DaemonSet.
func (s fixture) daemonSet() *appsv1.DaemonSet {
	s.Helper()
	text, err := os.ReadFile(deploy("base", "agent-daemonset.yaml"))
	s.ok(err)
	_, manifest, _ := strings.Cut(string(text), "kind: DaemonSet\n")
	manifest, _, _ = strings.Cut(manifest, "\n---\n")
	set := &appsv1.DaemonSet{}
	s.ok(yaml.Unmarshal([]byte(manifest), set))
	return set
}

// The shipped agent runs in its pod, through the API server, and the plugin passes on its output and exit code.
func TestDiagnoseRunsTheAgentOfTheNode(t *testing.T) {
	s := newFixture(t)
	k, port := newKubelet(t, "srv-a")
	s.agentPod("srv-a", corev1.PodRunning, port)
	for _, tc := range []struct {
		args, want []string
	}{
		{[]string{"node", "srv-a"}, []string{"diagnose", "--output=json"}},
		{[]string{"node", "srv-a", "--strict", "--fix=netplan"},
			[]string{"diagnose", "--output=json", "--fix=netplan", "--strict"}},
		{[]string{"vip", "203.0.113.18"}, []string{"diagnose", "vip", "203.0.113.18", "--output=json"}},
		{[]string{"vip", "shop/web"}, []string{"diagnose", "vip", "203.0.113.18", "--output=json"}},
		{[]string{"vip", "203.0.113.27"}, []string{"diagnose", "vip", "203.0.113.27", "--output=json"}},
	} {
		out, errOut, err := run(t, plane.Config(), append(append([]string{"diagnose"}, tc.args...), "--output=json")...)
		if code := codeOf(err); code != 1 && code != 3 { // this machine has no such network
			t.Errorf("%q ends with %v: %s", tc.args, err, errOut)
		}
		var document struct {
			Node   string            `json:"node"`
			Checks []json.RawMessage `json:"checks"`
		}
		if err := json.Unmarshal([]byte(out), &document); err != nil || document.Node != "srv-a" ||
			len(document.Checks) == 0 {
			t.Errorf("%q: %v, %d checks of %q: %s%s", tc.args, err, len(document.Checks), document.Node, out, errOut)
		}
		want := append([]string{"/exec/kube-system/phoenixnap-agent-srv-a/agent", "/phoenixnap-agent"}, tc.want...)
		if asked := <-k.asked; !slices.Equal(asked, want) {
			t.Errorf("%q: the kubelet got the request %q, want %q", tc.args, asked, want)
		}
	}
}

// The error names why the agent could not run, and what to do.
func TestDiagnoseReportsWhyNoAgentRuns(t *testing.T) {
	s := newFixture(t)
	s.node("srv-d", "", nil, false)
	s.agentPod("srv-b", corev1.PodPending, 1)
	s.agentPod("srv-a", corev1.PodRunning, 1)
	stranger, err := plane.User("stranger-to-pods")
	s.ok(err)
	viewer, err := plane.User("viewer-of-pods")
	s.ok(err)
	s.allow("viewer-of-pods", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"},
		Verbs: []string{"list"}})
	for _, tc := range []struct {
		as   string
		args string
		want []string
	}{
		{"admin", "node srv-b", []string{"pod kube-system/phoenixnap-agent-srv-b", "is not running (Pending)"}},
		{"admin", "node srv-d", []string{"no agent runs on Node srv-d", "--agent-namespace"}},
		{"admin", "node srv-x", []string{`node "srv-x" not found`}},
		{"admin", "vip shop/nothing", []string{"no Service shop/nothing has an address"}},
		{"admin", "vip shop/young", []string{"shop/young has no address yet: Pending"}},
		{"stranger", "node srv-a",
			[]string{`you lack the verb "list" on the resource "pods" in namespace kube-system`}},
		{"stranger", "vip 203.0.113.18", []string{"no Node can be queried", `"list" on the resource "nodes"`,
			"--node"}},
		{"viewer", "node srv-a",
			[]string{`you lack the verb "create" on the resource "pods/exec" in namespace kube-system`}},
	} {
		config := plane.Config()
		switch tc.as {
		case "stranger":
			config = stranger
		case "viewer":
			config = viewer
		}
		_, _, err := run(t, config, append([]string{"diagnose"}, strings.Fields(tc.args)...)...)
		for _, want := range tc.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s as %s: %v, want %q", tc.args, tc.as, err, want)
			}
		}
	}
}

// allow grants a user a permission in the whole cluster until the test ends.
func (s fixture) allow(user string, rule rbacv1.PolicyRule) {
	s.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{rule}}
	_, err := s.kube.RbacV1().ClusterRoles().Create(s.Context(), role, metav1.CreateOptions{})
	s.ok(err)
	_, err = s.kube.RbacV1().ClusterRoleBindings().Create(s.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	s.ok(err)
	s.ok(plane.AwaitAccess(s.Context(), user, "", role.Rules))
	s.Cleanup(func() {
		ctx := context.WithoutCancel(s.Context())
		s.ok(s.kube.RbacV1().ClusterRoleBindings().Delete(ctx, user, metav1.DeleteOptions{}))
		s.ok(s.kube.RbacV1().ClusterRoles().Delete(ctx, user, metav1.DeleteOptions{}))
	})
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
)

// operator returns a user with the shipped permissions, which are removed when the test ends.
func (s fixture) operator() *rest.Config {
	s.Helper()
	s.ok(plane.ApplyFiles(s.Context(), deploy("kubectl-pnap")))
	s.Cleanup(func() {
		policies := s.kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
		s.ok(policies.Delete(context.WithoutCancel(s.Context()), "phoenixnap-diagnose", metav1.DeleteOptions{}))
	})
	user, err := plane.User("operator", "phoenixnap:operators")
	s.ok(err)
	return user
}

// The shipped permissions are enough for everything that the plugin does.
func TestTheShippedRightsAreEnough(t *testing.T) {
	s := newFixture(t)
	operator := s.operator()
	out, errOut, err := run(t, operator, "status")
	if !errors.Is(err, errProblems) || strings.Contains(out, "you lack the verb") {
		t.Errorf("%v: %s", err, errOut)
	}
	golden(t, "status.txt", out)
	k, port := newKubelet(t, "srv-a")
	s.agentPod("srv-a", corev1.PodRunning, port)
	for _, args := range [][]string{{"node", "srv-a"}, {"vip", "203.0.113.18"}, {"vip", "shop/web"}} {
		out, errOut, err := run(t, operator, append(append([]string{"diagnose"}, args...), "--output=json")...)
		if code := codeOf(err); code != 1 && code != 3 || !json.Valid([]byte(out)) { // this machine has no such network
			t.Fatalf("%q ends with %v: %s%s", args, err, out, errOut)
		}
		<-k.asked
	}
	if _, _, err := run(t, operator, "diagnose", "node", "srv-x"); err == nil ||
		!strings.Contains(err.Error(), `node "srv-x" not found`) {
		t.Errorf("a Node that does not exist: %v", err)
	}
}

// Each of the shipped permissions is needed: without it something cannot be shown.
func TestTheShippedRightsAreNotMore(t *testing.T) {
	s := newFixture(t)
	operator := s.operator()
	k, port := newKubelet(t, "srv-a")
	s.agentPod("srv-a", corev1.PodRunning, port)
	works := func() bool {
		status, _, _ := run(t, operator, "status")
		status = strings.Join(strings.Fields(status), " ") // lines end anywhere
		_, _, absent := run(t, operator, "diagnose", "node", "srv-x")
		_, _, diagnosis := run(t, operator, "diagnose", "node", "srv-a")
		if codeOf(diagnosis) >= 0 {
			<-k.asked
		}
		return !strings.Contains(status, "you lack the verb") && codeOf(diagnosis) >= 0 &&
			strings.Contains(absent.Error(), `node "srv-x" not found`)
	}
	if !works() {
		t.Fatal("the shipped permissions are not enough")
	}
	tried := 0
	for _, right := range s.shippedRights() {
		// Which verb for pods/exec counts, "get" or "create", depends on the version of the API server and on the
		// protocol; without both nothing runs (TestDiagnoseReportsWhyNoAgentRuns). The policy, not the plugin, requires
		// "diagnose".
		if strings.HasSuffix(right.name, " pods/exec") || strings.HasSuffix(right.name, "diagnose agents") {
			continue
		}
		tried++
		right.take()
		eventually(t, func() bool { return !works() }, "everything is shown without "+right.name)
		right.restore()
		eventually(t, works, "not everything is shown with "+right.name+" again")
	}
	if tried < 7 {
		t.Errorf("only %d permissions were tried", tried)
	}
}

// right is a permission: one verb on one resource of a shipped role.
type right struct {
	name          string
	take, restore func()
}

// shippedRights returns the permissions of the installed roles.
func (s fixture) shippedRights() []right {
	s.Helper()
	var all []right
	for _, name := range []string{"phoenixnap:status", "phoenixnap:diagnose"} {
		cluster, err := s.kube.RbacV1().ClusterRoles().Get(s.Context(), name, metav1.GetOptions{})
		s.ok(err)
		all = append(all, rightsOf("ClusterRole "+name, cluster.Rules, func(rules []rbacv1.PolicyRule) {
			_, err := s.kube.RbacV1().ClusterRoles().Patch(s.Context(), name, types.MergePatchType, s.rulesPatch(rules),
				metav1.PatchOptions{})
			s.ok(err)
		})...)
	}
	roles, err := s.kube.RbacV1().Roles(metav1.NamespaceAll).List(s.Context(), metav1.ListOptions{})
	s.ok(err)
	for _, role := range roles.Items {
		if role.Name != "phoenixnap:status" && role.Name != "phoenixnap:diagnose" {
			continue
		}
		name := "Role " + role.Namespace + "/" + role.Name
		all = append(all, rightsOf(name, role.Rules, func(rules []rbacv1.PolicyRule) {
			_, err := s.kube.RbacV1().Roles(role.Namespace).Patch(s.Context(), role.Name, types.MergePatchType,
				s.rulesPatch(rules), metav1.PatchOptions{})
			s.ok(err)
		})...)
	}
	return all
}

func (s fixture) rulesPatch(rules []rbacv1.PolicyRule) []byte {
	s.Helper()
	patch, err := json.Marshal(map[string]any{"rules": rules})
	s.ok(err)
	return patch
}

// rightsOf splits the rules of a role into single permissions; set writes rules to the role.
func rightsOf(role string, rules []rbacv1.PolicyRule, set func([]rbacv1.PolicyRule)) []right {
	var single []rbacv1.PolicyRule
	var names []string
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				one := *rule.DeepCopy()
				one.Resources = []string{resource}
				one.Verbs = []string{verb}
				single = append(single, one)
				names = append(names, role+": "+verb+" "+resource)
			}
		}
	}
	var all []right
	for i, name := range names {
		others := append(append([]rbacv1.PolicyRule{}, single[:i]...), single[i+1:]...)
		all = append(all, right{name: name, take: func() { set(others) }, restore: func() { set(single) }})
	}
	return all
}

// The permission to run commands in kube-system is limited to the diagnosis of the agents; an administrator is not
// limited.
func TestWhoMayDiagnoseRunsNothingElse(t *testing.T) {
	s := newFixture(t)
	operator := s.operator()
	k, port := newKubelet(t, "srv-a")
	s.agentPod("srv-a", corev1.PodRunning, port)
	s.otherPod("etcd-srv-a")
	for _, tc := range []struct {
		pod, container string
		command        []string
	}{
		{"phoenixnap-agent-srv-a", "agent", []string{"/phoenixnap-agent", "cleanup"}},
		{"phoenixnap-agent-srv-a", "agent", []string{"/phoenixnap-agent"}},
		{"phoenixnap-agent-srv-a", "agent", []string{"sh", "diagnose"}},
		{"etcd-srv-a", "agent", []string{"/phoenixnap-agent", "diagnose"}},
	} {
		eventually(t, func() bool {
			err := s.exec(operator, tc.pod, tc.container, tc.command)
			if err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'phoenixnap-diagnose'") {
				drain(k.asked)
				return false
			}
			return true
		}, "an operator may run "+strings.Join(tc.command, " ")+" in "+tc.pod)
	}
	if err := s.exec(plane.Config(), "phoenixnap-agent-srv-a", "agent",
		[]string{"/phoenixnap-agent", "--help"}); err != nil {
		t.Errorf("an administrator is refused: %v", err)
	}
}

func drain(asked chan []string) {
	select {
	case <-asked:
	default:
	}
}

// exec runs a command in a pod of kube-system.
func (s fixture) exec(as *rest.Config, pod, container string, command []string) error {
	s.Helper()
	client, err := kubernetes.NewForConfig(as)
	s.ok(err)
	request := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(metav1.NamespaceSystem).Name(
		pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdout: true, Stderr: true},
			scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(as, "GET", request.URL().String())
	s.ok(err)
	var errOut bytes.Buffer
	return executor.StreamWithContext(s.Context(), remotecommand.StreamOptions{Stdout: io.Discard, Stderr: &errOut})
}

// otherPod creates a pod in kube-system that is not an agent.
func (s fixture) otherPod(name string) {
	s.Helper()
	pods := s.kube.CoreV1().Pods(metav1.NamespaceSystem)
	pod, err := pods.Get(s.Context(), "phoenixnap-agent-srv-a", metav1.GetOptions{})
	s.ok(err)
	_, err = pods.Create(s.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: pod.Spec},
		metav1.CreateOptions{})
	s.ok(err)
	s.Cleanup(func() {
		now := int64(0)
		s.ok(pods.Delete(context.WithoutCancel(s.Context()), name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	})
}

// eventually waits until the API server has applied a change of roles or policies.
func eventually(t *testing.T, holds func() bool, otherwise string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); {
		if time.Now().After(end) {
			t.Fatal(otherwise)
		}
	}
}

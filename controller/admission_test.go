package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// forger is a client of someone who may do everything to Services, and who may not publish addresses.
func forger(t *testing.T) kubernetes.Interface {
	t.Helper()
	const name = "forger"
	client := admin(t)
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"services"},
			Verbs: []string{"create"}}},
	}
	if _, err := client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config, err := plane.User(name)
	if err != nil {
		t.Fatal(err)
	}
	forger, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return forger
}

// switchPoliciesOff deletes the RoleBinding, which a controller of another test may have switched on; the next replica
// that a test starts installs it again, without a subject.
func switchPoliciesOff(t *testing.T) {
	t.Helper()
	err := admin(t).RbacV1().RoleBindings(metav1.NamespaceSystem).Delete(t.Context(), announcer.BindingName,
		metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

// forge tries to create Services that name an address, and returns what the API server says to the first that it
// refuses.
func forge(t *testing.T, client kubernetes.Interface) error {
	t.Helper()
	for _, service := range []*corev1.Service{
		{ObjectMeta: metav1.ObjectMeta{Name: "forged",
			Annotations: map[string]string{contract.ServiceIPAddress: "203.0.113.9"}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "forged"}, Spec: corev1.ServiceSpec{LoadBalancerIP: "203.0.113.9"}},
	} {
		service.Spec.Type = corev1.ServiceTypeLoadBalancer
		service.Spec.Ports = []corev1.ServicePort{{Port: 80}}
		if _, err := client.CoreV1().Services("default").Create(t.Context(), service,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			return err
		}
	}
	return nil
}

// TestPoliciesFollowTheConfiguration: the process itself, with the rights that are shipped, has the policies apply
// while an announcer is configured. A dry run does not switch them on, the end of the process does not switch them off,
// and a process without an announcer does.
func TestPoliciesFollowTheConfiguration(t *testing.T) {
	_, url := simtest.New(t, pnapsim.Config{Clock: pnapsim.NewRealClock(20)}, simtest.Seed())
	author := forger(t)
	switchPoliciesOff(t)
	subjects := func() int {
		binding, err := admin(t).RbacV1().RoleBindings(metav1.NamespaceSystem).Get(t.Context(), announcer.BindingName,
			metav1.GetOptions{})
		if err != nil {
			return 0
		}
		return len(binding.Subjects)
	}
	refused := func() error {
		err := forge(t, author)
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
			return fmt.Errorf("the API server says: %w", err)
		}
		return nil
	}
	run := func(name string, shows func(p *process), args ...string) {
		p := startReplica(t, name, url, nil, args...)
		shows(p)
		p.end()
		if strings.Contains(strings.ToLower(p.output()), "forbidden") {
			t.Errorf("%s: the log speaks of something forbidden", name)
		}
	}
	run("dry", func(p *process) {
		p.says("/rolebindings/" + announcer.BindingName)
		if err := forge(t, author); err != nil || subjects() != 0 {
			t.Errorf("a dry run has the policies apply: %v, %d subjects", err, subjects())
		}
	}, "--dry-run")
	run("announcing", func(*process) { eventually(t, 60*time.Second, refused) })
	if err := refused(); err != nil {
		t.Errorf("after the end of the process: %v", err)
	}
	run("nodes", func(*process) { eventually(t, 60*time.Second, func() error { return forge(t, author) }) },
		"--load-balancer=")
	if subjects() != 0 {
		t.Error("the subject is still there without an announcer")
	}
}

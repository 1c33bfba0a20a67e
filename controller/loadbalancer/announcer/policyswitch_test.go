package announcer

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
)

// installed is the RoleBinding as the manifests have it, with subjects.
func installed(subjects ...rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: BindingName, Namespace: metav1.NamespaceSystem,
			Labels: map[string]string{"kept": "true"}},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: BindingName},
		Subjects: subjects,
	}
}

var (
	ours  = rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: AccountName, Namespace: metav1.NamespaceSystem}
	other = rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "jane"}
)

func policySwitch(client *fake.Clientset, announcing bool) PolicySwitch {
	return PolicySwitch{Bindings: client.RbacV1().RoleBindings(metav1.NamespaceSystem), Announcing: announcing}
}

func storedBinding(t *testing.T, client *fake.Clientset) *rbacv1.RoleBinding {
	t.Helper()
	binding, err := client.RbacV1().RoleBindings(metav1.NamespaceSystem).Get(t.Context(), BindingName,
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return binding
}

// updates counts the writes.
func updates(client *fake.Clientset) (n int) {
	for _, action := range client.Actions() {
		if action.GetVerb() != "get" {
			n++
		}
	}
	return n
}

// TestSyncPolicies: the ServiceAccount is the only subject while an announcer is configured, else there is none;
// nothing else changes, and nothing is written twice.
func TestSyncPolicies(t *testing.T) {
	for name, tc := range map[string]struct {
		announcing   bool
		before, want []rbacv1.Subject
		writes       int
	}{
		"as installed": {announcing: true, want: []rbacv1.Subject{ours}, writes: 1},
		"switched on before": {announcing: true, before: []rbacv1.Subject{ours},
			want: []rbacv1.Subject{ours}},
		"another subject": {announcing: true, before: []rbacv1.Subject{other},
			want: []rbacv1.Subject{ours}, writes: 1},
		"as installed, without announcer": {},
		"announcer given up":              {before: []rbacv1.Subject{ours}, writes: 1},
		"another subject, no announcer":   {before: []rbacv1.Subject{other}, writes: 1},
	} {
		client := fake.NewClientset(installed(tc.before...))
		for range 2 {
			if err := policySwitch(client, tc.announcing).Sync(testlog.Context(t)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n := updates(client); n != tc.writes {
			t.Errorf("%s: %d writes, want %d", name, n, tc.writes)
		}
		if diff := cmp.Diff(installed(tc.want...), storedBinding(t, client), cmpopts.EquateEmpty(),
			cmpopts.IgnoreFields(metav1.ObjectMeta{}, "ManagedFields")); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
}

// TestPoliciesNotInstalled: without the policies nothing is to be switched, and nothing is made.
func TestPoliciesNotInstalled(t *testing.T) {
	client := fake.NewClientset()
	for _, announcing := range []bool{true, false} {
		if err := policySwitch(client, announcing).Sync(testlog.Context(t)); err != nil {
			t.Error(err)
		}
	}
	if n := updates(client); n != 0 {
		t.Errorf("%d writes", n)
	}
}

// TestSwitchRefused: what the API server refuses is an error that names the object.
func TestSwitchRefused(t *testing.T) {
	refused := apierrors.NewForbidden(rbacv1.Resource("rolebindings"), BindingName, errors.New("no"))
	for _, verb := range []string{"get", "update"} {
		client := fake.NewClientset(installed())
		client.PrependReactor(verb, "rolebindings",
			func(ktesting.Action) (bool, runtime.Object, error) { return true, nil, refused })
		if err := policySwitch(client, true).Sync(testlog.Context(t)); !apierrors.IsForbidden(err) ||
			!strings.Contains(err.Error(), "kube-system/"+BindingName) {
			t.Errorf("%s: %v", verb, err)
		}
	}
}

// TestRunPolicySwitch: an API server that cannot be reached is asked again, and what someone else changes is put right.
func TestRunPolicySwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(installed())
		failures := 2
		client.PrependReactor("get", "rolebindings", func(ktesting.Action) (bool, runtime.Object, error) {
			failures--
			return failures >= 0, nil, errors.New("no route to host")
		})
		ctx, cancel := context.WithCancel(testlog.Context(t))
		ended := make(chan error, 1)
		go func() { ended <- policySwitch(client, true).Run(ctx) }()
		pass(2 * retryAfter)
		if got := storedBinding(t, client).Subjects; !cmp.Equal(got, []rbacv1.Subject{ours}) {
			t.Errorf("subjects %v after two failures", got)
		}
		if _, err := client.RbacV1().RoleBindings(metav1.NamespaceSystem).Update(t.Context(), installed(other),
			metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		pass(bindingPeriod)
		if got := storedBinding(t, client).Subjects; !cmp.Equal(got, []rbacv1.Subject{ours}) {
			t.Errorf("subjects %v a look later", got)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v after its context ended", err)
		}
	})
}

// pass advances the time, and then waits until all goroutines are blocked.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

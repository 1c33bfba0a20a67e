package admission

import (
	"fmt"
	"math/rand/v2"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// enforced waits until the API server enforces every existing policy. It learns of policies and of bindings in the
// order in which they were written, so the effect of the last one proves that all are in effect. The name is one that
// the API server cannot know from a test before, whose policies may still be in effect after they are deleted.
func enforced(t *testing.T) {
	t.Helper()
	name := fmt.Sprintf("zz-test-marker-%016x", rand.Uint64())
	admin := clientOf(t, cp.Config())
	policies := admin.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	bindings := admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	must2(policies.Create(t.Context(), marker(name), metav1.CreateOptions{}))(t)
	must2(bindings.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        name,
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}, metav1.CreateOptions{}))(t)
	eventually(t, "the last of the policies", func() bool {
		_, err := admin.CoreV1().ConfigMaps("default").Create(t.Context(), configMap(name), dryRun)
		return refusedBy(err, name)
	})
	must(t, bindings.Delete(t.Context(), name, metav1.DeleteOptions{}))
	must(t, policies.Delete(t.Context(), name, metav1.DeleteOptions{}))
}

// marker is a policy that refuses ConfigMaps of its own name.
func marker(name string) *admissionregistrationv1.ValidatingAdmissionPolicy {
	creations := admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
			Resources: []string{"configmaps"}},
	}
	return &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: creations}}},
			Validations: []admissionregistrationv1.Validation{
				{Expression: fmt.Sprintf("object.metadata.name != %q", name)}},
		},
	}
}

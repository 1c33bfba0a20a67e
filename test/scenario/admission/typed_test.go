package admission

import (
	"fmt"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
)

// typeChecker is what the controller manager of Kubernetes checks policies with, with the schemas of the API server.
func typeChecker(kube kubernetes.Interface) *validating.TypeChecker {
	kinds := kube.Discovery()
	return &validating.TypeChecker{
		SchemaResolver: &resolver.ClientDiscoveryResolver{Discovery: kinds},
		RestMapper:     restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(kinds)),
	}
}

// warnings are what is wrong with the types in a policy: in its validations, which Kubernetes checks, and in what it
// does not check, variables and conditions.
func warnings(checker *validating.TypeChecker,
	policy *admissionregistrationv1.ValidatingAdmissionPolicy) (found []string) {
	for _, w := range checker.Check(policy) {
		found = append(found, w.FieldRef+": "+w.Warning)
	}
	context := checker.CreateContext(policy)
	check := func(field, expression string) {
		if results := checker.CheckExpression(context, expression); len(results) > 0 {
			found = append(found, field+": "+results.String())
		}
	}
	for _, v := range policy.Spec.Variables {
		check("variable "+v.Name, v.Expression)
	}
	for _, c := range policy.Spec.MatchConditions {
		check("condition "+c.Name, c.Expression)
	}
	return found
}

func TestExpressionsAreTyped(t *testing.T) {
	admin := install(t)
	apply(t, "kubectl-pnap")
	checker := typeChecker(admin)
	list, err := admin.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	if len(list.Items) < 5 {
		t.Errorf("%d policies are installed", len(list.Items))
	}
	for _, policy := range list.Items {
		for _, warning := range warnings(checker, &policy) {
			t.Errorf("%s: %s", policy.Name, warning)
		}
		if fail := policy.Spec.FailurePolicy; fail == nil || *fail != admissionregistrationv1.Fail {
			t.Errorf("%s allows what it cannot check", policy.Name)
		}
	}
}

// TestMistakesAreFound makes one mistake in each place.
func TestMistakesAreFound(t *testing.T) {
	checker := typeChecker(clientOf(t, cp.Config()))
	const right, wrong = `object.metadata.name == ""`, `object.metadata.nmae == ""`
	for mistake, policy := range map[string]admissionregistrationv1.ValidatingAdmissionPolicySpec{
		"none":       {Validations: []admissionregistrationv1.Validation{{Expression: right}}},
		"validation": {Validations: []admissionregistrationv1.Validation{{Expression: wrong}}},
		"message": {Validations: []admissionregistrationv1.Validation{{Expression: right,
			MessageExpression: "object.spec.nmae"}}},
		"variable":  {Variables: []admissionregistrationv1.Variable{{Name: "v", Expression: wrong}}},
		"condition": {MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "c", Expression: wrong}}},
	} {
		policy.MatchConstraints = nodes()
		want := 1
		if mistake == "none" {
			want = 0
		}
		if found := warnings(checker,
			&admissionregistrationv1.ValidatingAdmissionPolicy{Spec: policy}); len(found) != want {
			t.Errorf("mistake in %s: %s", mistake, fmt.Sprint(found))
		}
	}
}

func nodes() *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
			Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
				Resources: []string{"nodes"}},
		},
	}}}
}

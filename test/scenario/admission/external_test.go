package admission

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// external is a Service that names addresses of others.
func external(name string, addresses ...string) *corev1.Service {
	service := loadBalancer(name)
	service.Spec.Type = corev1.ServiceTypeClusterIP
	service.Spec.ExternalIPs = addresses
	return service
}

// TestExternalIPs: only an overlay that asks for it refuses new addresses in spec.externalIPs, from anyone who may not
// publish addresses; those that stand there stay, and every Service can be edited.
func TestExternalIPs(t *testing.T) {
	const policy = "phoenixnap-external-ips"
	admin := install(t)
	author := services{t, authorIn(t, "default")}
	externalIPs := func(addresses ...string) object {
		return object{"spec": object{"externalIPs": addresses}}
	}
	must(t, author.create(external("old", address, otherAddress)))
	must(t, author.create(external("none")))

	apply(t, "components/deny-external-ips/policy.yaml")
	t.Cleanup(func() {
		policies := admin.AdmissionregistrationV1()
		_ = policies.ValidatingAdmissionPolicyBindings().Delete(cleanup(t), policy, metav1.DeleteOptions{})
		_ = policies.ValidatingAdmissionPolicies().Delete(cleanup(t), policy, metav1.DeleteOptions{})
	})
	for what, err := range map[string]error{
		"creation":          author.create(external("new", gateway)),
		"the first address": author.patch("none", externalIPs(gateway)),
		"one more address":  author.patch("old", externalIPs(address, otherAddress, gateway)),
		"another address":   author.patch("old", externalIPs(gateway)),
		"a Service of another class": func() error {
			service := ofClass("classy", "metallb.io/metallb")
			service.Spec.ExternalIPs = []string{gateway}
			return author.create(service)
		}(),
	} {
		if !refusedBy(err, policy) || !strings.Contains(err.Error(), gateway+" from whoever has it") ||
			!strings.Contains(err.Error(), "ClusterRole phoenixnap:publish-addresses") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, patch := range map[string]object{
		"a label":        metadata(object{"labels": object{"a": "b"}}),
		"the same again": externalIPs(otherAddress, address),
		"one address":    externalIPs(address),
		"none":           externalIPs(),
	} {
		must(t, services{t, admin}.patch("old", externalIPs(address, otherAddress)))
		if err := author.patch("old", patch); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	bind(t, admin, "phoenixnap:publish-addresses", "author")
	eventually(t, "who may publish may add", func() bool { return author.patch("none", externalIPs(gateway)) == nil })
}

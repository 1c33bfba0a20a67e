package service

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

const (
	frameworks = "service.kubernetes.io/load-balancer-cleanup"
	ours       = contract.LoadBalancerFinalizer
)

// change is a change of a Service in a table.
type change func(*corev1.Service)

func serviceWith(changes ...change) *corev1.Service {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-1", ResourceVersion: "1"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer,
			Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}},
	}
	for _, c := range changes {
		c(service)
	}
	return service
}

func ofType(t corev1.ServiceType) change { return func(s *corev1.Service) { s.Spec.Type = t } }
func ofClass(class string) change {
	return func(s *corev1.Service) { s.Spec.LoadBalancerClass = &class }
}
func heldBy(finalizers ...string) change {
	return func(s *corev1.Service) { s.Finalizers = finalizers }
}
func annotated(name, value string) change {
	return func(s *corev1.Service) { metav1.SetMetaDataAnnotation(&s.ObjectMeta, name, value) }
}
func deleted(s *corev1.Service) { s.DeletionTimestamp = &metav1.Time{} }
func withCondition(name string) change {
	return func(s *corev1.Service) {
		s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{Type: name})
	}
}
func withIngress(ingress ...corev1.LoadBalancerIngress) change {
	return func(s *corev1.Service) { s.Status.LoadBalancer.Ingress = ingress }
}
func finalizerSetBy(manager string) change {
	return func(s *corev1.Service) {
		s.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate,
			Subresource: "status",
			FieldsV1: metav1.NewFieldsV1(
				`{"f:metadata":{"f:finalizers":{".":{},"v:\"service.kubernetes.io/load-balancer-cleanup\"":{}}}}`)}}
	}
}

//proves:known-bugs/foreign-finalizer
func TestOwnership(t *testing.T) {
	for name, tc := range map[string]struct {
		service *corev1.Service
		want    ownership
		remove  []string
	}{
		"no class":      {serviceWith(), wanted, nil},
		"our class":     {serviceWith(ofClass(contract.LoadBalancerClass)), wanted, nil},
		"another class": {serviceWith(ofClass("example.com/other")), foreign, nil},
		"another type":  {serviceWith(ofType(corev1.ServiceTypeClusterIP)), foreign, nil},
		"no class, deleted": {serviceWith(deleted, heldBy(frameworks, "example.com/x")), leaving,
			[]string{frameworks}},
		"no class, deleted, held by others only": {serviceWith(deleted,
			heldBy("example.com/x"), annotated(contract.ServiceIPAddress, "203.0.113.10")), foreign, nil},
		"our class, deleted": {serviceWith(deleted, ofClass(contract.LoadBalancerClass), heldBy(ours)), leaving,
			[]string{ours}},
		"our class, deleted, with the framework's finalizer of an earlier class": {serviceWith(deleted,
			ofClass(contract.LoadBalancerClass), heldBy(frameworks, ours)), leaving, []string{frameworks, ours}},
		"another class, deleted, with the framework's finalizer": {serviceWith(deleted, ofClass("example.com/other"),
			heldBy(frameworks)), foreign, nil},
		"another class, with the framework's finalizer": {serviceWith(ofClass("example.com/other"), heldBy(frameworks)),
			foreign, nil},
		"another class, that was ours": {serviceWith(ofClass("example.com/other"), heldBy(frameworks, ours)), leaving,
			[]string{ours}},
		"another class, with the framework's finalizer and our marks": {
			serviceWith(ofClass("example.com/other"), heldBy(frameworks),
				annotated(contract.ServiceIPAddress, "203.0.113.10")), leaving, nil},
		"another class, deleted, with the framework's finalizer and our marks": {
			serviceWith(deleted, ofClass("example.com/other"), heldBy(frameworks),
				annotated(contract.ServiceIPAddress, "203.0.113.10")), leaving, nil},
		"another type, with the framework's finalizer without owner": {serviceWith(ofType(corev1.ServiceTypeClusterIP),
			heldBy(frameworks)), foreign, nil},
		"another type, with the framework's finalizer and our annotation": {
			serviceWith(ofType(corev1.ServiceTypeClusterIP), heldBy(frameworks),
				annotated(contract.ServiceIPAddress, "{}")), leaving, []string{frameworks}},
		"another type, with the framework's finalizer and our condition": {
			serviceWith(ofType(corev1.ServiceTypeClusterIP), heldBy(frameworks),
				withCondition(contract.ServiceConditionBlockAssigned)), leaving, []string{frameworks}},
		"another type, with the framework's finalizer, set by us": {
			serviceWith(ofType(corev1.ServiceTypeNodePort), heldBy(frameworks), finalizerSetBy(reconcile.FieldManager)),
			leaving, []string{frameworks}},
		"another type, with the framework's finalizer, set by another": {
			serviceWith(ofType(corev1.ServiceTypeNodePort), heldBy(frameworks),
				finalizerSetBy("aws-cloud-controller-manager")), foreign, nil},
		"another type, with our finalizer": {serviceWith(ofType(corev1.ServiceTypeClusterIP), heldBy(ours)), leaving,
			[]string{ours}},
		"another type, with our marks only": {serviceWith(ofType(corev1.ServiceTypeClusterIP),
			annotated(contract.ServiceIPBlockCIDR, "203.0.113.8/29")), leaving, nil},
	} {
		if got := ownershipOf(tc.service); got != tc.want {
			t.Errorf("%s: ownership %d, want %d", name, got, tc.want)
		}
		if got := ownFinalizers(tc.service); ownershipOf(tc.service) == leaving && !slices.Equal(got, tc.remove) {
			t.Errorf("%s: finalizers %v are ours, want %v", name, got, tc.remove)
		}
	}
}

//proves:known-bugs/own-writes
//proves:known-bugs/traffic-policy
//proves:service-changes/traffic-policy
func TestConcerns(t *testing.T) {
	vip := corev1.LoadBalancerIPModeVIP
	proxy := corev1.LoadBalancerIPModeProxy
	ingress := corev1.LoadBalancerIngress{IP: "203.0.113.10", IPMode: &vip,
		Ports: []corev1.PortStatus{{Port: 80, Protocol: corev1.ProtocolTCP}}}
	published := &corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{ingress}}
	mutated := func(change func(*corev1.LoadBalancerIngress)) corev1.LoadBalancerIngress {
		other := *ingress.DeepCopy()
		change(&other)
		return other
	}
	for name, tc := range map[string]struct {
		before, after []change
		resync        bool
		want          bool
	}{
		"nothing": {want: false},
		"resync":  {resync: true, want: true},
		"resync of a foreign one": {before: []change{ofClass("x/y")}, after: []change{ofClass("x/y")}, resync: true,
			want: false},
		"annotation": {after: []change{annotated("a", "b")}, want: true},
		"annotation of a foreign one": {before: []change{ofClass("x/y")},
			after: []change{ofClass("x/y"), annotated("a", "b")}, want: false},
		"type":               {after: []change{ofType(corev1.ServiceTypeNodePort)}, want: true},
		"type, from another": {before: []change{ofType(corev1.ServiceTypeNodePort)}, want: true},
		"traffic policy": {after: []change{func(s *corev1.Service) {
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}}, want: true},
		"health check node port": {after: []change{func(s *corev1.Service) { s.Spec.HealthCheckNodePort = 30001 }},
			want: true},
		"ports":            {after: []change{func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 }}, want: true},
		"finalizer taken":  {before: []change{heldBy(frameworks)}, want: true},
		"finalizer put on": {after: []change{heldBy(frameworks)}, want: false},
		"deleted": {before: []change{heldBy(frameworks)}, after: []change{heldBy(frameworks), deleted},
			want: true},
		"recreated": {after: []change{func(s *corev1.Service) { s.UID = "uid-2" }}, want: true},
		"labels": {after: []change{func(s *corev1.Service) { s.Labels = map[string]string{"a": "b"} }},
			want: false},
		"conditions":       {after: []change{withCondition(contract.ServiceConditionBlockAssigned)}, want: false},
		"status published": {after: []change{withIngress(ingress)}, want: false},
		"status as kube-vip writes it": {
			before: []change{withIngress(ingress)}, after: []change{withIngress(mutated(
				func(i *corev1.LoadBalancerIngress) {
					i.IPMode = nil
				}))}, want: false},
		"status: another address": {before: []change{withIngress(ingress)},
			after: []change{withIngress(mutated(func(i *corev1.LoadBalancerIngress) {
				i.IP = "198.51.100.1"
			}))}, want: true},
		"status: another mode": {before: []change{withIngress(ingress)},
			after: []change{withIngress(mutated(func(i *corev1.LoadBalancerIngress) {
				i.IPMode = &proxy
			}))}, want: true},
		"status: without ports": {before: []change{withIngress(ingress)},
			after: []change{withIngress(mutated(func(i *corev1.LoadBalancerIngress) { i.Ports = nil }))}, want: true},
		"status: emptied": {before: []change{withIngress(ingress)}, want: true},
	} {
		before, after := serviceWith(tc.before...), serviceWith(tc.after...)
		if !tc.resync {
			after.ResourceVersion = "2"
		}
		if got := concerns(before, after, published); got != tc.want {
			t.Errorf("%s: concerns = %v, want %v", name, got, tc.want)
		}
	}
	if !concerns(serviceWith(), serviceWith(withIngress(ingress), func(s *corev1.Service) { s.ResourceVersion = "2" }),
		nil) {
		t.Error("a status without a known publisher does not concern us")
	}
}

//proves:known-bugs/unsupported-features
func TestUnsupported(t *testing.T) {
	policy := func(p corev1.IPFamilyPolicy, families ...corev1.IPFamily) change {
		return func(s *corev1.Service) {
			s.Spec.IPFamilyPolicy = &p
			s.Spec.IPFamilies = families
		}
	}
	for name, tc := range map[string]struct {
		change change
		want   string // part of the text; empty when it is served
		inPart bool
	}{
		"plain": {change: func(*corev1.Service) {}},
		"IPv4":  {change: policy(corev1.IPFamilyPolicySingleStack, corev1.IPv4Protocol)},
		"IPv6": {change: policy(corev1.IPFamilyPolicySingleStack, corev1.IPv6Protocol),
			want: "IPv4 only", inPart: true},
		"PreferDualStack": {change: policy(corev1.IPFamilyPolicyPreferDualStack, corev1.IPv4Protocol,
			corev1.IPv6Protocol), inPart: true},
		"PreferDualStack on IPv4": {change: policy(corev1.IPFamilyPolicyPreferDualStack, corev1.IPv4Protocol)},
		"IPv6 first": {change: policy(corev1.IPFamilyPolicyPreferDualStack, corev1.IPv6Protocol,
			corev1.IPv4Protocol), inPart: true},
		"RequireDualStack": {change: policy(corev1.IPFamilyPolicyRequireDualStack, corev1.IPv4Protocol,
			corev1.IPv6Protocol), want: "RequireDualStack", inPart: true},
		"AWS": {change: annotated("service.beta.kubernetes.io/aws-load-balancer-proxy-protocol", "*"),
			want: `aws-load-balancer-proxy-protocol="*"`},
		"AWS target group": {change: annotated("service.beta.kubernetes.io/aws-load-balancer-target-group-attributes",
			"a=b,proxy_protocol_v2.enabled=true"),
			want: "PROXY protocol"},
		"AWS target group, off": {change: annotated(
			"service.beta.kubernetes.io/aws-load-balancer-target-group-attributes", "proxy_protocol_v2.enabled=false")},
		"Hetzner": {change: annotated("load-balancer.hetzner.cloud/uses-proxyprotocol", "true"),
			want: "uses-proxyprotocol"},
		"Hetzner, off": {change: annotated("load-balancer.hetzner.cloud/uses-proxyprotocol", "false")},
		"Linode": {change: annotated(
			"service.beta.kubernetes.io/linode-loadbalancer-default-proxy-protocol", "v2"), want: "linode"},
		"Linode, off": {change: annotated(
			"service.beta.kubernetes.io/linode-loadbalancer-default-proxy-protocol", "none")},
		"cloudscale": {change: annotated("k8s.cloudscale.ch/loadbalancer-pool-protocol", "proxyv2"),
			want: "cloudscale"},
		"cloudscale, plain":  {change: annotated("k8s.cloudscale.ch/loadbalancer-pool-protocol", "tcp")},
		"another annotation": {change: annotated("service.beta.kubernetes.io/aws-load-balancer-type", "nlb")},
	} {
		service := serviceWith(tc.change)
		got := unsupported(service)
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
		if servedInPart(service) != tc.inPart {
			t.Errorf("%s: served in part %v, want %v", name, !tc.inPart, tc.inPart)
		}
	}
	for _, name := range []string{
		"service.beta.kubernetes.io/aws-load-balancer-proxy-protocol",
		"service.beta.kubernetes.io/azure-pls-proxy-protocol",
		"service.beta.kubernetes.io/brightbox-load-balancer-listener-proxy-protocol",
		"service.beta.kubernetes.io/do-loadbalancer-enable-proxy-protocol",
		"service.beta.kubernetes.io/oci-load-balancer-connection-proxy-protocol-version",
		"oci-network-load-balancer.oraclecloud.com/is-ppv2-enabled",
		"service.beta.kubernetes.io/ovh-loadbalancer-proxy-protocol",
		"service.beta.kubernetes.io/scw-loadbalancer-proxy-protocol-v1",
		"service.beta.kubernetes.io/vultr-loadbalancer-proxy-protocol", "loadbalancer.openstack.org/proxy-protocol",
		"kubernetes.civo.com/loadbalancer-enable-proxy-protocol",
	} {
		if !requestsProxyProtocol(name, "true") || requestsProxyProtocol(name, "false") ||
			requestsProxyProtocol(name, "") {
			t.Errorf("%s: on and off are taken for each other", name)
		}
	}
}

package nodewatch

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// kubeVIPPrefix begins the annotations of kube-vip, such as the one that names the node that it announces from.
const kubeVIPPrefix = "kube-vip.io/"

// strip keeps what the agent reads of a Node or a Service and drops the rest: of a Node in service that is most of it,
// the list of its images above all.
func strip(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.Node:
		return stripNode(o), nil
	case *corev1.Service:
		return stripService(o), nil
	default:
		return object, nil // the last state of an object whose deletion was missed
	}
}

func stripNode(node *corev1.Node) *corev1.Node {
	kept := &corev1.Node{ObjectMeta: stripMeta(node.ObjectMeta)}
	kept.Spec.PodCIDR = node.Spec.PodCIDR
	kept.Spec.PodCIDRs = node.Spec.PodCIDRs
	kept.Status.Addresses = node.Status.Addresses
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady || strings.HasPrefix(string(c.Type), contract.Prefix) {
			kept.Status.Conditions = append(kept.Status.Conditions, c)
		}
	}
	return kept
}

func stripService(service *corev1.Service) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: stripMeta(service.ObjectMeta),
		Spec: corev1.ServiceSpec{
			Type:                  service.Spec.Type,
			LoadBalancerClass:     service.Spec.LoadBalancerClass,
			ExternalTrafficPolicy: service.Spec.ExternalTrafficPolicy,
			HealthCheckNodePort:   service.Spec.HealthCheckNodePort,
		},
		Status: corev1.ServiceStatus{LoadBalancer: service.Status.LoadBalancer,
			Conditions: announced(service.Status.Conditions)},
	}
}

// announced keeps the condition that the controller sets on the announcement: a node need not report what is reported
// already.
func announced(conditions []metav1.Condition) []metav1.Condition {
	for _, c := range conditions {
		if c.Type == contract.ServiceConditionAnnounced {
			return []metav1.Condition{c}
		}
	}
	return nil
}

func stripMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
		Annotations: ours(m.Annotations), Labels: ours(m.Labels),
	}
}

func ours(all map[string]string) map[string]string {
	var kept map[string]string
	for key, value := range all {
		if strings.HasPrefix(key, contract.Prefix) || strings.HasPrefix(key, kubeVIPPrefix) ||
			key == corev1.LabelNodeExcludeBalancers {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = value
		}
	}
	return kept
}

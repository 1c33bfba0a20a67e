package account

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// ReadCluster reads the Namespace kube-system, whose UID identifies the cluster on the tags of its blocks, for its
// whole life.
func ReadCluster(ctx context.Context, kube kubernetes.Interface) (*corev1.Namespace, error) {
	namespace, err := kube.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the UID of namespace %s, which names the cluster: %w", metav1.NamespaceSystem, err)
	}
	if namespace.UID == "" {
		return nil, fmt.Errorf("namespace %s has no UID to name the cluster by", metav1.NamespaceSystem)
	}
	return namespace, nil
}

package account

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
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

// Backoff is until when a block is not changed again after failed changes. Each change keeps the network BUSY: without
// pauses one block that is stuck would keep all others from being assigned or released.
type Backoff struct {
	Until    time.Time
	failures int
}

// After returns the Backoff after one more failure: one minute, and twice as long each time, up to 16 minutes.
func (b Backoff) After(now time.Time) Backoff {
	return Backoff{Until: now.Add(loop.Backoff(time.Minute, 16*time.Minute, b.failures)), failures: b.failures + 1}
}

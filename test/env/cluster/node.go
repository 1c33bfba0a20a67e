package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	cloudproviderapi "k8s.io/cloud-provider/api"
)

// heartbeat is how often a kubelet reports that its node is ready.
const heartbeat = 10 * time.Second

// kubelet stands in for the kubelet of one server: it registers the Node as a kubelet with
// --cloud-provider=external and --node-ip does, and reports Ready. It acts as system:node:<name>, so
// the Node authorizer and NodeRestriction judge it as they judge a kubelet.
type kubelet struct {
	client kubernetes.Interface
	name   string
	ip     netip.Addr
	since  metav1.Time
}

// register creates the Node, tainted as uninitialized.
func (k *kubelet) register(ctx context.Context) error {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: k.name,
			Labels: map[string]string{corev1.LabelHostname: k.name, corev1.LabelOSStable: "linux",
				corev1.LabelArchStable: "amd64"},
			Annotations: map[string]string{cloudproviderapi.AnnotationAlphaProvidedIPAddr: k.ip.String()},
		},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{
			Key: cloudproviderapi.TaintExternalCloudProvider, Value: "true", Effect: corev1.TaintEffectNoSchedule,
		}}},
	}
	_, err := k.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("register node %s: %w", k.name, err)
	}
	return k.report(ctx)
}

// report writes the condition Ready.
func (k *kubelet) report(ctx context.Context) error {
	now := metav1.Now()
	if k.since.IsZero() {
		k.since = now
	}
	status := applycorev1.Node(k.name).WithStatus(applycorev1.NodeStatus().WithConditions(
		applycorev1.NodeCondition().WithType(corev1.NodeReady).WithStatus(corev1.ConditionTrue).
			WithReason("KubeletReady").WithMessage("the lab's stand-in for a kubelet is running").WithLastHeartbeatTime(
			now).WithLastTransitionTime(k.since)))
	_, err := k.client.CoreV1().Nodes().ApplyStatus(ctx, status,
		metav1.ApplyOptions{FieldManager: "kubelet", Force: true})
	if err != nil {
		return fmt.Errorf("report node %s ready: %w", k.name, err)
	}
	return nil
}

// run reports until the server dies or ctx ends.
func (k *kubelet) run(ctx context.Context) {
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			// A missed heartbeat is a late heartbeat; the next one repeats it.
			_ = k.report(ctx)
		}
	}
}

package controller

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// writers is how many objects are created at a time.
const writers = 32

// register creates Nodes as their kubelets do (--cloud-provider=external), those of the servers from first on.
func (h *harness) register(ctx context.Context, first, count int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := first; i < first+count; i++ {
		group.Go(func() error {
			_, err := h.kube.CoreV1().Nodes().Create(ctx, kubeletNode(serverName(i)), metav1.CreateOptions{})
			return err
		})
	}
	return group.Wait()
}

func kubeletNode(name string) *corev1.Node {
	now := metav1.Now()
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name,
			corev1.LabelOSStable: "linux"}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{
			Key: cloudproviderapi.TaintExternalCloudProvider, Value: "true", Effect: corev1.TaintEffectNoSchedule,
		}}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now,
			LastTransitionTime: now,
		}}},
	}
}

// initialised waits until that many Nodes have lost their taint and carry what the controller knows of their server.
func (h *harness) initialised(ctx context.Context, count int, within time.Duration) error {
	return h.eventually(ctx, time.Second, within, func(ctx context.Context) error {
		list, err := h.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err
		}
		done := 0
		for i := range list.Items {
			if complete(&list.Items[i]) {
				done++
			}
		}
		if done != count {
			return fmt.Errorf("%d of %d Nodes are initialised", done, count)
		}
		return nil
	})
}

func complete(node *corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Key == cloudproviderapi.TaintExternalCloudProvider {
			return false
		}
	}
	return node.Spec.ProviderID != "" && len(node.Status.Addresses) > 0 &&
		node.Annotations[contract.NodePublicNetworkMember] == "true"
}

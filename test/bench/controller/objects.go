package controller

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	watchtools "k8s.io/client-go/tools/watch"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
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
	network, _, err := contract.NodeNetworkOf(node.Annotations, "")
	return node.Spec.ProviderID != "" && len(node.Status.Addresses) > 0 && err == nil && network.Member
}

func (h *harness) services() typedcorev1.ServiceInterface {
	return h.kube.CoreV1().Services(metav1.NamespaceDefault)
}

func (h *harness) createService(ctx context.Context, name string) error {
	_, err := h.services().Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer,
			Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}, metav1.CreateOptions{})
	return err
}

// createServices creates many at once.
func (h *harness) createServices(ctx context.Context, count int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range count {
		group.Go(func() error { return h.createService(ctx, fmt.Sprintf("web-%03d", i)) })
	}
	return group.Wait()
}

// publish creates a Service and returns how long it took until its address was published.
func (h *harness) publish(ctx context.Context, name string) (time.Duration, error) {
	watcher, err := h.services().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return 0, fmt.Errorf("watch Service %s: %w", name, err)
	}
	defer watcher.Stop()
	begin := time.Now()
	if err := h.createService(ctx, name); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := watchtools.UntilWithoutRetry(ctx, watcher, func(event watch.Event) (bool, error) {
		service, ok := event.Object.(*corev1.Service)
		return ok && len(service.Status.LoadBalancer.Ingress) > 0, nil
	}); err != nil {
		return 0, fmt.Errorf("no address for Service %s: %w (controller's log: %s)", name, err, h.log)
	}
	return time.Since(begin), nil
}

// remove deletes a Service and returns how long it took until it was gone.
func (h *harness) remove(ctx context.Context, name string, within time.Duration) (time.Duration, error) {
	begin := time.Now()
	if err := h.services().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return 0, err
	}
	err := h.eventually(ctx, 50*time.Millisecond, within, func(ctx context.Context) error {
		_, err := h.services().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("not gone: Service %s (%w)", name, err)
	})
	return time.Since(begin), err
}

// published counts the Services that have an address.
func (h *harness) published(ctx context.Context) (int, error) {
	list, err := h.services().List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	count := 0
	for i := range list.Items {
		if len(list.Items[i].Status.LoadBalancer.Ingress) > 0 {
			count++
		}
	}
	return count, nil
}

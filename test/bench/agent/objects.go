//go:build linux

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// writers is how many objects are created at a time.
const writers = 32

// populate fills the cluster with Nodes and Services.
func (c *setting) populate(ctx context.Context) error {
	virtual, err := addresses(c.Services)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range c.Nodes {
		group.Go(func() error { return c.createNode(ctx, i) })
	}
	for i, address := range virtual {
		group.Go(func() error { return c.createService(ctx, i, address) })
	}
	return group.Wait()
}

func (c *setting) createNode(ctx context.Context, i int) error {
	node, err := nodeObject(i)
	if err != nil {
		return err
	}
	if _, err := c.kube.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create Node %s: %w", node.Name, err)
	}
	return nil
}

func nodeName(i int) string { return fmt.Sprintf("node-%04d", i) }

// nodeMAC is the hardware address of a Node's bond; the lab gives its servers these.
func nodeMAC(i int) string { return fmt.Sprintf("02:50:4e:01:%02x:%02x", (i+1)>>8, (i+1)&0xff) }

// nodeObject is a Node as kubelet, controller and agent write it together, with what makes it large: images and
// addresses.
func nodeObject(i int) (*corev1.Node, error) {
	published, err := network().Annotations()
	if err != nil {
		return nil, err
	}
	private := netip.AddrFrom4([4]byte{10, 0, byte((i + 11) >> 8), byte(i + 11)})
	identity, err := json.Marshal(contract.Identity{
		Hostname: nodeName(i), Addresses: []netip.Addr{private}, MACs: []string{nodeMAC(i)}, VLANInterface: vlanLink,
	})
	if err != nil {
		return nil, fmt.Errorf("encode the identity of %s: %w", nodeName(i), err)
	}
	published[contract.NodeReportedIdentity] = string(identity)
	now := metav1.Now()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Annotations: published, Labels: map[string]string{
			corev1.LabelHostname: nodeName(i), corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
			contract.NodeVLANReady: "true",
		}},
		Spec: corev1.NodeSpec{PodCIDR: fmt.Sprintf("10.%d.%d.0/24", 100+i>>8, i&0xff)},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: private.String()},
				{Type: corev1.NodeHostName, Address: nodeName(i)}},
			Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("32"),
				corev1.ResourceMemory: resource.MustParse("256Gi")},
		},
	}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure,
		corev1.NodePIDPressure, corev1.NodeReady} {
		status := corev1.ConditionFalse
		if kind == corev1.NodeReady {
			status = corev1.ConditionTrue
		}
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
			Type: kind, Status: status, Reason: "Kubelet", Message: "the kubelet says so", LastHeartbeatTime: now,
			LastTransitionTime: now,
		})
	}
	for image := range 50 { // the kubelet's default, --node-status-max-images
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{
			Names: []string{
				fmt.Sprintf("registry.example.com/team-%02d/application@sha256:%064x", image, image),
				fmt.Sprintf("registry.example.com/team-%02d/application:v1.%d.0", image, image),
			}, SizeBytes: 100 << 20,
		})
	}
	return node, nil
}

// createService creates a Service as controller and kube-vip leave it.
func (c *setting) createService(ctx context.Context, i int, address netip.Addr) error {
	services := c.kube.CoreV1().Services(metav1.NamespaceDefault)
	created, err := services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("web-%03d", i), Annotations: map[string]string{
			contract.KubeVIPAddresses: address.String(), contract.ServiceIPAddress: address.String(),
			"kube-vip.io/vipHost": announcer, contract.KubeVIPInterface: vlanLink,
		}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, LoadBalancerIP: address.String(),
			Selector: map[string]string{"app": fmt.Sprintf("web-%03d", i)},
			Ports:    []corev1.ServicePort{{Name: "http", Port: 80}, {Name: "https", Port: 443}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create a Service: %w", err)
	}
	created.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address.String(),
		IPMode: ptr.To(corev1.LoadBalancerIPModeVIP)}}
	if _, err := services.UpdateStatus(ctx, created, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("publish the address of Service %s: %w", created.Name, err)
	}
	return c.createLease(ctx, created.Name)
}

// awaitReady waits until the agent reports that the node and the addresses are healthy.
func (c *setting) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		node, err := c.kube.CoreV1().Nodes().Get(ctx, server, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("get Node %s: %w", server, err)
		}
		said := ""
		for _, kind := range []corev1.NodeConditionType{contract.ConditionVLANReady,
			contract.ConditionAnnouncementHealthy} {
			condition := contract.FindNodeCondition(node, kind)
			switch {
			case condition == nil:
				said += fmt.Sprintf("%s is missing; ", kind)
			case condition.Status != corev1.ConditionTrue:
				said += fmt.Sprintf("%s is %s: %s; ", kind, condition.Status, condition.Message)
			}
		}
		if said == "" {
			return nil
		}
		if err := sleep(ctx, time.Second); err != nil {
			return fmt.Errorf("the node does not become healthy: %s%w", said, err)
		}
	}
}

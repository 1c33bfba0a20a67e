//go:build linux

package failover

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/election"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/store"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// apiPort is where nodes reach the API server, on the loopback interface of each namespace.
const apiPort = 6443

// cluster is the API server, as the candidates use it.
type cluster struct {
	plane *controlplane.ControlPlane
	kube  kubernetes.Interface
	dir   string
	nodes int
	// kubelets keep the Leases of the Nodes.
	kubelets *kubelets
}

// serviceManifest is the Service whose address is announced, and an endpoint, without which kube-vip 1.2 does not.
const serviceManifest = `apiVersion: v1
kind: Service
metadata: {namespace: default, name: echo, annotations: {%[1]s: %[2]s}}
spec: {type: LoadBalancer, loadBalancerIP: %[2]s, ports: [{port: %[3]d, protocol: UDP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: default, name: echo, labels: {kubernetes.io/service-name: echo}}
addressType: IPv4
ports: [{port: %[3]d, protocol: UDP}]
endpoints: [{addresses: [10.244.0.2], conditions: {ready: true, serving: true}}]
`

// newCluster starts a control plane with the shipped rights and policies.
func newCluster(ctx context.Context, dir string, nodes int) (*cluster, error) {
	plane, err := controlplane.Start(ctx, controlplane.Options{
		Manifests: []string{"deploy/overlays/kubeadm-agent", "deploy/kube-vip/kube-vip.yaml"},
	})
	if err != nil {
		return nil, err
	}
	service := fmt.Sprintf(serviceManifest, contract.KubeVIPAddresses, virtual, echoPort)
	if err := plane.Apply(ctx, controlplane.Manifest{Name: "Service", Data: []byte(service)}); err != nil {
		_ = plane.Stop() // the first error says more
		return nil, err
	}
	kube := plane.Kube()
	return &cluster{plane: plane, kube: kube, dir: dir, nodes: nodes,
		kubelets: &kubelets{kube: kube, nodes: nodes, off: map[int]bool{}}}, nil
}

// kubeconfig writes the kubeconfig of a program on a node.
func (c *cluster) kubeconfig(path string, config *rest.Config) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return controlplane.WriteKubeconfig(path, config, fmt.Sprintf("https://127.0.0.1:%d", apiPort))
}

// agent is the agents' announcer, with the rights of the shipped ServiceAccount.
func (c *cluster) agent(ctx context.Context) (candidate, error) {
	self, err := os.Executable()
	if err != nil {
		return candidate{}, fmt.Errorf("find this program: %w", err)
	}
	if err := c.createKey(ctx); err != nil {
		return candidate{}, err
	}
	config := func(i int) string { return filepath.Join(c.dir, "agent-"+nodeName(i), "kubeconfig") }
	for i := range c.nodes {
		token, err := c.plane.ServiceAccountOn(ctx, metav1.NamespaceSystem, "phoenixnap-agent", nodeName(i))
		if err != nil {
			return candidate{}, err
		}
		if err := c.kubeconfig(config(i), token); err != nil {
			return candidate{}, err
		}
	}
	return candidate{
		name: "agent",
		command: func(i int) (argv, env []string) {
			return []string{self, NodeCommand, "-name", nodeName(i), "-source", nodeAddress(i).String(),
				"-kubeconfig", config(i)}, nil
		},
		clean:    func(context.Context) error { return nil },
		complete: c.allMembers,
	}, nil
}

// createKey creates the Secret with the key of the heartbeats, as the controller does.
func (c *cluster) createKey(ctx context.Context) error {
	_, err := c.kube.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: contract.AnnouncerSecret},
		StringData: map[string]string{
			contract.AnnouncerSecretKey: contract.FormatAnnouncerKey(contract.AnnouncerKey{1, 2, 3}),
		},
	}, metav1.CreateOptions{})
	return err
}

// allMembers reports whether every node is a member of the announcers' view.
func (c *cluster) allMembers(ctx context.Context) bool {
	d, err := store.New(c.kube.CoreV1().ConfigMaps(metav1.NamespaceSystem), networkID).Read(ctx)
	if err != nil || d.View == "" {
		return false
	}
	view, err := election.ParseView(d.View)
	return err == nil && len(view.Members) == c.nodes
}

// timers are those of kube-vip's election, in seconds, and the pause between its announcements.
type timers struct {
	name                   string
	lease, deadline, retry int
	announce               time.Duration
}

// kubeVIPTimers are kube-vip's: those of the shipped manifest, and the fastest that it takes: its election works
// with whole seconds, of which the lease must be longer than the deadline, and that longer than 1.2 retries (client-go,
// leaderelection); an announcement every 500 ms is the fastest that is not ignored.
func kubeVIPTimers() []timers {
	return []timers{
		{name: "kube_vip", lease: 5, deadline: 3, retry: 1, announce: 3 * time.Second},
		{name: "kube_vip_fast", lease: 3, deadline: 2, retry: 1, announce: 500 * time.Millisecond},
	}
}

// kubeVIP is the real kube-vip.
func (c *cluster) kubeVIP(ctx context.Context, s *segment, t timers) (candidate, error) {
	program, err := tools.KubeVIP(ctx, "")
	if err != nil {
		return candidate{}, err
	}
	home := func(i int) string { return filepath.Join(c.dir, "home-"+nodeName(i)) }
	for i := range c.nodes {
		token, err := c.plane.ServiceAccountOn(ctx, metav1.NamespaceSystem, "kube-vip", nodeName(i))
		if err != nil {
			return candidate{}, err
		}
		if err := c.kubeconfig(filepath.Join(home(i), ".kube", "config"), token); err != nil {
			return candidate{}, err
		}
	}
	return candidate{
		name: t.name,
		command: func(i int) (argv, env []string) {
			return []string{program, "manager"}, []string{
				"HOME=" + home(i), "vip_arp=true", "vip_interface=" + publicLink, "vip_subnet=32", "svc_enable=true",
				"svc_election=true",
				"cp_enable=false", "cp_namespace=kube-system", "vip_nodename=" + nodeName(i),
				"prometheus_server=127.0.0.1:0",
				fmt.Sprintf("vip_leaseduration=%d", t.lease), fmt.Sprintf("vip_renewdeadline=%d", t.deadline),
				fmt.Sprintf("vip_retryperiod=%d", t.retry),
				fmt.Sprintf("vip_arpRate=%d", t.announce.Milliseconds()),
			}
		},
		clean: func(ctx context.Context) error { return c.afterKubeVIP(ctx, s) },
	}, nil
}

// afterKubeVIP removes what killed kube-vips have left: addresses and leases.
func (c *cluster) afterKubeVIP(ctx context.Context, s *segment) error {
	for _, node := range s.nodes {
		if err := removeAddress(node, virtual); err != nil {
			return err
		}
	}
	err := c.kube.CoordinationV1().Leases(metav1.NamespaceDefault).DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("delete kube-vip's leases: %w", err)
	}
	return nil
}

//go:build linux

package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/utils/ptr"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools"
)

// KubeletConfig is the name of the kubeconfig of a server's kubelet among the lab's files; only with Options.Kubelets.
func KubeletConfig(server string) string { return "kubelet-" + server + ".kubeconfig" }

// AdminConfig is the name of the kubeconfig of a cluster administrator, for kubeadm, among the lab's files; only with
// Options.Kubelets.
const AdminConfig = "admin.kubeconfig"

// APIServer is where servers reach the API server.
func (c *Cluster) APIServer() netip.AddrPort {
	return netip.AddrPortFrom(management.Addr(), uint16(c.ControlPlane.Port()))
}

// CloudConfig is the file cloud-sa.json as the user writes it into the Secret pnap-cloud-config.
func (c *Cluster) CloudConfig() ([]byte, error) {
	port, err := c.Sim.port()
	if err != nil {
		return nil, err
	}
	return c.cloudConfig("http://" + netip.AddrPortFrom(management.Addr(), port).String()), nil
}

// port is the TCP port of the account's API on this machine's loopback interface.
func (s *Simulator) port() (uint16, error) {
	address, err := url.Parse(s.URL)
	if err != nil {
		return 0, fmt.Errorf("address of the account's API: %w", err)
	}
	port, err := strconv.ParseUint(address.Port(), 10, 16)
	if err != nil {
		return 0, fmt.Errorf("address %s of the account's API: %w", s.URL, err)
	}
	return uint16(port), nil
}

// StartManagers starts kube-controller-manager and kube-scheduler.
func (c *Cluster) StartManagers(ctx context.Context) error {
	authority := filepath.Join(c.options.Dir, "ca.crt")
	if err := os.WriteFile(authority, c.ControlPlane.CA(), 0o600); err != nil {
		return fmt.Errorf("certificate of the API server: %w", err)
	}
	for name, flags := range map[string][]string{
		// Each controller acts by an account of its own, as kubeadm has it.
		"kube-controller-manager": {"--root-ca-file=" + authority, "--use-service-account-credentials"},
		"kube-scheduler":          nil,
	} {
		if err := c.startManager(ctx, name, flags); err != nil {
			return fmt.Errorf("start %s: %w", name, err)
		}
	}
	return nil
}

func (c *Cluster) startManager(ctx context.Context, name string, flags []string) error {
	program, err := tools.Binary(ctx, name)
	if err != nil {
		return err
	}
	config, err := c.ControlPlane.User("system:" + name)
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(c.options.Dir, name+".kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, config, ""); err != nil {
		return err
	}
	// There is only one, and nothing reads its metrics.
	process, err := controlplane.StartProgram(c.options.Dir, name, program, append([]string{
		"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--secure-port=0", "--v=2",
	}, flags...)...)
	if err != nil {
		return err
	}
	c.managers = append(c.managers, process)
	return nil
}

// PublishAPIServer gives the Service default/kubernetes its endpoint, as the API server does by itself where it is not
// on a loopback address: it is how pods reach it.
func (c *Cluster) PublishAPIServer(ctx context.Context) error {
	_, err := c.Kube.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes",
			Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{management.Addr().String()},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To(int32(c.ControlPlane.Port())),
			Protocol: ptr.To(corev1.ProtocolTCP)}},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("endpoint of the Service kubernetes: %w", err)
	}
	return nil
}

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
	// version is that of Kubernetes.
	version string
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
	version, err := k.client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("version of node %s: %w", k.name, err)
	}
	k.version = version.GitVersion
	_, err = k.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
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
	system := applycorev1.NodeSystemInfo().WithKubeletVersion(k.version)
	status := applycorev1.Node(k.name).WithStatus(applycorev1.NodeStatus().WithNodeInfo(system).WithConditions(
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

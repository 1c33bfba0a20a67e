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

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/controlplane"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/tools"
)

// KubeletConfig is the name of the kubeconfig of a server's kubelet among the lab's files; only with Options.Kubelets.
func KubeletConfig(server string) string { return "kubelet-" + server + ".kubeconfig" }

// kubeletUsers are whom the servers' own programs are for the API server.
func (c *Cluster) kubeletUsers() map[string]func(context.Context) (*rest.Config, error) {
	users := map[string]func(context.Context) (*rest.Config, error){
		proxyConfig: func(context.Context) (*rest.Config, error) { return c.ControlPlane.User("system:kube-proxy") },
	}
	for _, s := range c.Servers {
		users[KubeletConfig(s.Name)] = func(context.Context) (*rest.Config, error) { return c.nodeConfig(s.Name) }
	}
	return users
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
	process, err := controlplane.StartProgram(c.options.Dir, name, program, append([]string{"--kubeconfig=" + kubeconfig, "--leader-elect=false",
		"--secure-port=0", "--v=2"}, flags...)...)
	if err != nil {
		return err
	}
	c.managers = append(c.managers, process)
	return nil
}

// PublishAPIServer gives the Service default/kubernetes its endpoint, as the API server does by itself where it is not
// on a loopback address: it is how pods reach it.
func (c *Cluster) PublishAPIServer(ctx context.Context) error {
	port := int32(c.ControlPlane.Port())
	protocol := corev1.ProtocolTCP
	name := "https"
	ready := true
	_, err := c.Kube.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes",
			Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{management.Addr().String()},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("endpoint of the Service kubernetes: %w", err)
	}
	return nil
}

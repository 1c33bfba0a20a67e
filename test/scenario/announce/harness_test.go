//go:build linux

package announce

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/labtest"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/scenario/agentlab"
)

const (
	publicLink  = agentlab.Link
	privateLink = "bond0.4"
	gatewayLink = "eth0.56"
)

// harness is a cluster with the processes of its agents.
type harness struct {
	*agentlab.Cluster
	agents map[string]int    // by server
	macs   map[string]string // of the VLAN interfaces by server
}

// newHarness starts everything but the agents.
func newHarness(t *testing.T, servers int) *harness {
	t.Helper()
	h := &harness{Cluster: agentlab.New(t, labtest.Servers(servers), "deploy/overlays/kubeadm-agent"),
		agents: map[string]int{}, macs: map[string]string{}}
	// An emulated machine that shares its processor may stand still for longer than three usual heartbeats take.
	h.Tags = []string{"slowheartbeats"}
	h.createKey()
	h.StartLab(contract.AnnouncerAgent, nil, "ip", "nft", "setpriv")
	return h
}

// createKey creates the Secret with the key of the heartbeats, as the controller does.
func (h *harness) createKey() {
	h.T.Helper()
	_, err := h.Kube.CoreV1().Secrets(metav1.NamespaceSystem).Create(h.T.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: contract.AnnouncerSecret},
		StringData: map[string]string{
			contract.AnnouncerSecretKey: contract.FormatAnnouncerKey(contract.AnnouncerKey{7}),
		},
	}, metav1.CreateOptions{})
	h.Must("create the key", err)
}

// agent starts the agent of a server, with further flags.
func (h *harness) agent(server string, flags ...string) {
	h.T.Helper()
	h.agents[server] = h.agentAs(server, server, flags...)
}

// agentAs starts an agent on a server by the name of a Node, which may be another's.
func (h *harness) agentAs(server, node string, flags ...string) int {
	h.T.Helper()
	return h.StartAgent(server, node, append([]string{"--announcer-rebalance", "0",
		"--metrics-bind-address", "127.0.0.1:10298"}, flags...)...)
}

// serve creates a Service with a published address, as the controller leaves it.
func (h *harness) serve(name string) netip.Addr {
	h.T.Helper()
	services := h.Kube.CoreV1().Services(metav1.NamespaceDefault)
	made, err := services.Create(h.T.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	h.Must("create Service "+name, err)
	address := h.Allocate(made)
	made.Annotations = map[string]string{
		contract.ServiceIPAddress: address.String(), contract.ServiceIPBlockAssigned: "true",
		contract.ServiceIPOwner: string(made.UID),
	}
	_, err = services.Update(h.T.Context(), made, metav1.UpdateOptions{})
	h.Must("publish an address for Service "+name, err)
	return address
}

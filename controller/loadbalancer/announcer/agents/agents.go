// Package agents is the announcer of this project: the agents answer for the addresses themselves (agent://). They read
// what the controller writes on a Service in any case, and need no annotation of their own.
package agents

import (
	"context"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/announcer/none"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/announcer/reports"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// releaseWait is how long at most a release waits for the agents to stop answering for an address.
const releaseWait = 10 * time.Second

// Announcer are the agents of the cluster.
type Announcer struct {
	none.Announcer
	kube   kubernetes.Interface
	events record.EventRecorder
}

// New returns the agents of the cluster of a client. Events are recorded on the Namespace kube-system.
func New(kube kubernetes.Interface, events record.EventRecorder) Announcer {
	return Announcer{kube: kube, events: events}
}

// Publish names the Node that announces the address, and since when, for people. The agents elect by address.
func (a Announcer) Publish(service *corev1.Service, address netip.Addr, _ string, nodes []*corev1.Node) map[string]any {
	node, since := reports.Announcer(nodes, address)
	if node == "" {
		return a.Withdraw(service, address.String(), nodes)
	}
	wanted := map[string]any{
		contract.ServiceAnnouncedBy: node, contract.ServiceAnnouncedSince: since.UTC().Format(time.RFC3339),
	}
	have := service.Annotations
	if before := have[contract.ServiceAnnouncedSince]; before != "" && have[contract.ServiceAnnouncedBy] == node {
		wanted[contract.ServiceAnnouncedSince] = before
	}
	return wanted
}

// Withdraw removes the name of the Node.
func (Announcer) Withdraw(*corev1.Service, string, []*corev1.Node) map[string]any {
	return map[string]any{contract.ServiceAnnouncedBy: nil, contract.ServiceAnnouncedSince: nil}
}

// ReleaseWait is long enough for the agents to notice that a Service is leaving.
func (Announcer) ReleaseWait() time.Duration { return releaseWait }

// Objects maintains the key of the agents' heartbeats.
func (a Announcer) Objects() interface {
	Run(ctx context.Context) error
} {
	core := a.kube.CoreV1()
	return &HeartbeatKey{
		Secrets: core.Secrets(metav1.NamespaceSystem), ConfigMaps: core.ConfigMaps(metav1.NamespaceSystem),
		Events: a.events,
	}
}

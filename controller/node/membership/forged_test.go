package membership

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// named adds a selected Node with the provider ID of a server that has another name.
func (w *world) named(name string, i int) *corev1.Node {
	w.t.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"edge": "true"}},
		Spec:       corev1.NodeSpec{ProviderID: contract.ProviderID(serverID(i))},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: w.servers()[serverID(i)].PrivateIPs[0].String()},
		}},
	}
	created, err := w.kube.CoreV1().Nodes().Create(w.t.Context(), node, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return created
}

// When a Node is registered with the provider ID of a server that is not its machine, the server does not join for it,
// whether it belongs to another Node or to none, and the event names both and the remedy.
func TestForgedProviderIDJoinsNoServer(t *testing.T) {
	w := newWorld(t, seedOf(3, "203.0.113.0/28", nil), nil)
	w.node(0, true)
	w.named("a-rival", 0)
	w.named("forged", 2)
	w.start()
	w.run(10 * time.Minute)
	w.expectMember(0, "203.0.113.2 assigned")
	w.expectMember(2, "none")
	w.expectRecord(0)
	events := w.takeEvents()
	if containing(events, []string{"Normal PublicNetworkJoined"}) != 1 {
		t.Errorf("events %q", events)
	}
	for _, want := range [][]string{
		{"Warning PublicNetworkJoinRefused", serverID(2), "forged", nodeName(2), "--provider-id"},
		{"Warning PublicNetworkJoinRefused", serverID(0), "a-rival", nodeName(0), "delete the Node"},
	} {
		if count := containing(events, want); count != 1 {
			t.Errorf("%d events with %q, want 1: %q", count, want, events)
		}
	}
}

// containing counts the texts that contain all parts.
func containing(texts, parts []string) int {
	count := 0
	for _, text := range texts {
		all := true
		for _, part := range parts {
			all = all && strings.Contains(text, part)
		}
		if all {
			count++
		}
	}
	return count
}

// The server of a Node with another name joins once the agent reports an address of it.
func TestServerOfAnotherNameJoinsByReport(t *testing.T) {
	w := newWorld(t, seedOf(1, "203.0.113.0/28", nil), nil)
	node := w.named("another-name", 0)
	w.start()
	w.run(2 * time.Minute)
	w.expectMember(0, "none")
	node.Annotations = map[string]string{contract.NodeReportedIdentity: `{"hostname":"x","addresses":["10.0.0.11"]}`}
	if _, err := w.kube.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.run(2 * time.Minute)
	w.expectMember(0, "203.0.113.2 assigned")
	w.expectRecord(0)
}

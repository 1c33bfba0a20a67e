package instances

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

func TestTieOf(t *testing.T) {
	server := pnap.Server{ID: "a", Hostname: "db-1.example", PrivateIPs: addrs("10.0.0.1"),
		PublicIPs: addrs("198.51.100.2")}
	labelled := newNode("web")
	labelled.Labels = map[string]string{corev1.LabelHostname: "db-1"}
	withIP := func(ip string, identities ...contract.Identity) *corev1.Node {
		node := newNode("web", identities...)
		node.Annotations["alpha.kubernetes.io/provided-node-ip"] = ip
		return node
	}
	byProvider := newNode("web")
	byProvider.Spec.ProviderID = contract.ProviderID(server.ID)
	// The controller writes these itself, from the server that the provider ID names.
	byProvider.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"},
		{Type: corev1.NodeExternalIP, Address: "198.51.100.2"}}
	for name, test := range map[string]struct {
		node *corev1.Node
		want Tie
	}{
		"name":                   {newNode("db-1.example"), TiedByName},
		"name without domain":    {newNode("DB-1"), TiedByName},
		"name in another domain": {newNode("db-1.elsewhere"), Untied},
		"provider ID only":       {byProvider, Untied},
		"host name label":        {labelled, TiedByReport},
		"kernel's host name":     {newNode("web", contract.Identity{Hostname: "db-1"}), TiedByReport},
		"other host name":        {newNode("web", contract.Identity{Hostname: "web"}), Untied},
		"no host name":           {newNode("web", contract.Identity{}), Untied},
		"server ID":              {newNode("web", contract.Identity{ServerID: "a"}), TiedByReport},
		"other server ID": {newNode("web", contract.Identity{ServerID: "b", Hostname: "db-1",
			Addresses: addrs("10.0.0.1")}), Untied},
		"other server ID, --node-ip": {withIP("10.0.0.1", contract.Identity{ServerID: "b"}), Untied},
		"address": {newNode("web", contract.Identity{Addresses: addrs("10.0.0.7", "10.0.0.1")}),
			TiedByReport},
		"other address":   {newNode("web", contract.Identity{Addresses: addrs("10.0.0.7")}), Untied},
		"--node-ip":       {withIP("10.0.0.1"), TiedByReport},
		"other --node-ip": {withIP("10.0.0.7"), Untied},
	} {
		if got := TieOf(test.node, server); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
	if got := TieOf(newNode("web"), pnap.Server{ID: "a"}); got != Untied {
		t.Errorf("a server without a host name: %d", got)
	}
}

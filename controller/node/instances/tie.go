package instances

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
)

// Tie is what connects a Node to a server besides the Node's provider ID, which the kubelet chooses when it registers
// the Node. A higher one is stronger.
type Tie int

const (
	// Untied means that nothing else connects them.
	Untied Tie = iota
	// TiedByReport means that the agent or the kubelet on the Node reports the server's ID, host name or an address.
	TiedByReport
	// TiedByName means that the server has the Node's name, which a kubelet cannot choose (plugin NodeRestriction).
	TiedByName
)

// TieOf returns the strongest tie of a Node and a server. It ignores the addresses in the Node's status: the controller
// itself writes those of the server that the provider ID names.
func TieOf(node *corev1.Node, server pnap.Server) Tie {
	reported := reportedIdentity(node)
	if named(server, node.Name) {
		return TiedByName
	}
	if reported.serverID == "" && (named(server, node.Labels[corev1.LabelHostname]) ||
		named(server, reported.hostname) || len(providedNodeIPs(node)) > len(foreignNodeIPs(node, server))) {
		return TiedByReport
	}
	if len(reported.fitting([]pnap.Server{server})) > 0 {
		return TiedByReport
	}
	return Untied
}

// named reports whether a server has a name, as match compares them.
func named(server pnap.Server, name string) bool {
	return name != "" && (strings.EqualFold(server.Hostname, name) || sameHostFolded(server.Hostname, name))
}

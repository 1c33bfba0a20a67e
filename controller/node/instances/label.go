package instances

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// Labels returns the labels under phoenixnap.com/ that a server's Node gets. A value that cannot be made
// legal is dropped: an illegal label would prevent the initialization of the Node.
func Labels(server pnap.Server) map[string]string {
	labels := map[string]string{}
	for name, value := range map[string]string{
		contract.NodeLocation:    server.Location,
		contract.NodeServerType:  server.Type,
		contract.NodeOS:          server.OS,
		contract.NodeNetworkType: server.NetworkType,
	} {
		if legal := labelValue(value); legal != "" {
			labels[name] = legal
		}
	}
	return labels
}

// Zone returns the zone of a Node: that of its labels, else the location of its server, made legal. The framework would
// overwrite the kubelet's zone (--node-labels) when it initializes a Node, but volumes and their claims on
// topology.kubernetes.io/zone outlive a Node that is registered again. The deprecated label counts first, because the
// framework keeps the other one equal to it.
func Zone(node *corev1.Node, server pnap.Server) string {
	for _, name := range []string{corev1.LabelFailureDomainBetaZone, corev1.LabelTopologyZone} {
		if zone, exists := node.Labels[name]; exists {
			return zone
		}
	}
	return labelValue(server.Location)
}

// labelValue replaces characters that a label value may not contain by "-" and shortens it to the allowed length.
func labelValue(raw string) string {
	legal := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			return r
		default:
			return '-'
		}
	}, raw)
	legal = legal[:min(len(legal), validation.LabelValueMaxLength)]
	return strings.Trim(legal, "-_.")
}

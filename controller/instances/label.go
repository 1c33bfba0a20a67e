package instances

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// Labels returns the labels under phoenixnap.com/ that a server's Node gets. A value that cannot be made
// legal is dropped: an illegal label would keep the Node from being initialised.
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

// labelValue replaces what a label value may not hold by "-" and shortens it to what is allowed.
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

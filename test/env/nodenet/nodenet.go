// Package nodenet makes the annotations by which the controller describes public networks on a Node, for tests of
// those who read them.
package nodenet

import (
	"fmt"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// VLAN is the VLAN ID of a network for which a test names none.
const VLAN = 20

// On returns the annotations of a Node on which networks are published, with the server of the first one. A first
// network without a name is the default one. It panics when they cannot be those of one Node.
func On(networks ...contract.NodeNetwork) map[string]string {
	all := make([]contract.NodeNetwork, len(networks))
	server := ""
	for i, n := range networks {
		if i == 0 {
			server = n.ServerID
			if n.Name == "" {
				n.Name = v1beta1.DefaultNetwork
			}
		}
		if n.VLAN == 0 {
			n.VLAN = VLAN
		}
		all[i] = n
	}
	encoded, err := contract.EncodePublicNetworks(all)
	if err != nil {
		panic(fmt.Sprintf("test: %v", err))
	}
	annotations := map[string]string{contract.NodePublicNetworks: encoded}
	if server != "" {
		annotations[contract.NodeServerID] = server
	}
	return annotations
}

// Member returns the annotations of a Node whose server is a member of one network.
func Member(networkID string) map[string]string {
	return On(contract.NodeNetwork{ID: networkID, Member: true})
}

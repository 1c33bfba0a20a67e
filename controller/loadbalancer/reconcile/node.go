package reconcile

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// anyNodeReady reports whether an address of the network can be reached: a member node says that it is
// ready, or no node says anything because no agent is installed.
func anyNodeReady(nodes []*corev1.Node, networkID string) bool {
	agents := false
	for _, node := range nodes {
		condition := contract.FindNodeCondition(node, contract.ConditionVLANReady)
		if condition == nil {
			continue
		}
		agents = true
		if condition.Status == corev1.ConditionTrue && isMember(node, networkID) {
			return true
		}
	}
	return !agents
}

// commonInterface returns the name of the VLAN interface when all agents of member nodes report the
// same; empty when they differ, one of them reports none, or there are no reports.
func commonInterface(nodes []*corev1.Node, networkID string) string {
	common := ""
	for _, node := range nodes {
		raw := node.Annotations[contract.NodeReportedIdentity]
		if raw == "" || !isMember(node, networkID) {
			continue
		}
		var identity contract.Identity
		if err := json.Unmarshal([]byte(raw), &identity); err != nil || identity.VLANInterface == "" {
			return ""
		}
		if common != "" && common != identity.VLANInterface {
			return ""
		}
		common = identity.VLANInterface
	}
	return common
}

func isMember(node *corev1.Node, networkID string) bool {
	return node.Annotations[contract.NodePublicNetworkID] == networkID &&
		node.Annotations[contract.NodePublicNetworkMember] == "true"
}

package plan

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// AddressReport is what the agent of one Node reports of an address.
type AddressReport struct {
	contract.ReportedAddress
	// Node is the name of the Node.
	Node string
}

// ReportsOf gathers what agents report of an address. A Node whose agent is silent, or does not know the state of its
// own network, is no witness: what its annotation says may be long past.
func ReportsOf(nodes []*corev1.Node, address netip.Addr) []AddressReport {
	var all []AddressReport
	text := address.String()
	for _, node := range nodes {
		raw := node.Annotations[contract.NodeReportedAddresses]
		if !strings.Contains(raw, text) || !ReportsNetwork(node) {
			continue // most Nodes report a few addresses or none; they need not be decoded
		}
		reported, err := contract.ParseReportedAddresses(raw)
		if err != nil {
			continue // an agent of another version; the others are heard
		}
		if entry, watched := reported[address]; watched {
			all = append(all, AddressReport{ReportedAddress: entry, Node: node.Name})
		}
	}
	return all
}

// ReportsNetwork reports whether the agent of a Node runs and knows the state of its own network.
func ReportsNetwork(node *corev1.Node) bool {
	condition := contract.FindNodeCondition(node, contract.ConditionVLANReady)
	return condition == nil || condition.Status != corev1.ConditionUnknown
}

// Reporting are the names of those who report a state.
func Reporting(all []AddressReport, state contract.AddressState) []string {
	var said []string
	for _, h := range all {
		if h.State == state {
			said = append(said, h.Node)
		}
	}
	return said
}

// Silent reports whether it is reported that no machine answers for the address, and no agent reports otherwise.
func Silent(nodes []*corev1.Node, address netip.Addr) bool {
	all := ReportsOf(nodes, address)
	return len(all) > 0 && len(Reporting(all, contract.AddressSilent)) == len(all)
}

// Machine is the Node that answers by this report; empty when it is not known.
func (h AddressReport) Machine(nodes []*corev1.Node) string {
	if h.Held {
		return h.Node
	}
	return NodeWithMAC(nodes, h.MAC)
}

// NodeWithMAC names the Node to which a hardware address belongs, as the agents report; empty when it is none's.
func NodeWithMAC(nodes []*corev1.Node, mac string) string {
	if mac == "" {
		return ""
	}
	for _, node := range nodes {
		raw := node.Annotations[contract.NodeReportedIdentity]
		var id contract.Identity
		if strings.Contains(raw, mac) && json.Unmarshal([]byte(raw), &id) == nil && slices.Contains(id.MACs, mac) {
			return node.Name
		}
	}
	return ""
}

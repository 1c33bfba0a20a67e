// Package reports is what agents report of the addresses of Services, and what follows from it, as values.
package reports

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Report is what the agent of one Node reports of an address.
type Report struct {
	contract.ReportedAddress
	// Node is the name of the Node.
	Node string
}

// Of gathers what agents report of an address. A Node whose agent is silent, or does not know the state of its
// own network, is no witness: what its annotation says may be long past.
func Of(nodes []*corev1.Node, address netip.Addr) []Report {
	var all []Report
	text := address.String()
	for _, node := range nodes {
		raw := node.Annotations[contract.NodeReportedAddresses]
		if !strings.Contains(raw, text) || !KnowsNetwork(node) {
			continue // most Nodes report a few addresses or none; they need not be decoded
		}
		reported, err := contract.ParseReportedAddresses(raw)
		if err != nil {
			continue // an agent of another version; the others are heard
		}
		if entry, watched := reported[address]; watched {
			all = append(all, Report{ReportedAddress: entry, Node: node.Name})
		}
	}
	return all
}

// KnowsNetwork reports whether the agent of a Node runs and knows the state of its own network.
func KnowsNetwork(node *corev1.Node) bool {
	condition := contract.FindNodeCondition(node, contract.ConditionVLANReady)
	return condition == nil || condition.Status != corev1.ConditionUnknown
}

// Reporting are the names of the Nodes that report a state.
func Reporting(all []Report, state contract.AddressState) []string {
	var said []string
	for _, r := range all {
		if r.State == state {
			said = append(said, r.Node)
		}
	}
	return said
}

// LatestAnswer is the report of an answer that is the newest: a Node that was cut off may not have taken its own back.
// Of several the one by the holder counts, then the first by name; the zero Report without an
// answer.
func LatestAnswer(all []Report) Report {
	var latest Report
	for _, r := range all {
		if r.State != contract.AddressAnswered {
			continue
		}
		newer := r.Since.Compare(latest.Since)
		if latest.Node == "" || r.Held && !latest.Held ||
			r.Held == latest.Held && (newer > 0 || newer == 0 && r.Node < latest.Node) {
			latest = r
		}
	}
	return latest
}

// Silent reports whether it is reported that no machine answers for the address, and no agent reports otherwise.
func Silent(nodes []*corev1.Node, address netip.Addr) bool {
	all := Of(nodes, address)
	return len(all) > 0 && len(Reporting(all, contract.AddressSilent)) == len(all)
}

// Machine is the Node that answers by this report; empty when it is not known.
func (r Report) Machine(nodes []*corev1.Node) string {
	if r.Held {
		return r.Node
	}
	return NodeWithMAC(nodes, r.MAC)
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

package balancer

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// mostNames bounds how many Nodes a condition names.
const mostNames = 5

// answers tells how an address answers, as the agents of the Nodes report it: by state, the names of the
// Nodes.
func answers(nodes []*corev1.Node, address netip.Addr) map[contract.AddressState][]string {
	states := map[contract.AddressState][]string{}
	for _, node := range nodes {
		reported, err := contract.ParseReportedAddresses(node.Annotations[contract.NodeReportedAddresses])
		if err != nil {
			continue // an agent of another version; the others are heard
		}
		if entry, watched := reported[address]; watched {
			states[entry.State] = append(states[entry.State], node.Name)
		}
	}
	return states
}

// silent tells whether it is reported that nobody answers for the address, and nobody reports otherwise.
func silent(nodes []*corev1.Node, address netip.Addr) bool {
	states := answers(nodes, address)
	return len(states) == 1 && len(states[contract.AddressSilent]) > 0
}

// announcement is the condition that says whether a node answers for the address.
func announcement(nodes []*corev1.Node, address netip.Addr) metav1.Condition {
	states := answers(nodes, address)
	condition := metav1.Condition{Type: contract.ServiceConditionAnnounced}
	switch {
	case len(states[contract.AddressDuplicate]) > 0:
		condition.Status, condition.Reason = metav1.ConditionFalse, string(contract.AddressDuplicate)
		condition.Message = "more than one machine answers for the address, say the agents of " + names(states[contract.AddressDuplicate])
	case len(states[contract.AddressAnswered]) > 0:
		condition.Status, condition.Reason = metav1.ConditionTrue, string(contract.AddressAnswered)
		condition.Message = "one machine answers for the address"
	case len(states[contract.AddressSilent]) > 0:
		condition.Status, condition.Reason = metav1.ConditionFalse, string(contract.AddressSilent)
		condition.Message = "nobody answers for the address, say the agents of " + names(states[contract.AddressSilent])
	default:
		condition.Status, condition.Reason = metav1.ConditionUnknown, reasonNotReported
		condition.Message = "no agent reports whether the address answers"
	}
	return condition
}

// names lists some names in an order that does not depend on the informer.
func names(all []string) string {
	sorted := slices.Sorted(slices.Values(all))
	if len(sorted) <= mostNames {
		return strings.Join(sorted, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(sorted[:mostNames], ", "), len(sorted)-mostNames)
}

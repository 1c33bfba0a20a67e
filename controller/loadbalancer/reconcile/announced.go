package reconcile

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// mostNames bounds how many Nodes a condition names.
const mostNames = 5

// addressReport is what the agent of one Node reports of an address.
type addressReport struct {
	contract.ReportedAddress
	node string
}

// reportsOf gathers what agents report of an address. A Node whose agent is silent, or does not know the state of its own
// network, is no witness: what its annotation says may be long past.
func reportsOf(nodes []*corev1.Node, address netip.Addr) []addressReport {
	var all []addressReport
	text := address.String()
	for _, node := range nodes {
		raw := node.Annotations[contract.NodeReportedAddresses]
		if !strings.Contains(raw, text) || !reportsNetwork(node) {
			continue // most Nodes report a few addresses or none; they need not be decoded
		}
		reported, err := contract.ParseReportedAddresses(raw)
		if err != nil {
			continue // an agent of another version; the others are heard
		}
		if entry, watched := reported[address]; watched {
			all = append(all, addressReport{ReportedAddress: entry, node: node.Name})
		}
	}
	return all
}

func reportsNetwork(node *corev1.Node) bool {
	condition := contract.FindNodeCondition(node, contract.ConditionVLANReady)
	return condition == nil || condition.Status != corev1.ConditionUnknown
}

// reporting are the names of those who report a state.
func reporting(all []addressReport, state contract.AddressState) []string {
	var said []string
	for _, h := range all {
		if h.State == state {
			said = append(said, h.node)
		}
	}
	return said
}

// silent tells whether it is reported that nobody answers for the address, and nobody reports otherwise.
func silent(nodes []*corev1.Node, address netip.Addr) bool {
	all := reportsOf(nodes, address)
	return len(all) > 0 && len(reporting(all, contract.AddressSilent)) == len(all)
}

// announcement is the condition that says which Node answers for the address. before is what the Service says now: it
// stays as it is while the same Node announces the address, whoever else comes to report that.
func announcement(nodes []*corev1.Node, address netip.Addr, before *metav1.Condition) metav1.Condition {
	all := reportsOf(nodes, address)
	quiet := reporting(all, contract.AddressSilent)
	condition := metav1.Condition{Type: contract.ServiceConditionAnnounced, Status: metav1.ConditionFalse}
	switch {
	case len(reporting(all, contract.AddressDuplicate)) > 0:
		condition.Reason = string(contract.AddressDuplicate)
		condition.Message = "more than one machine answers for the address, say the agents of " + names(reporting(all, contract.AddressDuplicate))
	case len(reporting(all, contract.AddressAnswered)) > 0:
		return answered(nodes, all, before)
	case len(quiet) > 0:
		condition.Reason = string(contract.AddressSilent)
		condition.Message = "nobody answers for the address, say the agents of " + names(quiet)
	default:
		condition.Status, condition.Reason = metav1.ConditionUnknown, reasonNotReported
		condition.Message = "no agent reports whether the address answers"
	}
	return condition
}

// answered is the condition for an address of which somebody says that one machine answers.
func answered(nodes []*corev1.Node, all []addressReport, before *metav1.Condition) metav1.Condition {
	condition := metav1.Condition{Type: contract.ServiceConditionAnnounced, Status: metav1.ConditionFalse}
	quiet := reporting(all, contract.AddressSilent)
	if holder, alone := unheard(all); alone && len(quiet) > 0 {
		condition.Reason = contract.AnnouncedHolderSilent
		condition.Message = "Node " + holder + " holds the address, but the agents of " + names(quiet) + " do not hear it"
		return condition
	}
	latest := latestAnswer(all)
	announcer := latest.machine(nodes)
	if announcer == "" && latest.MAC != "" && anyIdentity(nodes) {
		condition.Reason = contract.AnnouncedForeign
		condition.Message = latest.MAC + " answers for the address, which is the hardware address of no Node"
		return condition
	}
	who := "one machine answers for the address since "
	if announcer != "" {
		who = "Node " + announcer + " announces the address since "
	}
	condition.Status, condition.Reason = metav1.ConditionTrue, string(contract.AddressAnswered)
	condition.Message = who + latest.Since.UTC().Format(time.RFC3339)
	if before != nil && before.Status == condition.Status && strings.HasPrefix(before.Message, who) {
		condition.Message = before.Message
	}
	return condition
}

// machine is the Node that answers by this report; empty when it is not known.
func (h addressReport) machine(nodes []*corev1.Node) string {
	if h.Held {
		return h.node
	}
	return owner(nodes, h.MAC)
}

// announcerOf is the Node that announces an address, and since when; empty while that is in doubt.
func announcerOf(nodes []*corev1.Node, address netip.Addr) (node string, since time.Time) {
	if announcement(nodes, address, nil).Status != metav1.ConditionTrue {
		return "", time.Time{}
	}
	latest := latestAnswer(reportsOf(nodes, address))
	return latest.machine(nodes), latest.Since
}

// unheard tells whether those alone say that the address is answered who hold it themselves, and names the latest of them.
func unheard(all []addressReport) (holder string, alone bool) {
	for _, h := range all {
		if h.State == contract.AddressAnswered && !h.Held {
			return "", false
		}
	}
	return latestAnswer(all).node, true
}

// latestAnswer is the report of an answer that is the newest: a Node that was cut off may not have taken its own back. Of
// several the one by the holder counts, then the first by name.
func latestAnswer(all []addressReport) addressReport {
	var latest addressReport
	for _, h := range all {
		if h.State != contract.AddressAnswered {
			continue
		}
		newer := h.Since.Compare(latest.Since)
		if latest.node == "" || h.Held && !latest.Held ||
			h.Held == latest.Held && (newer > 0 || newer == 0 && h.node < latest.node) {
			latest = h
		}
	}
	return latest
}

// owner names the Node to which a hardware address belongs, as the agents report; empty when it is none's.
func owner(nodes []*corev1.Node, mac string) string {
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

func anyIdentity(nodes []*corev1.Node) bool {
	return slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return n.Annotations[contract.NodeReportedIdentity] != "" })
}

// announced is what the Service says of its announcement now; nil when it says nothing.
func announced(service *corev1.Service) *metav1.Condition {
	return meta.FindStatusCondition(service.Status.Conditions, contract.ServiceConditionAnnounced)
}

// names lists some names in an order that does not depend on the informer.
func names(all []string) string {
	sorted := slices.Sorted(slices.Values(all))
	if len(sorted) <= mostNames {
		return strings.Join(sorted, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(sorted[:mostNames], ", "), len(sorted)-mostNames)
}

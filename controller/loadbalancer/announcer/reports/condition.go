package reports

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// mostNames bounds how many Nodes a condition names.
const mostNames = 5

// What the condition Announced says beside the states of addresses.
const (
	// NotReported: no agent has reported the address yet.
	NotReported = "NotReported"
)

// Condition is the condition of a Service that says which Node answers for the address. before is what the Service says
// now: it stays as it is while the same Node announces the address, whoever else comes to report that.
func Condition(nodes []*corev1.Node, address netip.Addr, before *metav1.Condition) metav1.Condition {
	all := Of(nodes, address)
	duplicate := Reporting(all, contract.AddressDuplicate)
	quiet := Reporting(all, contract.AddressSilent)
	switch {
	case len(duplicate) > 0:
		return Announced(metav1.ConditionFalse, string(contract.AddressDuplicate),
			"more than one machine answers for the address (reported by "+Names(duplicate)+")")
	case len(Reporting(all, contract.AddressAnswered)) > 0:
		return answered(nodes, all, before)
	case len(quiet) > 0:
		return Announced(metav1.ConditionFalse, string(contract.AddressSilent),
			"no machine answers for the address (reported by "+Names(quiet)+")")
	default:
		return Announced(metav1.ConditionUnknown, NotReported,
			"no agent reports whether the address answers")
	}
}

// Announced is the condition with the type that says which Node answers.
func Announced(status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return contract.NewServiceCondition(contract.ServiceConditionAnnounced, status, reason, message)
}

// answered is the condition for an address of which a report says that one machine answers.
func answered(nodes []*corev1.Node, all []Report, before *metav1.Condition) metav1.Condition {
	quiet := Reporting(all, contract.AddressSilent)
	if holder, only := onlyHolders(all); only && len(quiet) > 0 {
		return Announced(metav1.ConditionFalse, contract.AnnouncedHolderSilent,
			"Node "+holder+" holds the address, but the agents of "+Names(quiet)+" do not hear it")
	}
	latest := LatestAnswer(all)
	announcer := latest.Machine(nodes)
	if announcer == "" && latest.MAC != "" && anyIdentity(nodes) {
		return Announced(metav1.ConditionFalse, contract.AnnouncedForeign,
			latest.MAC+" answers for the address, which is the hardware address of no Node")
	}
	who := "one machine answers for the address since "
	if announcer != "" {
		who = "Node " + announcer + " announces the address since "
	}
	condition := Announced(metav1.ConditionTrue, string(contract.AddressAnswered),
		who+latest.Since.UTC().Format(time.RFC3339))
	if before != nil && before.Status == condition.Status && strings.HasPrefix(before.Message, who) {
		condition.Message = before.Message
	}
	return condition
}

// Announcer is the Node that announces an address, and since when; empty while that is in doubt.
func Announcer(nodes []*corev1.Node, address netip.Addr) (node string, since time.Time) {
	if Condition(nodes, address, nil).Status != metav1.ConditionTrue {
		return "", time.Time{}
	}
	latest := LatestAnswer(Of(nodes, address))
	return latest.Machine(nodes), latest.Since
}

// onlyHolders reports whether only holders of the address say that it is answered, and names the latest of them.
func onlyHolders(all []Report) (holder string, only bool) {
	for _, r := range all {
		if r.State == contract.AddressAnswered && !r.Held {
			return "", false
		}
	}
	return LatestAnswer(all).Node, true
}

func anyIdentity(nodes []*corev1.Node) bool {
	return slices.ContainsFunc(nodes,
		func(n *corev1.Node) bool { return n.Annotations[contract.NodeReportedIdentity] != "" })
}

// Names lists some names in an order that does not depend on the informer.
func Names(all []string) string {
	sorted := slices.Sorted(slices.Values(all))
	if len(sorted) <= mostNames {
		return strings.Join(sorted, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(sorted[:mostNames], ", "), len(sorted)-mostNames)
}

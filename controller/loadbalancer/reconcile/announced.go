package reconcile

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// mostNames bounds how many Nodes a condition names.
const mostNames = 5

// announcement is the condition that says which Node answers for the address. before is what the Service says now: it
// stays as it is while the same Node announces the address, whoever else comes to report that.
func announcement(nodes []*corev1.Node, address netip.Addr, before *metav1.Condition) metav1.Condition {
	all := plan.ReportsOf(nodes, address)
	duplicate := plan.Reporting(all, contract.AddressDuplicate)
	quiet := plan.Reporting(all, contract.AddressSilent)
	switch {
	case len(duplicate) > 0:
		return announcedCondition(metav1.ConditionFalse, string(contract.AddressDuplicate),
			"more than one machine answers for the address (reported by "+names(duplicate)+")")
	case len(plan.Reporting(all, contract.AddressAnswered)) > 0:
		return answered(nodes, all, before)
	case len(quiet) > 0:
		return announcedCondition(metav1.ConditionFalse, string(contract.AddressSilent),
			"no machine answers for the address (reported by "+names(quiet)+")")
	default:
		return announcedCondition(metav1.ConditionUnknown, reasonNotReported,
			"no agent reports whether the address answers")
	}
}

func announcedCondition(status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return contract.NewServiceCondition(contract.ServiceConditionAnnounced, status, reason, message)
}

// explained is the condition of the announcement, with the reason why kube-vip leaves an address silent if that is the
// lack of endpoints. Agents may not read them; they read it here.
func (b *Balancer) explained(ctx context.Context, service *corev1.Service, c metav1.Condition) metav1.Condition {
	if c.Reason != string(contract.AddressSilent) || b.config.Announcer != contract.AnnouncerKubeVIP {
		return c
	}
	all, err := b.config.Kube.DiscoveryV1().EndpointSlices(service.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.Set{discoveryv1.LabelServiceName: service.Name}.String(),
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to list EndpointSlices", "service", klog.KObj(service))
		return c
	}
	lacks := lackedEndpoints(service, all.Items)
	if lacks == "" {
		return c
	}
	return announcedCondition(metav1.ConditionFalse, contract.AnnouncedNoEndpoints, c.Message+", and the Service has "+
		lacks+"; kube-vip 1.2 and newer announces an address only while there are some: start pods that the "+
		"selector of the Service matches")
}

// lackedEndpoints names the endpoints that a Service lacks for kube-vip 1.2 to announce it; empty if it has them. With
// the external traffic policy Cluster, pods that are not ready suffice; with Local, kube-vip expects the condition
// "serving" to be set.
func lackedEndpoints(service *corev1.Service, all []discoveryv1.EndpointSlice) string {
	local := service.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	if !local && strings.EqualFold(service.Annotations["kube-vip.io/allow-reconcile-without-endpoints"], "true") {
		return ""
	}
	for _, s := range all {
		for _, e := range s.Endpoints {
			if !local || ptr.Deref(e.Conditions.Serving, false) {
				return ""
			}
		}
	}
	if local {
		return "no serving endpoints"
	}
	return "no endpoints"
}

// answered is the condition for an address of which a report says that one machine answers.
func answered(nodes []*corev1.Node, all []plan.AddressReport, before *metav1.Condition) metav1.Condition {
	quiet := plan.Reporting(all, contract.AddressSilent)
	if holder, only := onlyHolders(all); only && len(quiet) > 0 {
		return announcedCondition(metav1.ConditionFalse, contract.AnnouncedHolderSilent,
			"Node "+holder+" holds the address, but the agents of "+names(quiet)+" do not hear it")
	}
	latest := plan.LatestAnswer(all)
	announcer := latest.Machine(nodes)
	if announcer == "" && latest.MAC != "" && anyIdentity(nodes) {
		return announcedCondition(metav1.ConditionFalse, contract.AnnouncedForeign,
			latest.MAC+" answers for the address, which is the hardware address of no Node")
	}
	who := "one machine answers for the address since "
	if announcer != "" {
		who = "Node " + announcer + " announces the address since "
	}
	condition := announcedCondition(metav1.ConditionTrue, string(contract.AddressAnswered),
		who+latest.Since.UTC().Format(time.RFC3339))
	if before != nil && before.Status == condition.Status && strings.HasPrefix(before.Message, who) {
		condition.Message = before.Message
	}
	return condition
}

// announcerOf is the Node that announces an address, and since when; empty while that is in doubt.
func announcerOf(nodes []*corev1.Node, address netip.Addr) (node string, since time.Time) {
	if announcement(nodes, address, nil).Status != metav1.ConditionTrue {
		return "", time.Time{}
	}
	latest := plan.LatestAnswer(plan.ReportsOf(nodes, address))
	return latest.Machine(nodes), latest.Since
}

// onlyHolders reports whether only holders of the address say that it is answered, and names the latest of them.
func onlyHolders(all []plan.AddressReport) (holder string, only bool) {
	for _, r := range all {
		if r.State == contract.AddressAnswered && !r.Held {
			return "", false
		}
	}
	return plan.LatestAnswer(all).Node, true
}

func anyIdentity(nodes []*corev1.Node) bool {
	return slices.ContainsFunc(nodes,
		func(n *corev1.Node) bool { return n.Annotations[contract.NodeReportedIdentity] != "" })
}

// names lists some names in an order that does not depend on the informer.
func names(all []string) string {
	sorted := slices.Sorted(slices.Values(all))
	if len(sorted) <= mostNames {
		return strings.Join(sorted, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(sorted[:mostNames], ", "), len(sorted)-mostNames)
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

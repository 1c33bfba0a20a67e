// Package kubevip is kube-vip: it reads addresses from an annotation of the Service, and announces them over ARP.
package kubevip

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/announcer/none"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

const (
	// takeUp is how long kube-vip has to take up a published Service: its election takes seconds.
	takeUp = time.Minute

	ignored = "kube-vip has not taken up this Service a minute after its address was published: give kube-vip " +
		"lb_class_name=" + contract.LoadBalancerClass + ", or delete the Service and create it again without " +
		"loadBalancerClass, which cannot be changed"
)

// Announcer is kube-vip. It withdraws an address only after the Service is gone.
type Announcer struct {
	none.Announcer
	kube    kubernetes.Interface
	network network.Named
}

// New returns kube-vip in the cluster of a client, for the Nodes in a public network.
func New(kube kubernetes.Interface, in network.Named) Announcer {
	return Announcer{kube: kube, network: in}
}

// Publish names the address and, unless a user did that, the VLAN interface; and the Lease of a shared address. In a
// network besides the default one, nothing is said before the interface is known: kube-vip does not heed it later.
func (a Announcer) Publish(service *corev1.Service, address netip.Addr, sharedAs string, nodes []*corev1.Node,
) map[string]any {
	wanted := map[string]any{contract.KubeVIPAddresses: address.String()}
	if sharedAs != "" {
		wanted[contract.KubeVIPLease] = leaseOf(address, sharedAs)
	}
	if service.Annotations[contract.KubeVIPInterface] != "" {
		return wanted
	}
	vlanInterface := interfaceOf(nodes, a.network)
	if vlanInterface != "" {
		wanted[contract.KubeVIPInterface] = vlanInterface
	} else if isFurther(a.network) {
		return nil
	}
	return wanted
}

// leasePrefix is that of all Leases of Services, which kube-vip's policy admits. No name of a Service is an address.
const leasePrefix = "kubevip-"

// leaseOf is the Lease by which kube-vip elects the node of an address that several Services have. Of itself it has one
// for each Service, so that two nodes would answer. It reads the annotation when it takes up a Service, and looks in
// the namespace of the Service. Services of several namespaces, whose name is a key without a namespace, need one, too:
// version 1.2 takes the namespace from before a slash (lease.ServiceName in pkg/lease).
func leaseOf(address netip.Addr, sharedAs string) string {
	lease := leasePrefix + address.String()
	if inNamespace := strings.Contains(sharedAs, "/"); !inNamespace {
		lease = metav1.NamespaceSystem + "/" + lease
	}
	return lease
}

// Withdraw removes the address and its Lease, and the VLAN interface of the Nodes.
func (a Announcer) Withdraw(service *corev1.Service, address string, nodes []*corev1.Node) map[string]any {
	removed := map[string]any{}
	if address == "" {
		return removed
	}
	if service.Annotations[contract.KubeVIPAddresses] == address {
		removed[contract.KubeVIPAddresses] = nil
	}
	if strings.HasSuffix(service.Annotations[contract.KubeVIPLease], leasePrefix+address) {
		removed[contract.KubeVIPLease] = nil
	}
	if vlanInterface := interfaceOf(nodes, a.network); vlanInterface != "" &&
		service.Annotations[contract.KubeVIPInterface] == vlanInterface {
		removed[contract.KubeVIPInterface] = nil
	}
	return removed
}

// Names reports whether the address is among those that kube-vip reads.
func (Announcer) Names(service *corev1.Service, address netip.Addr) bool {
	return slices.Contains(strings.Split(service.Annotations[contract.KubeVIPAddresses], ","), address.String())
}

// Silence reports a lack of endpoints. Agents may not read them; they are read here.
func (a Announcer) Silence(ctx context.Context, service *corev1.Service) (reason, why string) {
	all, err := a.endpoints(ctx, service)
	if err != nil {
		return "", ""
	}
	lacks := lackedEndpoints(service, all)
	if lacks == "" {
		return "", ""
	}
	return contract.AnnouncedNoEndpoints,
		"the Service has " + lacks + "; kube-vip 1.2 and newer announces an address " +
			"only while there are some: start pods that the selector of the Service matches"
}

// Ignores warns of a Service of our class, unless kube-vip is configured for that class.
func (a Announcer) Ignores(ctx context.Context, service *corev1.Service, addresses []string, nodes []*corev1.Node,
	publishedAt time.Time) (warning string, again time.Duration) {
	if rest := takeUp - time.Since(publishedAt); rest > 0 {
		return "", rest
	}
	if service.Annotations[contract.KubeVIPHost] != "" || answered(nodes, addresses) {
		return "", 0
	}
	// kube-vip rightly ignores a Service without ready endpoints.
	all, err := a.endpoints(ctx, service)
	if err != nil || !slices.ContainsFunc(all, anyReady) {
		return "", takeUp
	}
	return ignored, 0
}

// answered reports whether an agent has seen any of the addresses answer.
func answered(nodes []*corev1.Node, addresses []string) bool {
	return slices.ContainsFunc(nodes, func(node *corev1.Node) bool {
		// An invalid report contains no address.
		reported, _ := contract.ParseReportedAddresses(node.Annotations[contract.NodeReportedAddresses])
		return slices.ContainsFunc(addresses, func(text string) bool {
			address, err := netip.ParseAddr(text)
			return err == nil && (reported[address].State == contract.AddressAnswered ||
				reported[address].State == contract.AddressDuplicate)
		})
	})
}

// endpoints lists those of a Service.
func (a Announcer) endpoints(ctx context.Context, service *corev1.Service) ([]discoveryv1.EndpointSlice, error) {
	all, err := a.kube.DiscoveryV1().EndpointSlices(service.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.Set{discoveryv1.LabelServiceName: service.Name}.String(),
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to list EndpointSlices", "service", klog.KObj(service))
		return nil, err
	}
	return all.Items, nil
}

// anyReady reports whether there are ready endpoints.
func anyReady(s discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool {
		return ptr.Deref(e.Conditions.Ready, true)
	})
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

// isFurther reports whether a public network is not the default one, so that kube-vip is not configured for it.
func isFurther(n network.Named) bool { return n.Name != "" && n.Name != v1beta1.DefaultNetwork }

// interfaceOf returns the VLAN interface that kube-vip is given for addresses of a public network: the one that all
// agents of its Nodes report. Where they differ, or one of them reports none, that is left to the configuration of
// kube-vip in the default network. In another one it is the interface that most report, and Nodes on which it has
// another name announce nothing.
func interfaceOf(nodes []*corev1.Node, in network.Named) string {
	reported := map[string]int{}
	for _, node := range nodes {
		published, listed, err := contract.NodeNetworkOf(node.Annotations, in.ID)
		if node.Annotations[contract.NodeReportedIdentity] != "" && err == nil && listed && published.Member {
			reported[contract.VLANInterfaceOf(node, published.ID).Name]++
		}
	}
	if len(reported) > 1 && !isFurther(in) {
		return ""
	}
	delete(reported, "")
	most := ""
	for _, name := range slices.Sorted(maps.Keys(reported)) {
		if reported[name] > reported[most] {
			most = name
		}
	}
	return most
}

package service

import (
	"context"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

const (
	// announcerHas is how long kube-vip has to take up a published Service: its election takes seconds.
	announcerHas = time.Minute
	// kubeVIPHost is the annotation in which kube-vip writes the node that announces a Service over ARP
	// (updateStatus, in pkg/manager/services.go of v0.9 and pkg/services/services.go of v1.0).
	kubeVIPHost = "kube-vip.io/vipHost"

	textIgnored = "kube-vip has not taken up this Service a minute after its address was published: give kube-vip " +
		"lb_class_name=" +
		contract.LoadBalancerClass + ", or remove loadBalancerClass"
)

// judgeAnnouncer warns once when kube-vip ignores a Service of our class, which it does unless it is configured for
// the class. again is when to look next; 0 for never.
func (c *Controller) judgeAnnouncer(ctx context.Context, service *corev1.Service, life *life,
	status *corev1.LoadBalancerStatus) (again time.Duration) {
	if c.announcer != contract.AnnouncerKubeVIP || !contract.HasOwnClass(service) || life.announcerSeen ||
		life.publishedAt.IsZero() {
		return 0
	}
	if rest := announcerHas - time.Since(life.publishedAt); rest > 0 {
		return rest
	}
	if service.Annotations[kubeVIPHost] != "" || c.answered(addressesOf(status)) {
		life.announcerSeen = true
		return 0
	}
	// kube-vip rightly ignores a Service without ready endpoints.
	serving, err := c.hasEndpoints(ctx, service)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to list EndpointSlices", "service", klog.KObj(service))
	}
	if err != nil || !serving {
		return announcerHas
	}
	life.announcerSeen = true
	c.events.Event(service, corev1.EventTypeWarning, eventIgnored, textIgnored)
	return 0
}

// answered reports whether an agent has seen any of the addresses answer.
func (c *Controller) answered(addresses []string) bool {
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return false
	}
	return slices.ContainsFunc(nodes, func(node *corev1.Node) bool {
		// A report that cannot be read says nothing of any address.
		reported, _ := contract.ParseReportedAddresses(node.Annotations[contract.NodeReportedAddresses])
		return slices.ContainsFunc(addresses, func(text string) bool {
			address, err := netip.ParseAddr(text)
			return err == nil && (reported[address].State == contract.AddressAnswered ||
				reported[address].State == contract.AddressDuplicate)
		})
	})
}

// hasEndpoints reports whether a Service has ready endpoints.
func (c *Controller) hasEndpoints(ctx context.Context, service *corev1.Service) (bool, error) {
	slicesOf, err := c.kube.DiscoveryV1().EndpointSlices(service.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.Set{discoveryv1.LabelServiceName: service.Name}.String(),
	})
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(slicesOf.Items, func(s discoveryv1.EndpointSlice) bool {
		return slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool {
			return e.Conditions.Ready == nil || *e.Conditions.Ready
		})
	}), nil
}

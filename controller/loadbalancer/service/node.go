package service

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/loop"
)

// toBeDeleted is the taint that the cluster autoscaler puts on a Node before it deletes it.
const toBeDeleted = "ToBeDeletedByClusterAutoscaler"

// betweenPasses is the shortest time between two passes over all Services because of Nodes.
const betweenPasses = time.Second

// bearing is what of a Node matters to Services.
type bearing struct {
	carries    bool
	vlanReady  corev1.ConditionStatus
	network    string
	member     string
	providerID string
	identity   string
}

func (c *Controller) bearingOf(node *corev1.Node) bearing {
	b := bearing{
		carries:    carries(node, c.selector),
		network:    node.Annotations[contract.NodePublicNetworkID],
		member:     node.Annotations[contract.NodePublicNetworkMember],
		providerID: node.Spec.ProviderID,
		identity:   node.Annotations[contract.NodeReportedIdentity],
	}
	if condition := contract.FindNodeCondition(node, contract.ConditionVLANReady); condition != nil {
		b.vlanReady = condition.Status
	}
	return b
}

// carries reports whether traffic of load balancers may go to the Node.
func carries(node *corev1.Node, selector labels.Selector) bool {
	if node.DeletionTimestamp != nil || !selector.Matches(labels.Set(node.Labels)) {
		return false
	}
	if slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == toBeDeleted }) {
		return false
	}
	return !contract.ExcludedFromLoadBalancers(node)
}

// reportChanges returns the addresses of which the agent of a Node says something else than before.
func reportChanges(before, after *corev1.Node) []netip.Addr {
	was := before.Annotations[contract.NodeReportedAddresses]
	is := after.Annotations[contract.NodeReportedAddresses]
	if was == is {
		return nil
	}
	// A report that cannot be read says nothing of any address.
	old, _ := contract.ParseReportedAddresses(was)
	current, _ := contract.ParseReportedAddresses(is)
	changed := map[netip.Addr]bool{}
	for address, report := range old {
		changed[address] = saysOther(current[address], report)
	}
	for address, report := range current {
		changed[address] = saysOther(old[address], report)
	}
	maps.DeleteFunc(changed, func(_ netip.Addr, differs bool) bool { return !differs })
	return slices.Collect(maps.Keys(changed))
}

// saysOther reports whether two reports of an address differ in more than their start.
func saysOther(a, b contract.ReportedAddress) bool {
	return a.State != b.State || a.MAC != b.MAC || a.Held != b.Held
}

// alarm collects the changes of Nodes until they are read. It is safe for concurrent use.
type alarm struct {
	mu        sync.Mutex
	since     time.Time
	all       bool
	addresses map[string]bool
	rings     loop.Wake
}

func newAlarm() *alarm { return &alarm{addresses: map[string]bool{}, rings: loop.NewWake()} }

// ring records that all Services must be checked, or those with an address.
func (a *alarm) ring(all bool, addresses ...netip.Addr) {
	if !all && len(addresses) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.since.IsZero() {
		a.since = time.Now()
	}
	a.all = a.all || all
	for _, address := range addresses {
		a.addresses[address.String()] = true
	}
	a.rings.Signal()
}

// silence returns what was collected and resets the alarm.
func (a *alarm) silence() (since time.Time, concerned func(*corev1.Service) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	since, all, addresses := a.since, a.all, a.addresses
	a.since = time.Time{}
	a.all = false
	a.addresses = map[string]bool{}
	return since, func(service *corev1.Service) bool {
		if claimOn(service) == foreign {
			return false
		}
		return (all && claimOn(service) == wanted) || addresses[service.Annotations[contract.ServiceIPAddress]] ||
			slices.ContainsFunc(addressesOf(&service.Status.LoadBalancer),
				func(address string) bool { return addresses[address] }) ||
			(len(addresses) > 0 && waitsForSilence(service))
	}
}

// waitsForSilence reports whether a Service waits for an address in quarantine, which ends when agents report that no
// machine answers for it any more.
func waitsForSilence(service *corev1.Service) bool {
	condition := meta.FindStatusCondition(service.Status.Conditions, contract.ServiceConditionBlockAssigned)
	return condition != nil && condition.Reason == string(plan.AddressResting)
}

// nodeChanged compares two versions of a Node. Heartbeats, which are most of what happens to Nodes, end here.
func (c *Controller) nodeChanged(before, after any) {
	was, ok := before.(*corev1.Node)
	is, ok2 := after.(*corev1.Node)
	if !ok || !ok2 {
		return
	}
	c.alarm.ring(c.bearingOf(was) != c.bearingOf(is), reportChanges(was, is)...)
}

// watchNodes puts Services into the queue after changes of Nodes, in passes some time apart.
func (c *Controller) watchNodes(ctx context.Context) {
	for c.alarm.rings.Await(ctx) {
		c.passOverServices(ctx)
		if !loop.Sleep(ctx, betweenPasses) {
			return
		}
	}
}

func (c *Controller) passOverServices(ctx context.Context) {
	since, concerned := c.alarm.silence()
	all, err := c.services.List(labels.Everything())
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to list Services")
		return
	}
	concernedOnes := slices.DeleteFunc(slices.Clone(all), func(s *corev1.Service) bool { return !concerned(s) })
	klog.FromContext(ctx).V(2).Info("Nodes changed", "services", len(concernedOnes))
	c.pass.begin(since, concernedOnes)
	for _, service := range concernedOnes {
		c.queue.Add(nameOf(service))
	}
}

// anyNode reports whether any Node may carry traffic.
func (c *Controller) anyNode() (bool, error) {
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(nodes, func(node *corev1.Node) bool { return carries(node, c.selector) }), nil
}

package service

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

// betweenPasses is the minimum time between two passes over all Services because of Nodes.
const betweenPasses = time.Second

// nodeFacts is what of a Node matters to Services.
type nodeFacts struct {
	networks   string // whether it carries the traffic of each of its networks, else why not
	vlanReady  corev1.ConditionStatus
	providerID string
	identity   string
}

func (c *Controller) factsOf(node *corev1.Node) nodeFacts {
	facts := nodeFacts{
		providerID: node.Spec.ProviderID,
		identity:   node.Annotations[contract.NodeReportedIdentity],
	}
	for _, rule := range c.config.Carriers.All(node) {
		// Of an unreadable annotation the obstacle says so.
		public, _, _ := contract.NodeNetworkOf(node.Annotations, rule.Network)
		facts.networks += fmt.Sprintln(rule.Network, public.Member, rule.Obstacle(node, true))
	}
	if condition := contract.FindNodeCondition(node, contract.ConditionVLANReady); condition != nil {
		facts.vlanReady = condition.Status
	}
	return facts
}

// reportChanges returns the addresses about which the report of a Node's agent has changed.
func reportChanges(before, after *corev1.Node) []netip.Addr {
	was := before.Annotations[contract.NodeReportedAddresses]
	is := after.Annotations[contract.NodeReportedAddresses]
	if was == is {
		return nil
	}
	// An invalid report contains no address.
	old, _ := contract.ParseReportedAddresses(was)
	current, _ := contract.ParseReportedAddresses(is)
	same := func(a, b contract.ReportedAddress) bool { // but for their start
		return a.State == b.State && a.MAC == b.MAC && a.Held == b.Held
	}
	all := map[netip.Addr]contract.ReportedAddress{}
	maps.Copy(all, old)
	maps.Copy(all, current)
	maps.DeleteFunc(all, func(address netip.Addr, _ contract.ReportedAddress) bool {
		return same(old[address], current[address])
	})
	return slices.Collect(maps.Keys(all))
}

// nodeChanges collects the changes of Nodes until they are read. It is safe for concurrent use.
type nodeChanges struct {
	mu        sync.Mutex
	since     time.Time
	all       bool
	addresses map[string]bool
	wake      loop.Wake
}

func newNodeChanges() *nodeChanges {
	return &nodeChanges{addresses: map[string]bool{}, wake: loop.NewWake()}
}

// add records that all Services must be checked, or those with an address.
func (n *nodeChanges) add(all bool, addresses ...netip.Addr) {
	if !all && len(addresses) == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.since.IsZero() {
		n.since = time.Now()
	}
	n.all = n.all || all
	for _, address := range addresses {
		n.addresses[address.String()] = true
	}
	n.wake.Signal()
}

// drain returns what was collected and starts again.
func (n *nodeChanges) drain() (since time.Time, concerned func(*corev1.Service) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	since, all, addresses := n.since, n.all, n.addresses
	n.since = time.Time{}
	n.all = false
	n.addresses = map[string]bool{}
	return since, func(service *corev1.Service) bool {
		owned := ownershipOf(service)
		if owned == foreign {
			return false
		}
		return (all && owned == wanted) || addresses[service.Annotations[contract.ServiceIPAddress]] ||
			slices.ContainsFunc(addressesOf(&service.Status.LoadBalancer),
				func(address string) bool { return addresses[address] }) ||
			(len(addresses) > 0 && inQuarantine(service))
	}
}

// inQuarantine reports whether a Service waits for an address in quarantine, which reports of agents can end.
func inQuarantine(service *corev1.Service) bool {
	condition := meta.FindStatusCondition(service.Status.Conditions, contract.ServiceConditionBlockAssigned)
	return condition != nil && condition.Reason == string(ipblock.AddressQuarantined)
}

// nodeChanged compares two versions of a Node. It ignores heartbeats, which are most of the updates of Nodes.
func (c *Controller) nodeChanged(before, after any) {
	was, ok := before.(*corev1.Node)
	is, ok2 := after.(*corev1.Node)
	if !ok || !ok2 {
		return
	}
	c.changes.add(c.factsOf(was) != c.factsOf(is), reportChanges(was, is)...)
}

// watchNodes puts Services into the queue after changes of Nodes, in passes some time apart.
func (c *Controller) watchNodes(ctx context.Context) {
	for c.changes.wake.Await(ctx) {
		c.passOverServices(ctx)
		if !loop.Sleep(ctx, betweenPasses) {
			return
		}
	}
}

func (c *Controller) passOverServices(ctx context.Context) {
	since, concerned := c.changes.drain()
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

// pass measures how long it takes to check every Service after a change of Nodes. It is safe for concurrent use.
type pass struct {
	metrics *Metrics
	mu      sync.Mutex
	since   time.Time
	left    map[types.NamespacedName]bool
}

func newPass(metrics *Metrics) *pass {
	return &pass{metrics: metrics, left: map[types.NamespacedName]bool{}}
}

// begin adds Services to check because of a change at that time.
func (p *pass) begin(since time.Time, services []*corev1.Service) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.left) == 0 {
		p.since = since
	}
	for _, service := range services {
		p.left[nameOf(service)] = true
	}
}

// done records that a Service was checked, and whether that failed.
func (p *pass) done(key types.NamespacedName, took time.Duration, failed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.left[key] {
		return
	}
	delete(p.left, key)
	p.metrics.hostLatency.Observe(took.Seconds())
	if failed {
		p.metrics.nodeErrors.Inc()
	}
	if len(p.left) == 0 {
		p.metrics.nodeLatency.Observe(time.Since(p.since).Seconds())
	}
}

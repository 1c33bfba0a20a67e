// Package nodestate connects what is published of one public network and the checks: it adds to the expected state what
// only the agent knows, and turns samples into what the network reports on the Node, and into metrics.
package nodestate

import (
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/sampler"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/blocks"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/vip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Reporter takes what the network reports on the Node.
type Reporter interface {
	Outcome(condition corev1.NodeConditionType, o check.Outcome)
	Identity(id contract.Identity)
}

// Metrics take figures.
type Metrics interface {
	Sample(report check.Report, s check.Snapshot, expected check.Expected, now time.Time)
	Addresses(findings []check.Finding)
}

// Health takes what /healthz and /readyz report.
type Health interface {
	Sampled(now time.Time)
	SetReady()
}

// Config is what a NodeState works with.
type Config struct {
	Reporter Reporter
	// Services returns the Services of the cluster; ok is false before they were listed.
	Services func() (services []*corev1.Service, ok bool)
	// Blocks returns the blocks that IPBlocks name of the network of a name; ok is false while they are awaited.
	Blocks  func(name string) (network []contract.NetworkBlock, ok bool)
	Metrics Metrics
	Health  Health
	// OnExpectation is called when what to expect may have changed, OnSample after each sample. They must not block.
	OnExpectation, OnSample func()
}

// NodeState holds what is published of a network, and the latest sample.
type NodeState struct {
	Config

	mu sync.Mutex
	// published is what to expect by the Node; known reports whether that was read.
	published check.Expected
	known     bool
	sample    *sampler.Sample
}

// New returns a NodeState.
func New(config Config) *NodeState { return &NodeState{Config: config} }

// Expect takes what to expect by the Node.
func (n *NodeState) Expect(published check.Expected) {
	n.mu.Lock()
	changed := !n.known || !reflect.DeepEqual(n.published, published)
	n.known = true
	n.published = published
	n.mu.Unlock()
	if changed {
		n.OnExpectation()
	}
}

// Expected returns what to expect at the moment.
func (n *NodeState) Expected() check.Expected {
	n.mu.Lock()
	expected, known := n.published, n.known
	n.mu.Unlock()
	network, ok := n.Blocks(expected.Network.Name)
	expected.Unreached = !known || !ok
	expected.Network.Blocks = blocks.Merged(expected.Network.Blocks, network)
	expected.Virtual, _ = n.virtual()
	return expected
}

// BlockedReason is why the agent must not change the machine's network: it is not the server that its Node names.
func (n *NodeState) BlockedReason() string {
	sample := n.latest()
	if sample == nil {
		return ""
	}
	// What the Node names may be newer than the sample was.
	if f := check.Evaluate(n.Expected(), sample.Snapshot).Finding(check.Identity); f.Status == check.Fail {
		return string(f.ID) + ": " + f.Cause
	}
	return ""
}

// virtual returns the addresses of Services; ok is false before they were listed.
func (n *NodeState) virtual() (addresses []netip.Addr, ok bool) {
	services, ok := n.Services()
	for _, t := range vip.Targets(services) {
		addresses = append(addresses, t.Address)
	}
	return addresses, ok
}

// Sample takes a sample: it becomes the outcome for the condition VLANReady, the reported identity and metrics. One
// that was taken before the Node was read only becomes metrics: an agent that starts must not write to its Node that
// the controller has published no network, nor continue in place of an earlier one without it.
func (n *NodeState) Sample(sample sampler.Sample) {
	now := time.Now()
	n.Health.Sampled(now)
	n.Metrics.Sample(sample.Report, sample.Snapshot, sample.Expected, now)
	if sample.Expected.Unreached {
		return
	}
	n.mu.Lock()
	n.sample = &sample
	n.mu.Unlock()
	n.Health.SetReady()
	n.set(contract.ConditionVLANReady, sample.Report.Outcome(), sampler.ReasonConfirming)
	// Before the Services are known, an address of one could be taken for the machine's own.
	if virtual, ok := n.virtual(); ok {
		n.Reporter.Identity(identityOf(sample, virtual))
	}
	n.OnSample()
}

// VLANInterface is the name of the interface on the public network; empty while there is none.
func (n *NodeState) VLANInterface() string {
	if sample := n.latest(); sample != nil {
		return sample.Report.Interface
	}
	return ""
}

// latest returns the latest sample, nil before the first since the Node was read.
func (n *NodeState) latest() *sampler.Sample {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sample
}

// Addresses takes the findings for the addresses of Services: they become the outcome for the condition
// AnnouncementHealthy and metrics.
func (n *NodeState) Addresses(findings []check.Finding, verdict check.Outcome) {
	n.Metrics.Addresses(findings)
	n.set(contract.ConditionAnnouncementHealthy, verdict, vip.ReasonConfirming)
}

// set publishes a result, unless it only waits for confirmation: until then the Node's condition stays as it is, so
// that an agent that restarts changes nothing that holds.
func (n *NodeState) set(conditionType corev1.NodeConditionType, v check.Outcome, confirming string) {
	if v.Reason != confirming {
		n.Reporter.Outcome(conditionType, v)
	}
}

// View returns what the announcement watcher needs, without the addresses that the agent itself answers for; ok is
// false before the first sample since the Node was read.
func (n *NodeState) View() (view vip.View, ok bool) {
	sample := n.latest()
	if sample == nil {
		return vip.View{}, false
	}
	verdict := sample.Report.Outcome()
	return vip.View{
		Ready: verdict.Status == check.OK, Why: verdict.Reason,
		Report: sample.Report, Snapshot: sample.Snapshot, Expected: sample.Expected,
		Announcer: sample.Expected.Network.Announcer,
	}, true
}

// IdentityLimit is the maximum number of hardware addresses, and of addresses, that are reported, so that a machine
// with a network card of a hundred virtual functions does not fill its Node.
const IdentityLimit = 64

// identityOf returns the identity of the machine of a sample. Only the machine's own interfaces count: physical ones,
// bonds and VLANs, and the uplink with its members whatever they are; bridges and pod interfaces belong to the
// container network. The addresses of Services (virtual, or added deprecated as kube-vip does) move between machines
// and identify none.
func identityOf(sample sampler.Sample, virtual []netip.Addr) contract.Identity {
	s := sample.Snapshot
	report := sample.Report
	id := contract.Identity{
		Hostname: s.Hostname, ServerID: s.Machine.ServerID, Addresses: []netip.Addr{}, MACs: []string{},
	}
	if report.Interface != "" {
		id.VLANInterfaces = map[string]contract.VLANInterface{sample.Expected.Network.ID: {Name: report.Interface}}
	}
	own := map[int]bool{}
	for _, l := range s.Links {
		if !machineLink(s, l, report.Uplink) {
			continue
		}
		own[l.Index] = true
		// The VLAN interface may have an address of its own, and that is the one that others see.
		if l.MAC != "" && (l.VLAN == nil || l.Name == report.Interface) {
			id.MACs = append(id.MACs, l.MAC)
		}
		// The members of a bond share its address; their permanent addresses identify the machine.
		if l.Slave != nil && l.Slave.PermanentMAC != "" {
			id.MACs = append(id.MACs, l.Slave.PermanentMAC)
		}
	}
	for _, a := range s.Addresses {
		addr := a.Prefix.Addr()
		if own[a.LinkIndex] && addr.IsGlobalUnicast() && !a.Deprecated && !slices.Contains(virtual, addr) {
			id.Addresses = append(id.Addresses, addr)
		}
	}
	slices.Sort(id.MACs)
	id.MACs = firstOf(slices.Compact(id.MACs))
	slices.SortFunc(id.Addresses, netip.Addr.Compare)
	id.Addresses = firstOf(slices.Compact(id.Addresses))
	return id
}

func firstOf[T any](all []T) []T { return all[:min(len(all), IdentityLimit)] }

func machineLink(s check.Snapshot, l check.Link, uplink string) bool {
	switch l.Type {
	case "device":
		return l.Name != "lo"
	case "bond", "vlan":
		return true
	default:
		if l.Name == uplink {
			return true
		}
		master := s.LinkIndexed(l.Master)
		return l.Master != 0 && master != nil && (master.Name == uplink || master.Type == "bond")
	}
}

// Package nodestate connects the Node and the checks: it turns the Node into the expected state, and samples into
// conditions, annotations and metrics.
package nodestate

import (
	"encoding/json"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/sampler"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/conditions"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/vip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Publisher writes to the Node.
type Publisher interface {
	Observe(node *corev1.Node)
	Set(c conditions.Condition)
	Annotate(key, value string)
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
	// Interface and Uplink are names that a person configured; usually empty.
	Interface, Uplink string
	// Mark and Mask are those of the return path where the agent manages it, see check.Expected.
	Mark, Mask uint32
	// TableBase makes the number of the routing table, see check.Expected.
	TableBase int
	Publisher Publisher
	// Services returns the Services of the cluster; ok is false before they were listed.
	Services func() (services []*corev1.Service, ok bool)
	Metrics  Metrics
	Health   Health
	// OnExpectation is called when what to expect may have changed, OnSample after each sample. They must not block.
	OnExpectation, OnSample func()
}

// NodeState holds the Node's latest state and the latest sample.
type NodeState struct {
	Config

	mu sync.Mutex
	// known reports whether the Node was read.
	known       bool
	annotations map[string]string
	addresses   []netip.Addr
	sample      *sampler.Sample
}

// New returns a NodeState.
func New(config Config) *NodeState { return &NodeState{Config: config} }

// ObserveNode takes a version of the Node, nil when it was deleted.
func (n *NodeState) ObserveNode(node *corev1.Node) {
	var annotations map[string]string
	var addresses []netip.Addr
	if node != nil {
		annotations = node.Annotations
		addresses = contract.NodeIPs(node)
	}
	n.Publisher.Observe(node)
	n.mu.Lock()
	changed := !n.known || !sameNetwork(n.annotations, annotations) || !slices.Equal(n.addresses, addresses)
	n.known = true
	n.annotations = annotations
	n.addresses = addresses
	n.mu.Unlock()
	if changed {
		n.OnExpectation()
	}
}

func sameNetwork(a, b map[string]string) bool {
	return !slices.ContainsFunc(contract.NetworkAnnotations(), func(key string) bool { return a[key] != b[key] })
}

// Expected returns what to expect at the moment.
func (n *NodeState) Expected() check.Expected {
	n.mu.Lock()
	annotations, addresses, known := n.annotations, n.addresses, n.known
	n.mu.Unlock()
	expected := check.ExpectedOf(annotations, addresses)
	expected.Unreached = !known
	expected.Interface = n.Interface
	expected.Uplink = n.Uplink
	expected.Mark = n.Mark
	expected.Mask = n.Mask
	expected.TableBase = n.TableBase
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

// Sample takes a sample: it becomes the condition VLANReady, the reported identity and metrics. One that was taken
// before the Node was read only becomes metrics: an agent that starts must not write to its Node that the controller
// has published no network, nor continue in place of an earlier one without it.
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
		// Strings and addresses always encode.
		if raw, err := json.Marshal(identityOf(sample.Snapshot, sample.Report, virtual)); err == nil {
			n.Publisher.Annotate(contract.NodeReportedIdentity, string(raw))
		}
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

// Addresses takes the findings for the addresses of Services: it becomes the condition AnnouncementHealthy and metrics.
func (n *NodeState) Addresses(findings []check.Finding, verdict check.Outcome) {
	n.Metrics.Addresses(findings)
	n.set(contract.ConditionAnnouncementHealthy, verdict, vip.ReasonConfirming)
}

// Reported publishes the report of the addresses.
func (n *NodeState) Reported(r contract.ReportedAddresses) {
	// Addresses, words and times always encode.
	if raw, err := r.Encode(); err == nil {
		n.Publisher.Annotate(contract.NodeReportedAddresses, raw)
	}
}

// ReportedBefore returns what the agent reported on the Node; ok is false before the Node was seen. A report that
// cannot be read is written again.
func (n *NodeState) ReportedBefore() (reported contract.ReportedAddresses, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	reported, err := contract.ParseReportedAddresses(n.annotations[contract.NodeReportedAddresses])
	if err != nil {
		reported = nil
	}
	return reported, n.annotations != nil
}

// set publishes a result, unless it only waits for confirmation: until then the Node's condition stays as it is, so
// that an agent that restarts changes nothing that holds.
func (n *NodeState) set(conditionType corev1.NodeConditionType, v check.Outcome, confirming string) {
	if v.Reason == confirming {
		return
	}
	n.Publisher.Set(conditions.Condition{Type: conditionType, Status: statusOf(v.Status), Reason: v.Reason,
		Message: v.Message})
}

func statusOf(status check.Status) corev1.ConditionStatus {
	switch status {
	case check.OK:
		return corev1.ConditionTrue
	case check.Fail:
		return corev1.ConditionFalse
	default:
		return corev1.ConditionUnknown
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

// identityLimit is the maximum number of hardware addresses, and of addresses, that are reported, so that a machine
// with a network card of a hundred virtual functions does not fill its Node.
const identityLimit = 64

// identityOf returns the identity of the machine of s. Only the machine's own interfaces count: physical ones, bonds
// and VLANs, and the uplink with its members whatever they are; bridges and pod interfaces belong to the container
// network. The addresses of Services (virtual, or added deprecated as kube-vip does) move between machines and identify
// none.
func identityOf(s check.Snapshot, report check.Report, virtual []netip.Addr) contract.Identity {
	id := contract.Identity{
		Hostname: s.Hostname, VLANInterface: report.Interface, ServerID: s.Machine.ServerID,
		Addresses: []netip.Addr{}, MACs: []string{},
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

func firstOf[T any](all []T) []T { return all[:min(len(all), identityLimit)] }

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

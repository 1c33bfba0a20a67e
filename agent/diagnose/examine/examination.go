//go:build linux

package examine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/election"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/diagnose"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/sampler"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/blocks"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/nodewatch"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer/kinds"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer/kubevip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/vip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// nameAge is how long the owners of hardware addresses are cached: each lookup reads all Nodes.
const nameAge = time.Minute

// Config is what an Examiner works with.
type Config struct {
	// Node is the name of the Node that this machine is.
	Node string
	// Client reads from the API server; nil when there is none, and NoClient is the reason. NoClient is nil when a
	// person gave all that is needed.
	Client   kubernetes.Interface
	NoClient error
	// IPBlocks reads the IPBlocks; nil where Client is.
	IPBlocks nodewatch.BlockSource
	// Timeout bounds how long the API server is waited for.
	Timeout time.Duration
	// ByHand is the network as given by a person, in place of what the controller published; nil when it is not given.
	ByHand *check.Expected
	// Network is the name of the public network to examine, of those of the Node; empty: all of them, or that of the
	// address.
	Network string
	// Interface and Uplink are names of links that a person set; empty: found.
	Interface, Uplink string
	// KubeVIPLease is the kubevip.Key of kube-vip's Lease for all Services.
	KubeVIPLease string
	Reader       sampler.Reader
	Prober       sampler.Prober
}

// Examiner examines one node, once or periodically.
type Examiner struct {
	Config
	elections *kubevip.Reader

	// names are the owners of hardware addresses as they were at namedAt.
	names   owners
	namedAt time.Time
}

// New returns an examiner; it starts nothing.
func New(config Config) *Examiner {
	e := &Examiner{Config: config}
	if config.Client != nil {
		e.elections = kubevip.NewReader(config.Client.CoordinationV1(), config.KubeVIPLease, config.Node, nil)
	}
	return e
}

// observed is what was observed at one moment.
type observed struct {
	cluster  cluster
	expected check.Expected
	view     vip.View
	// agreement is what the agents have agreed on, see Examiner.agreement.
	agreement *election.View
}

// observe reads the API server, the kernel and the wire. name is that of the public network; empty for that of the
// address, which is one of a Service besides those that are known, invalid when there is none. Without either it is the
// first network of the Node.
func (e *Examiner) observe(ctx context.Context, name string, address netip.Addr) (observed, diagnose.Document, error) {
	s := observed{cluster: e.ask(ctx)}
	if name == "" && address.IsValid() {
		name = s.cluster.territory().Of(address)
	}
	s.expected = e.expected(s.cluster, name)
	s.cluster.services = s.cluster.servicesOf(s.expected.Network.Name)
	if address.IsValid() && !slices.Contains(s.expected.Virtual, address) &&
		!slices.Contains(s.expected.Network.IPs, address) {
		s.expected.Virtual = append(s.expected.Virtual, address)
	}
	snapshot, err := sampler.Look(ctx, e.Reader, e.Prober, s.expected)
	if err != nil {
		return s, diagnose.Document{}, fmt.Errorf("examine the node: %w", err)
	}
	managed := managedOf(snapshot)
	s.expected.Mask = managed.mask
	report := check.Evaluate(s.expected, snapshot)
	s.view = vip.View{Node: e.Node, Report: report, Snapshot: snapshot, Expected: s.expected,
		Announcer: s.expected.Network.Announcer, By: e.announcer(ctx, s)}
	agreement, err := e.agreement(ctx, s)
	if err != nil {
		s.cluster.err = errors.Join(s.cluster.err, err)
	}
	s.agreement = agreement
	s.view.Answers = ownedBy(agreement, e.Node)
	d := diagnose.Document{
		SchemaVersion: diagnose.SchemaVersion, Time: time.Now().UTC().Truncate(time.Second), Node: e.Node,
		ServerID: s.expected.Network.ServerID, Network: s.expected.Describe(), Interface: report.Interface,
		Uplink:   report.Uplink,
		Renderer: snapshot.Renderer, Managed: managed.things, Findings: report.Findings,
	}
	if s.cluster.err != nil {
		d.APIServer = s.cluster.err.Error()
	}
	return s, d, nil
}

// announcer is how addresses are announced on the network that was observed.
func (e *Examiner) announcer(ctx context.Context, o observed) announcer.Announcer {
	leases := func(s *corev1.Service, _ time.Time) kubevip.Lease { return e.elections.LookTwice(ctx, s, renewal) }
	return kinds.All(leases).Of(o.expected.Network.Announcer)
}

// expected is what a person gave, else what the controller published.
func (e *Examiner) expected(c cluster, name string) check.Expected {
	var expected check.Expected
	switch {
	case e.ByHand != nil:
		expected = *e.ByHand
	case c.node != nil:
		expected = check.ExpectedOf(c.node.Annotations, contract.NodeIPs(c.node), name)
		published := c.known.Network(expected.Network.Name, c.services)
		expected.Network.Blocks = blocks.Merged(expected.Network.Blocks, published)
	default:
		expected.Unreached = true
	}
	expected.Interface = e.Interface
	expected.Uplink = e.Uplink
	expected.Virtual = nil
	for _, t := range c.targets() {
		expected.Virtual = append(expected.Virtual, t.Address)
	}
	return expected
}

// Examine diagnoses the node, all addresses of Services, and those that the node carries for no Service. The document
// of a node in several public networks is that of the one with the worst result, and names the others with theirs.
func (e *Examiner) Examine(ctx context.Context) (diagnose.Document, error) {
	networks, first, err := e.examine(ctx, e.Network)
	if e.Network != "" || err != nil || len(networks) < 2 {
		return first, err
	}
	all := []diagnose.InNetwork{{Name: networks[0].Name, Document: first}}
	for _, n := range networks[1:] {
		_, d, err := e.examine(ctx, n.Name)
		if err != nil {
			return d, err
		}
		all = append(all, diagnose.InNetwork{Name: n.Name, Document: d})
	}
	return diagnose.Worst(all), nil
}

// examine diagnoses the node in the public network of a name, or the first one of those that it returns.
func (e *Examiner) examine(ctx context.Context, name string) (of []contract.NodeNetwork, d diagnose.Document,
	err error) {
	s, d, err := e.observe(ctx, name, netip.Addr{})
	if err == nil {
		d, err = e.withAddresses(ctx, s, d)
	}
	if e.ByHand == nil {
		of = s.cluster.networks()
	}
	return of, d.Sum(), err
}

// withAddresses adds what is found about addresses of Services.
func (e *Examiner) withAddresses(ctx context.Context, s observed, d diagnose.Document) (diagnose.Document, error) {
	if s.view.Report.Interface == "" || s.view.By.Placement() == announcer.Nowhere {
		return d, nil
	}
	targets := s.cluster.targets()
	unasked, broken := vip.Unasked(s.view.Report, targets)
	if broken {
		d.Findings = append(d.Findings, unasked...)
		return d, nil
	}
	all := slices.Clone(targets)
	if s.cluster.listed {
		all = append(all, vip.StaleAddresses(s.cluster.services, s.view)...)
	}
	observations, err := vip.Observe(ctx, e.Prober, e.Reader, s.view, all)
	if err != nil {
		return d, fmt.Errorf("look the addresses of Services up: %w", err)
	}
	names, err := e.ownersOf(ctx, s.cluster, observations)
	if err != nil {
		d.APIServer = joined(d.APIServer, err.Error())
	}
	for i, o := range observations {
		o.Gone = i >= len(targets)
		nameOwners(&o, names)
		d.Findings = append(d.Findings, vip.Evaluate(o))
	}
	return d, nil
}

// ownersOf are the owners of hardware addresses, where an observation has any; nil when they are not known.
func (e *Examiner) ownersOf(ctx context.Context, c cluster, observations []vip.Observation) (owners, error) {
	claimed := slices.ContainsFunc(observations, func(o vip.Observation) bool { return len(o.MACs) > 0 })
	if !c.listed || !claimed {
		return nil, nil
	}
	if time.Since(e.namedAt) < nameAge {
		return e.names, nil
	}
	names := owners{}
	if err := e.nodes(ctx, names.learn); err != nil {
		return nil, err
	}
	e.names = names
	e.namedAt = time.Now()
	return e.names, nil
}

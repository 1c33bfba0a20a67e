//go:build linux

package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/election"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/examiner"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/heartbeat"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/localhealth"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/speaker"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/announce/store"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/observe/netstate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/conditions"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/report/metricsserver"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/vip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/arp"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/packet"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/responder"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// How gateways are probed: only for a short time, because a takeover of addresses waits for the answer.
const (
	gatewayRounds   = 2
	gatewayInterval = 150 * time.Millisecond
	// clusterTimeout bounds a read of the UID of the cluster.
	clusterTimeout = 5 * time.Second
	// maxGateways bounds how many are asked at once.
	maxGateways = 3
)

// announceFlags say how the agent announces addresses where the controller has it do so.
type announceFlags struct{ rebalance time.Duration }

// minRebalance is the minimum of --announcer-rebalance, and its default.
const minRebalance = time.Minute

func (f *announceFlags) add(flags *pflag.FlagSet) {
	flags.DurationVar(&f.rebalance, "announcer-rebalance", minRebalance,
		"minimum time between two moves of an address that only make the numbers of addresses of the nodes more even; "+
			"an address that moves loses its connections; 0 switches such moves off, and has to be given on all nodes")
}

func (f *announceFlags) check() error {
	if f.rebalance != 0 && f.rebalance < minRebalance {
		return usageError{fmt.Errorf("--announcer-rebalance %s: give %s or more, or 0 to move no address that way",
			f.rebalance, minRebalance)}
	}
	return nil
}

// announcer announces addresses together with the agents of other nodes, while the controller has the agents do so.
type announcer struct {
	*shared
	responder *responder.Responder
	speaker   *speaker.Speaker
	events    *speaker.Recorder
	carrier   *packet.Carrier
}

// newAnnouncer returns the announcer and the parts that it runs.
func newAnnouncer(s *shared, client kubernetes.Interface) (*announcer, []part) {
	views := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	keys := heartbeat.NewKeys()
	secret := store.Key{Secrets: client.CoreV1().Secrets(metav1.NamespaceSystem), Set: func(content string, err error) {
		keys.Set(content, err)
		s.wakes.announcer.Signal()
	}}
	examiner := &examiner.Examiner{Client: client, Claimed: s.claimed}
	local := localhealth.New(s.wakes.localHealth, s.localPorts, s.nodeAddresses, s.wakes.announcer.Signal)
	a := &announcer{shared: s, events: speaker.NewRecorder(s.name), carrier: &packet.Carrier{},
		responder: responder.New(responder.Config{
			Interface: s.state.VLANInterface, Seed: seedOf(s.name), Watch: s.watchLinks,
		})}
	a.speaker = speaker.New(speaker.Config{
		Node:        s.name,
		NewElection: func(c election.Config) speaker.Election { return election.New(c) },
		NewStore:    func(networkID string) speaker.Store { return store.New(views, networkID) },
		Transport:   heartbeat.Config{Interface: s.state.VLANInterface, Source: s.ownAddress, Keys: keys},
		WatchKeys:   secret.Watch,
		Rebalance:   s.flags.announce.rebalance,
		Responder:   a.responder,
		Network:     s.announcedNetwork,
		Cluster:     s.clusterUID,
		Facts:       func() election.Facts { return s.facts(local.Ready, a.carrier) },
		Waiting:     s.turn.Post.Waiting, Release: s.turn.Post.Release,
		List: s.listAddresses, AskGateway: s.askGateway, Examine: examiner.Examine, Record: a.record,
		Isolated: s.wakes.lease.Signal,
		Clock:    responder.Now,
		Signals:  s.wakes.announcer,
	})
	// It is asked by another goroutine than the speaker.
	carrier := &packet.Carrier{}
	facts := stability{facts: func() election.Facts { return s.facts(local.Ready, carrier) }, now: time.Now}
	s.turn.Warm = func() bool { return a.complete() && facts.stable() }
	return a, []part{local, a.speaker, part(wakeAnnouncer{s})}
}

// facts are what the announcer needs to know. An agent beside which an earlier one runs stands by.
func (s *shared) facts(localReady func(port int32) bool, carrier *packet.Carrier) election.Facts {
	facts := s.inputs(localReady, carrier).Facts()
	facts.Standby = s.turn.Waits()
	return facts
}

// complete reports whether the agent knows what it needs to continue in place of an earlier one.
func (a *announcer) complete() bool {
	_, listed := a.services.Services()
	return a.health.Ready() == nil && listed && (a.announcedNetwork() == "" || a.speaker.State().View != nil)
}

// record checks the addresses when one moved, and records an event.
func (a *announcer) record(e election.Event) {
	if e.Kind == election.BecameOwner || e.Kind == election.LostOwnership {
		a.wakes.addresses.Signal()
	}
	if n, ok := a.events.Of(e, time.Now()); ok {
		if subject := a.subject(n.Address); subject != nil {
			a.recorder.Event(subject, n.Type, n.Reason, n.Message)
		}
	}
}

// subject is the object of an event: the Service whose address is announced, or the Node where there is no address; nil
// when it is not known, or not any more.
func (a *announcer) subject(address netip.Addr) *corev1.ObjectReference {
	if !address.IsValid() {
		return conditions.Reference(a.publisher.Observed())
	}
	services, _ := a.services.Services()
	for _, s := range services {
		if announced, ok := speaker.Address(s); ok && announced == address {
			return &corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: s.Namespace, Name: s.Name,
				UID: s.UID}
		}
	}
	return nil
}

// watchLinks reports changes of the kernel's interfaces to the responder, and to the announcer as well.
func (s *shared) watchLinks(ctx context.Context, changed func()) error {
	return netstate.Watch(ctx, func() {
		changed()
		s.wakes.announcer.Signal()
	})
}

// seedOf makes a number that differs from node to node.
func seedOf(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	return h.Sum64()
}

// announcedNetwork is the network on which the agents announce, empty while others do. It is called often, so it is
// separate from what takes a look at the kernel.
func (s *shared) announcedNetwork() string {
	known := speaker.Inputs{}
	known.View, known.Sampled = s.state.View()
	return known.Network()
}

// inputs are what is known of node and cluster.
func (s *shared) inputs(localReady func(port int32) bool, carrier *packet.Carrier) speaker.Inputs {
	known := speaker.Inputs{Node: s.node.Node(), LocalReady: localReady}
	known.View, known.Sampled = s.state.View()
	known.Services, known.Listed = s.services.Services()
	known.Link = carrier.Up(known.View.Report.Interface, packet.Look)
	return known
}

// clusterUID reads the UID of the cluster, that of the namespace kube-system.
func (s *shared) clusterUID(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	namespace, err := s.client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read Namespace %s: %w", metav1.NamespaceSystem, err)
	}
	if namespace.UID == "" {
		return "", fmt.Errorf("read Namespace %s: it has no UID", metav1.NamespaceSystem)
	}
	return string(namespace.UID), nil
}

// listAddresses asks the API server for the addresses of all Services. Without a resource version the answer comes from
// etcd's majority.
func (s *shared) listAddresses(ctx context.Context) (map[netip.Addr]bool, error) {
	list, err := s.client.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.type", string(corev1.ServiceTypeLoadBalancer)).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("list Services: %w", err)
	}
	services := make([]*corev1.Service, len(list.Items))
	for i := range list.Items {
		services[i] = &list.Items[i]
	}
	return speaker.Existing(services), nil
}

// localPorts are what kube-proxy is to be asked about, while the agents announce.
func (s *shared) localPorts() []int32 {
	if s.announcedNetwork() == "" {
		return nil
	}
	services, _ := s.services.Services()
	return speaker.LocalPorts(services)
}

// nodeAddresses are those of the Node's status.
func (s *shared) nodeAddresses() []netip.Addr {
	if node := s.node.Node(); node != nil {
		return contract.NodeIPs(node)
	}
	return nil
}

// ownAddress is the node's address on the VLAN interface, invalid where it has none.
func (s *shared) ownAddress() netip.Addr {
	view, _ := s.state.View()
	address, _ := netip.ParseAddr(view.Report.Source)
	return address
}

// askGateway asks for the gateways of the public network.
func (s *shared) askGateway(ctx context.Context) bool {
	view, _ := s.state.View()
	var questions []arp.Question
	for _, b := range view.Expected.Network.Blocks {
		if len(questions) < maxGateways {
			questions = append(questions, arp.Question{Target: b.Gateway, Source: s.ownAddress(),
				To: s.gateways.Last(b.Gateway)})
		}
	}
	prober := arp.NewProber()
	prober.Rounds = gatewayRounds
	prober.Interval = gatewayInterval
	answers, err := prober.Ask(ctx, view.Report.Interface, questions)
	for i, a := range answers {
		s.gateways.Learn(questions[i].Target, a)
	}
	return err == nil && slices.ContainsFunc(answers, func(a arp.Answer) bool { return a.Replied })
}

// maxProbed bounds how many addresses are probed at once: a silent member is examined again and again.
const maxProbed = 64

// claimed returns the addresses that another machine claims. If there are many, it probes some of them.
func (s *shared) claimed(ctx context.Context, addresses []netip.Addr) (map[netip.Addr]bool, error) {
	view, _ := s.state.View()
	some := slices.Clone(addresses)
	rand.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	return arp.NewProber().Claimed(ctx, view.Report.Interface, some[:min(len(some), maxProbed)])
}

// answers are the addresses that this node answers for at the moment, sorted.
func (a *announcer) answers() []netip.Addr {
	state := a.speaker.State()
	if responder.Now() >= state.Until {
		return nil
	}
	return state.Addresses
}

// view is the state of the node with the addresses that the node itself answers for.
func (a *announcer) view() (view vip.View, ok bool) {
	if view, ok = a.state.View(); ok {
		view.Answers = a.answers()
	}
	return view, ok
}

// recordAddresses reports the findings about addresses. That this node cannot announce any goes first: a person can fix
// it.
func (a *announcer) recordAddresses(findings []check.Finding, verdict check.Outcome) {
	a.state.Addresses(findings, withAnnouncer(a.speaker.State(), verdict))
}

// withAnnouncer is the verdict about all addresses together with what is wrong with the announcer of this node.
func withAnnouncer(state speaker.State, verdict check.Outcome) check.Outcome {
	switch {
	case state.Running && state.Problem != "":
		return check.Outcome{Status: check.Fail, Reason: vip.ReasonNoKey,
			Message: "this node announces no addresses: " + state.Problem}
	case state.Running && state.KeyShared && verdict.Status == check.OK:
		verdict.Reason = contract.HeartbeatKeyShared
		verdict.Message += "; another cluster signs heartbeats on this VLAN with the key of this one, which drops " +
			"them: replace the key of one of the clusters, in its Secret kube-system/" + contract.AnnouncerSecret
	default:
	}
	return verdict
}

// figures are what metrics say of the announcer.
func (a *announcer) figures() metricsserver.Announcer {
	state := a.speaker.State()
	beats := a.speaker.Transport.Counts
	packets := a.responder.Counters()
	figures := metricsserver.Announcer{
		Running: state.Running, View: state.View, Addresses: a.answers(), Took: state.BecameOwner,
		Gave: state.LostOwnership, Repeated: state.Repeated, APIFailures: state.APIFailures,
		Sent: beats.Sent(), Late: state.Late, Announced: packets.Announced,
		Heard: map[string]uint64{"no_room": state.Lost}, Requests: map[string]uint64{},
	}
	for drop, n := range beats.Received() {
		figures.Heard[drop.String()] = n
	}
	for result, n := range packets.Frames {
		figures.Requests[result.String()] = n
	}
	return figures
}

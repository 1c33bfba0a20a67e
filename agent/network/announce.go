//go:build linux

package network

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

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

// newAnnouncer returns what announces addresses together with the agents of other nodes, while the controller has the
// agents do so.
func (r *Runtime) newAnnouncer() []Part {
	views := r.Announcing.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	keys := heartbeat.NewKeys()
	secret := store.Key{Secrets: r.Announcing.CoreV1().Secrets(metav1.NamespaceSystem),
		Set: func(content string, err error) {
			keys.Set(content, err)
			r.wakes.announcer.Signal()
		}}
	examiner := &examiner.Examiner{Client: r.Announcing, Network: r.id, Claimed: r.claimed}
	r.local = localhealth.New(r.wakes.localHealth, r.localPorts, r.nodeAddresses, r.wakes.announcer.Signal)
	r.events = speaker.NewRecorder(r.Node)
	r.responder = responder.New(responder.Config{
		Interface: r.state.VLANInterface, Seed: seedOf(r.Node), Watch: r.watchLinks,
	})
	carrier := &packet.Carrier{}
	r.speaker = speaker.New(speaker.Config{
		Node:        r.Node,
		NewElection: func(c election.Config) speaker.Election { return election.New(c) },
		NewStore:    func(networkID string) speaker.Store { return store.New(views, networkID) },
		Transport:   heartbeat.Config{Interface: r.state.VLANInterface, Source: r.ownAddress, Keys: keys},
		WatchKeys:   secret.Watch,
		Rebalance:   r.Rebalance,
		Responder:   r.responder,
		Network:     r.announcedNetwork,
		Cluster:     r.clusterUID,
		Facts:       func() election.Facts { return r.facts(carrier) },
		Waiting:     r.replaced, Release: func() { r.release(r.id) },
		List: r.listAddresses, AskGateway: r.askGateway, Examine: examiner.Examine, Record: r.recordElection,
		Isolated: r.lease.Signal,
		Clock:    responder.Now,
		Signals:  r.wakes.announcer,
	})
	// It is asked by another goroutine than the speaker.
	other := &packet.Carrier{}
	r.stability = stability{facts: func() election.Facts { return r.facts(other) }, now: time.Now}
	return []Part{r.local, r.speaker, wakeOnTurn{r.Turn, r.wakes.announcer}}
}

// facts are what the announcer needs to know. An agent beside which an earlier one runs stands by.
func (r *Runtime) facts(carrier *packet.Carrier) election.Facts {
	facts := r.inputs(carrier).Facts()
	facts.Standby = r.Turn.Waits()
	return facts
}

// warm reports whether the Runtime knows what it needs to continue in place of that of an earlier agent. It is for one
// goroutine.
func (r *Runtime) warm() bool {
	_, listed := r.services.Services()
	complete := r.health.Ready() == nil && listed && (r.announcedNetwork() == "" || r.speaker.State().View != nil)
	return complete && r.stability.stable()
}

// recordElection checks the addresses when one moved, and records an event.
func (r *Runtime) recordElection(e election.Event) {
	if e.Kind == election.BecameOwner || e.Kind == election.LostOwnership {
		r.wakes.addresses.Signal()
	}
	if n, ok := r.events.Of(e, time.Now()); ok {
		if subject := r.subject(n.Address); subject != nil {
			r.Recorder.Event(subject, n.Type, n.Reason, n.Message)
		}
	}
}

// subject is the object of an event: the Service whose address is announced, or the Node where there is no address; nil
// when it is not known, or not any more.
func (r *Runtime) subject(address netip.Addr) *corev1.ObjectReference {
	if !address.IsValid() {
		return conditions.Reference(r.publisher.Observed())
	}
	services, _ := r.ownServices()
	for _, s := range services {
		if announced, ok := speaker.Address(s); ok && announced == address {
			return &corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: s.Namespace, Name: s.Name,
				UID: s.UID}
		}
	}
	return nil
}

// watchLinks reports changes of the kernel's interfaces to the responder, and to the announcer as well.
func (r *Runtime) watchLinks(ctx context.Context, changed func()) error {
	return netstate.Watch(ctx, func() {
		changed()
		r.wakes.announcer.Signal()
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
func (r *Runtime) announcedNetwork() string {
	known := speaker.Inputs{}
	known.View, known.Sampled = r.state.View()
	return known.Network()
}

// inputs are what is known of node and cluster.
func (r *Runtime) inputs(carrier *packet.Carrier) speaker.Inputs {
	known := speaker.Inputs{Node: r.watcher.Node(), LocalReady: r.local.Ready, Allocated: r.blocks.Allocated}
	known.View, known.Sampled = r.state.View()
	known.Services, known.Listed = r.ownServices()
	known.Link = carrier.Up(known.View.Report.Interface, packet.Look)
	return known
}

// clusterUID reads the UID of the cluster, that of the namespace kube-system.
func (r *Runtime) clusterUID(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	namespace, err := r.Client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read Namespace %s: %w", metav1.NamespaceSystem, err)
	}
	if namespace.UID == "" {
		return "", fmt.Errorf("read Namespace %s: it has no UID", metav1.NamespaceSystem)
	}
	return string(namespace.UID), nil
}

// listAddresses asks the API server for the addresses of all Services on the network. Without a resource version the
// answer comes from etcd's majority.
func (r *Runtime) listAddresses(ctx context.Context) (map[netip.Addr]bool, error) {
	list, err := r.Client.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.type", string(corev1.ServiceTypeLoadBalancer)).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("list Services: %w", err)
	}
	services := make([]*corev1.Service, len(list.Items))
	for i := range list.Items {
		services[i] = &list.Items[i]
	}
	return speaker.Existing(r.territory().Services(services, r.id)), nil
}

// localPorts are what kube-proxy is to be asked about, while the agents announce.
func (r *Runtime) localPorts() []int32 {
	if r.announcedNetwork() == "" {
		return nil
	}
	services, _ := r.ownServices()
	return speaker.LocalPorts(services)
}

// nodeAddresses are those of the Node's status.
func (r *Runtime) nodeAddresses() []netip.Addr {
	if node := r.watcher.Node(); node != nil {
		return contract.NodeIPs(node)
	}
	return nil
}

// ownAddress is the node's address on the VLAN interface, invalid where it has none.
func (r *Runtime) ownAddress() netip.Addr {
	view, _ := r.state.View()
	address, _ := netip.ParseAddr(view.Report.Source)
	return address
}

// askGateway asks for the gateways of the public network.
func (r *Runtime) askGateway(ctx context.Context) bool {
	view, _ := r.state.View()
	var questions []arp.Question
	for _, b := range view.Expected.Network.Blocks {
		if len(questions) < maxGateways {
			questions = append(questions, arp.Question{Target: b.Gateway, Source: r.ownAddress(),
				To: r.gateways.Last(b.Gateway)})
		}
	}
	prober := arp.NewProber()
	prober.Rounds = gatewayRounds
	prober.Interval = gatewayInterval
	answers, err := prober.Ask(ctx, view.Report.Interface, questions)
	for i, a := range answers {
		r.gateways.Learn(questions[i].Target, a)
	}
	return err == nil && slices.ContainsFunc(answers, func(a arp.Answer) bool { return a.Replied })
}

// maxProbed bounds how many addresses are probed at once: a silent member is examined again and again.
const maxProbed = 64

// claimed returns the addresses that another machine claims. If there are many, it probes some of them.
func (r *Runtime) claimed(ctx context.Context, addresses []netip.Addr) (map[netip.Addr]bool, error) {
	view, _ := r.state.View()
	some := slices.Clone(addresses)
	rand.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	return arp.NewProber().Claimed(ctx, view.Report.Interface, some[:min(len(some), maxProbed)])
}

// answers are the addresses that this node answers for at the moment, sorted.
func (r *Runtime) answers() []netip.Addr {
	state := r.speaker.State()
	if responder.Now() >= state.Until {
		return nil
	}
	return state.Addresses
}

// view is the state of the node with the addresses that the node itself answers for.
func (r *Runtime) view() (view vip.View, ok bool) {
	if view, ok = r.state.View(); ok {
		view.Answers = r.answers()
	}
	return view, ok
}

// recordAddresses reports the findings about addresses. That this node cannot announce any goes first: a person can fix
// it.
func (r *Runtime) recordAddresses(findings []check.Finding, verdict check.Outcome) {
	r.state.Addresses(findings, withAnnouncer(r.speaker.State(), verdict))
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
func (r *Runtime) figures() metricsserver.Announcer {
	state := r.speaker.State()
	beats := r.speaker.Transport.Counts
	packets := r.responder.Counters()
	figures := metricsserver.Announcer{
		Running: state.Running, View: state.View, Addresses: r.answers(), Took: state.BecameOwner,
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

//go:build linux

package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/netip"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/election"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/heartbeat"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/localhealth"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/speaker"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/store"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/observe/netstate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/report/metricsserver"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/vip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/wire/arp"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/wire/packet"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/wire/responder"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// How gateways are probed: only for a short time, because a takeover of addresses waits for the answer.
const (
	gatewayRounds   = 2
	gatewayInterval = 150 * time.Millisecond
	// mostGateways bounds how many are asked at once.
	mostGateways = 3
)

// announceFlags say how the agent announces addresses where the controller has it do so.
type announceFlags struct {
	keyFile  string
	interval time.Duration
}

// The bounds of --announcer-interval.
const (
	leastInterval = 50 * time.Millisecond
	mostInterval  = 5 * time.Second
)

func (f *announceFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.keyFile, "announcer-key-file", "",
		"file with the key of the agents' heartbeats, from the key \"key\" of Secret "+
			"kube-system/phoenixnap-announcer; without it this node announces no addresses with agent://")
	flags.DurationVar(&f.interval, "announcer-interval", election.StandardInterval,
		"time between two heartbeats, three of which make a node silent; the same for all agents of a cluster, or "+
			"they do not hear each other")
}

func (f *announceFlags) check() error {
	if f.interval < leastInterval || f.interval > mostInterval || f.interval%time.Millisecond != 0 {
		return usageError{fmt.Errorf("--announcer-interval %s: give whole milliseconds from %s to %s", f.interval,
			leastInterval, mostInterval)}
	}
	return nil
}

// announcer announces addresses together with the agents of other nodes, while the controller has the agents do so.
type announcer struct {
	*shared
	responder *responder.Responder
	herald    *speaker.Speaker
}

// newAnnouncer returns the announcer and the parts that it runs.
func newAnnouncer(s *shared, views store.ConfigMaps) (*announcer, []part) {
	local := localhealth.New(s.wakes.localHealth, s.localPorts, s.nodeAddresses, s.wakes.announcer.Signal)
	answering := responder.New(responder.Config{Interface: s.station.VLANInterface, Seed: seedOf(s.name),
		Watch: s.watchLinks})
	herald := speaker.New(speaker.Config{
		Node:        s.name,
		NewElection: func(c election.Config) speaker.Election { return election.New(c) },
		NewStore:    func(networkID string) speaker.Store { return store.New(views, networkID) },
		Transport: heartbeat.Config{
			Interface: s.station.VLANInterface, Source: s.ownAddress,
			Keys: heartbeat.NewKeyFile(s.flags.announce.keyFile), Interval: s.flags.announce.interval,
		},
		Responder:  answering,
		Network:    s.announcedNetwork,
		Facts:      func() election.Facts { return s.situation(local.Ready).Facts() },
		AskGateway: s.askGateway, Off: s.off, Record: newTeller(s).tell, Clock: responder.Now,
		Signals: s.wakes.announcer,
	})
	return &announcer{shared: s, responder: answering, herald: herald}, []part{local, herald}
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
	known.View, known.Sampled = s.station.View()
	return known.Network()
}

// situation is what is known of node and cluster.
func (s *shared) situation(localReady func(port int32) bool) speaker.Inputs {
	known := speaker.Inputs{Node: s.node.Node(), LocalReady: localReady}
	known.View, known.Sampled = s.station.View()
	known.Services, known.Listed = s.services.Services()
	if link, err := packet.Look(known.View.Report.Interface); err == nil {
		known.Link = link.Up
	}
	return known
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
	view, _ := s.station.View()
	address, err := netip.ParseAddr(view.Report.Source)
	if err != nil {
		return netip.Addr{}
	}
	return address
}

// askGateway asks for the gateways of the public network.
func (s *shared) askGateway(ctx context.Context) bool {
	view, _ := s.station.View()
	var questions []arp.Question
	for _, b := range view.Expected.Network.Blocks {
		if len(questions) < mostGateways {
			questions = append(questions, arp.Question{Target: b.Gateway, Source: s.ownAddress()})
		}
	}
	asker := arp.NewProber()
	asker.Rounds = gatewayRounds
	asker.Interval = gatewayInterval
	answers, err := asker.Ask(ctx, view.Report.Interface, questions)
	if err != nil {
		return false
	}
	for _, a := range answers {
		if a.Replied {
			return true
		}
	}
	return false
}

// off reports whether a Node is certainly off: it was deleted, or a taint marks it as off.
func (s *shared) off(ctx context.Context, name string) (bool, error) {
	node, err := s.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("read Node %s: %w", name, err)
	}
	for _, taint := range node.Spec.Taints {
		if taint.Key == corev1.TaintNodeOutOfService || taint.Key == cloudproviderapi.TaintNodeShutdown {
			return true, nil
		}
	}
	return false, nil
}

// answers are the addresses that this node answers for at the moment, sorted.
func (a *announcer) answers() []netip.Addr {
	state := a.herald.State()
	if responder.Now() >= state.Until {
		return nil
	}
	return state.Addresses
}

// view is the state of the node with the addresses that the node itself answers for.
func (a *announcer) view() (view vip.View, known bool) {
	if view, known = a.station.View(); known {
		view.Answers = a.answers()
	}
	return view, known
}

// tellAddresses reports the findings about addresses. That this node cannot announce any goes first: a person
// can fix it.
func (a *announcer) tellAddresses(findings []check.Finding, verdict check.Outcome) {
	if state := a.herald.State(); state.Running && state.Problem != "" {
		verdict = check.Outcome{Status: check.Fail, Reason: vip.ReasonNoKey,
			Message: "this node announces no addresses: " + state.Problem}
	}
	a.station.Addresses(findings, verdict)
}

// figures are what metrics say of the announcer.
func (a *announcer) figures() metricsserver.Announcer {
	state := a.herald.State()
	beats := a.herald.Transport.Counts
	packets := a.responder.Counters()
	figures := metricsserver.Announcer{
		Running: state.Running, Addresses: a.answers(), Took: state.BecameOwner, Gave: state.LostOwnership,
		APIFailures: state.APIFailures,
		Sent:        beats.Sent(), Announced: packets.Announced, Heard: map[string]uint64{"no_room": state.Lost},
		Requests: map[string]uint64{},
	}
	if state.View != nil {
		figures.View = state.View.Number
		figures.Members = len(state.View.Members)
		figures.Since = make(map[netip.Addr]time.Time, len(figures.Addresses))
		for _, address := range figures.Addresses {
			figures.Since[address] = state.View.Owners[address].Since
		}
	}
	for drop, n := range beats.Received() {
		figures.Heard[drop.String()] = n
	}
	for verdict, n := range packets.Frames {
		figures.Requests[verdict.String()] = n
	}
	return figures
}

// teller records events about the addresses that the agents announce.
type teller struct {
	*shared
	tidings *speaker.Recorder
}

func newTeller(s *shared) *teller { return &teller{shared: s, tidings: speaker.NewRecorder(s.name)} }

// tell checks the addresses when one moved, and records an event.
func (t *teller) tell(e election.Event) {
	if e.Kind == election.BecameOwner || e.Kind == election.LostOwnership {
		t.wakes.addresses.Signal()
	}
	if n, is := t.tidings.Of(e, time.Now()); is {
		if about := t.subject(n); about != nil {
			t.recorder.Event(about, n.Type, n.Reason, n.Message)
		}
	}
}

// subject is the object of an event; nil when it is not known, or not any more.
func (t *teller) subject(n speaker.Notice) *corev1.ObjectReference {
	if n.Address.IsValid() {
		return t.serviceOf(n.Address)
	}
	if own := t.publisher.Observed(); own != nil {
		return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: own.Name, UID: own.UID}
	}
	return nil
}

// serviceOf is the Service whose address is announced, nil when there is none.
func (t *teller) serviceOf(a netip.Addr) *corev1.ObjectReference {
	services, _ := t.services.Services()
	for _, s := range services {
		if address, is := speaker.Address(s); is && address == a {
			return &corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: s.Namespace, Name: s.Name,
				UID: s.UID}
		}
	}
	return nil
}

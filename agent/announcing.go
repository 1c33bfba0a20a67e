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
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/eligibility"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/events"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/heartbeat"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/localhealth"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/speaker"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/announce/store"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/observe/netstate"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/report/metricsserver"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/vip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/wire/arp"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/wire/boottime"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/wire/packet"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/wire/responder"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// What a question for the gateways is: so short, because somebody waits for the answer who is about to take addresses over.
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
		"file with the key of the agents' heartbeats, from the key \"key\" of Secret kube-system/phoenixnap-announcer; without it this node announces no addresses with agent://")
	flags.DurationVar(&f.interval, "announcer-interval", election.StandardInterval,
		"time between two heartbeats, three of which make a node silent; the same for all agents of a cluster, or they do not hear each other")
}

func (f *announceFlags) check() error {
	if f.interval < leastInterval || f.interval > mostInterval || f.interval%time.Millisecond != 0 {
		return usageError{fmt.Errorf("--announcer-interval %s: give whole milliseconds from %s to %s", f.interval, leastInterval, mostInterval)}
	}
	return nil
}

// announce announces addresses together with the agents of other nodes, while the controller has the agents do so.
func (p *process) announce(views store.ConfigMaps) {
	p.responder = responder.New(responder.Config{Interface: p.station.VLANInterface, Seed: seedOf(p.name), Watch: func(ctx context.Context, changed func()) error {
		return netstate.Watch(ctx, func() {
			changed()
			p.herald.Changed()
		})
	}})
	p.tidings = events.New(p.name)
	p.local = localhealth.New(p.localPorts, p.nodeAddresses, func() { p.herald.Changed() })
	p.herald = speaker.New(speaker.Config{
		Node:     p.name,
		NewCore:  func(c election.Config) speaker.Election { return election.New(c) },
		NewStore: func(networkID string) speaker.Store { return store.New(views, networkID) },
		Line: heartbeat.Config{
			Interface: p.station.VLANInterface, Source: p.ownAddress, Keys: heartbeat.NewKeyFile(p.flags.announce.keyFile), Interval: p.flags.announce.interval,
		},
		Responder:  p.responder,
		Network:    p.announcedNetwork,
		Facts:      func() election.Facts { return p.situation().Facts() },
		AskGateway: p.askGateway, Off: p.off, Tell: p.tellEvent, Clock: boottime.Now,
	})
	p.add(p.local, p.herald)
}

// announceAnew says that what this node announces may be to change.
func (p *process) announceAnew() {
	p.local.Changed()
	p.herald.Changed()
}

// seedOf makes a number that differs from node to node.
func seedOf(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	return h.Sum64()
}

// announcedNetwork is the network on which the agents announce, empty while others do. It is asked for often, hence apart
// from what takes a look at the kernel.
func (p *process) announcedNetwork() string {
	s := eligibility.State{}
	s.View, s.Sampled = p.station.View()
	return s.Network()
}

// situation is what is known of node and cluster.
func (p *process) situation() eligibility.State {
	s := eligibility.State{Node: p.watcher.Node(), LocalReady: p.local.Ready}
	s.View, s.Sampled = p.station.View()
	s.Services, s.Listed = p.watcher.Services()
	if link, err := packet.Look(s.View.Report.Interface); err == nil {
		s.Link = link.Up
	}
	return s
}

// localPorts are what kube-proxy is to be asked about, while the agents announce.
func (p *process) localPorts() []int32 {
	if p.announcedNetwork() == "" {
		return nil
	}
	services, _ := p.watcher.Services()
	return eligibility.LocalPorts(services)
}

// nodeAddresses are those of the Node's status.
func (p *process) nodeAddresses() []netip.Addr {
	if node := p.watcher.Node(); node != nil {
		return contract.NodeIPs(node)
	}
	return nil
}

// ownAddress is the node's address on the VLAN interface, invalid where it has none.
func (p *process) ownAddress() netip.Addr {
	view, _ := p.station.View()
	address, err := netip.ParseAddr(view.Report.Source)
	if err != nil {
		return netip.Addr{}
	}
	return address
}

// askGateway asks for the gateways of the public network.
func (p *process) askGateway(ctx context.Context) bool {
	view, _ := p.station.View()
	var questions []arp.Question
	for _, b := range view.Expected.Network.Blocks {
		if len(questions) < mostGateways {
			questions = append(questions, arp.Question{Target: b.Gateway, Source: p.ownAddress()})
		}
	}
	asker := arp.NewProber()
	asker.Rounds, asker.Interval = gatewayRounds, gatewayInterval
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

// off tells whether a Node is certainly off: somebody has deleted it, or whoever knows machines says that this one is off.
func (p *process) off(ctx context.Context, name string) (bool, error) {
	node, err := p.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
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
func (p *process) answers() []netip.Addr {
	state := p.herald.State()
	if boottime.Now() >= state.Until {
		return nil
	}
	return state.Addresses
}

// tellAddresses tells what was found of the addresses. That this node cannot announce any goes before: it is what a person
// can mend.
func (p *process) tellAddresses(findings []check.Finding, verdict check.Verdict) {
	if state := p.herald.State(); state.Running && state.Problem != "" {
		verdict = check.Verdict{Status: check.Fail, Reason: vip.ReasonNoKey, Message: "this node announces no addresses: " + state.Problem}
	}
	p.station.Addresses(findings, verdict)
}

// announcerFigures are what metrics say of the announcer.
func (p *process) announcerFigures() metricsserver.Announcer {
	state, beats, packets := p.herald.State(), p.herald.Heartbeats(), p.responder.Counters()
	figures := metricsserver.Announcer{
		Running: state.Running, Addresses: p.answers(), Took: state.Took, Gave: state.Gave, APIFailures: state.APIFailures,
		Sent: beats.Sent, Announced: packets.Announced, Heard: map[string]uint64{"no_room": state.Lost}, Requests: map[string]uint64{},
	}
	if state.View != nil {
		figures.View, figures.Members = state.View.Number, len(state.View.Members)
		figures.Since = make(map[netip.Addr]time.Time, len(figures.Addresses))
		for _, a := range figures.Addresses {
			figures.Since[a] = state.View.Owners[a].Since
		}
	}
	for drop, n := range beats.Heard {
		figures.Heard[drop.String()] = n
	}
	for verdict, n := range packets.Frames {
		figures.Requests[verdict.String()] = n
	}
	return figures
}

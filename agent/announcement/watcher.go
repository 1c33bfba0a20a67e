package announcement

import (
	"context"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/l2"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/steady"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

const (
	// badSamples is how many samples in a row it takes to believe that an address is not announced as it should be: a
	// takeover leaves it silent for a moment.
	badSamples = 2
	// confirm is the pause before the sample that confirms the last.
	confirm = 2 * time.Second
)

// View is what the watcher needs to know of the node.
type View struct {
	// Ready tells whether the VLAN is ready; else nothing can be asked, and Why says why.
	Ready bool
	Why   string
	// Report and Snapshot are those of the last sample of the node.
	Report   check.Report
	Snapshot check.Snapshot
	// Announcer is the annotation contract.NodeAnnouncer.
	Announcer string
}

// Asker asks the wire.
type Asker interface {
	Ask(ctx context.Context, interfaceName string, questions []l2.Question) ([]l2.Answer, error)
}

// Router looks up routes.
type Router interface {
	Routes(s check.Snapshot, questions []check.RouteQuestion) []check.RouteAnswer
}

// Watcher looks up the announced addresses on the wire.
type Watcher struct {
	Asker  Asker
	Router Router
	// View returns the node's state; known is false before the first sample.
	View func() (view View, known bool)
	// Services returns the Services of the cluster; known is false before they were listed.
	Services func() (services []*corev1.Service, known bool)
	// Interval is the time between samples.
	Interval time.Duration
	// Tell receives the findings of each address and the verdict over all; it must not block.
	Tell func([]check.Finding, check.Verdict)

	states map[Target]*steady.Value[check.Finding]
}

// Run watches until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	w.states = map[Target]*steady.Value[check.Finding]{}
	for {
		pause := w.Interval
		if w.sample(ctx) {
			pause = min(confirm, w.Interval)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

func (w *Watcher) sample(ctx context.Context) (pending bool) {
	view, seen := w.View()
	services, listed := w.Services()
	if !seen || !listed {
		return true
	}
	targets := Targets(services)
	if view.Announcer == contract.AnnouncerNone {
		targets = nil
	}
	if len(targets) > 0 && !view.Ready {
		w.Tell(nil, check.Verdict{Status: check.Unknown, Reason: ReasonVLANNotReady, Message: "the addresses cannot be asked for: " + view.Why})
		return true
	}
	observations, err := Observe(ctx, w.Asker, w.Router, view, targets)
	if err != nil {
		return true
	}
	findings, pending := w.damp(observations)
	klog.FromContext(ctx).V(4).Info("Looked up announced addresses", "addresses", len(targets))
	w.Tell(findings, Sum(findings))
	return pending
}

// damp believes good news at once and bad news when it comes twice. Addresses that are no more are forgotten.
func (w *Watcher) damp(observations []Observation) (findings []check.Finding, pending bool) {
	states := make(map[Target]*steady.Value[check.Finding], len(observations))
	for _, o := range observations {
		state := w.states[o.Target]
		if state == nil {
			state = &steady.Value[check.Finding]{}
		}
		states[o.Target] = state
		sample := Judge(o)
		class, needed := sample.Reason, badSamples
		if sample.Status == check.OK {
			needed = 1
		}
		held, settled, waiting := state.Observe(sample, class, needed)
		if !settled {
			held = sample
			held.Status, held.Reason, held.Cause = check.Unknown, ReasonConfirming, "not confirmed yet: "+sample.Cause
		}
		findings, pending = append(findings, held), pending || waiting
	}
	w.states = states
	return findings, pending
}

// Observe asks for the targets once. The sender address of the requests is the node's own, never that of a Service. Only
// the end of ctx is an error; a question that could not be put is an observation.
func Observe(ctx context.Context, asker Asker, router Router, view View, targets []Target) ([]Observation, error) {
	source := view.source()
	observations := make([]Observation, len(targets))
	questions := make([]l2.Question, len(targets))
	for i, t := range targets {
		observations[i] = Observation{Target: t, Interface: view.Report.Interface, Held: view.Snapshot.Holds(t.Address)}
		observations[i].ReturnBy = returnBy(router, view, observations[i])
		questions[i] = l2.Question{Target: t.Address, Source: source}
		if !source.IsValid() {
			observations[i].Error = "the node has no address of its own on the VLAN interface"
		}
	}
	if !source.IsValid() || len(targets) == 0 {
		return observations, nil
	}
	answers, err := asker.Ask(ctx, view.Report.Interface, questions)
	for i := range observations {
		if err != nil {
			observations[i].Error = err.Error()
			continue
		}
		observations[i].MACs, observations[i].Replied = answers[i].MACs, answers[i].Replied
	}
	return observations, ctx.Err()
}

// source is the node's own address on the VLAN interface, invalid when there is none.
func (v View) source() netip.Addr {
	source, err := netip.ParseAddr(v.Report.Source)
	if err != nil {
		return netip.Addr{}
	}
	return source
}

// returnBy looks up by which interface this node would answer a client from an address that it holds.
func returnBy(router Router, view View, o Observation) string {
	for _, name := range o.Held {
		if name != o.Interface {
			continue
		}
		for _, r := range router.Routes(view.Snapshot, []check.RouteQuestion{{Destination: check.Outside(), Source: o.Address}}) {
			if r.Interface == "" {
				return "no interface (" + r.Error + ")"
			}
			return r.Interface
		}
	}
	return ""
}

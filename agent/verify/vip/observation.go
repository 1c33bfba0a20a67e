package vip

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/arp"
)

// ipvsInterface holds every service address on every node with kube-proxy in IPVS mode; it announces nothing.
const ipvsInterface = "kube-ipvs0"

// Observation is what one node saw of one address.
type Observation struct {
	Target
	// Interface is the name of the VLAN interface.
	Interface string
	// Node is the name of the Node that observes; empty when it is not known.
	Node string
	// Held names the interfaces of this node that carry the address.
	Held []string
	// By is how the address is announced; nil if it is not. Answers reports that this node answers from user space.
	By      announcer.Announcer
	Answers bool
	// MACs of other machines that claimed the address, sorted.
	MACs []string
	// Replied reports whether another machine replied to the last probe.
	Replied bool
	// Asked is when the last probe was sent.
	Asked time.Time
	// Announced reports that another machine announces the address periodically, whether or not it replies.
	Announced bool
	// Names are the Nodes to which some of the MACs belong; Foreign are those that belong to no Node. A MAC that is in
	// neither was not looked up.
	Names   map[string]string
	Foreign []string
	// Election is which node should answer, as far as it is known and newer than the rest of the observation.
	Election announcer.Election
	// ElectionAwaited reports that it is not known yet, but will be soon.
	ElectionAwaited bool
	// NoEndpoints reports that the Service has none of the endpoints that its announcer needs.
	NoEndpoints bool
	// Gone reports that no Service has the address any more.
	Gone bool
	// ReturnBy is the interface by which this node would send a reply from the address; empty where it is not held.
	ReturnBy string
	// Error is why the request could not be sent; empty when it was.
	Error string
}

// String names the address and its Service.
func (o Observation) String() string {
	if o.Service == "" {
		return o.Address.String()
	}
	return fmt.Sprintf("%s (Service %s)", o.Address, o.Service)
}

// carried are the interfaces for which this node's kernel answers.
func (o Observation) carried() []string {
	return slices.DeleteFunc(slices.Clone(o.Held), func(name string) bool { return name == ipvsInterface })
}

// held are the interfaces on which this node answers, its kernel or its agent.
func (o Observation) held() []string {
	held := o.carried()
	if o.Answers && !slices.Contains(held, o.Interface) {
		held = append(held, o.Interface)
	}
	return held
}

// here reports whether this node answers on the VLAN interface.
func (o Observation) here() bool { return o.Answers || slices.Contains(o.Held, o.Interface) }

// by is how the address is announced.
func (o Observation) by() announcer.Announcer {
	if o.By == nil {
		return announcer.None{}
	}
	return o.By
}

// inUserSpace reports whether programs answer for addresses, so no interface may carry one.
func (o Observation) inUserSpace() bool { return o.by().Placement() == announcer.UserSpace }

// elected reports whether this node should answer.
func (o Observation) elected() bool { return o.Election.OwnedBy(o.Node) }

// otherElected reports whether another node should answer, and this one should not.
func (o Observation) otherElected() bool { return o.Election.OwnedByOther(o.Node) }

// inUse reports whether a node was elected for only this Service, so it must answer, whichever endpoints there are.
func (o Observation) inUse() bool { return o.Election.State == announcer.Held && !o.Election.Shared }

// foreign are the claimants that belong to no Node.
func (o Observation) foreign() []string {
	return slices.DeleteFunc(slices.Clone(o.MACs), func(mac string) bool { return !slices.Contains(o.Foreign, mac) })
}

// claimants names the machines that claim the address, this one first.
func (o Observation) claimants() []string {
	var all []string
	if held := o.held(); len(held) > 0 {
		all = append(all, fmt.Sprintf("this node (%s)", join(held)))
	}
	for _, mac := range o.MACs {
		switch name := o.Names[mac]; {
		case name != "":
			mac = fmt.Sprintf("Node %s (%s)", name, mac)
		case slices.Contains(o.Foreign, mac):
			mac += " (no Node)"
		}
		all = append(all, mac)
	}
	return all
}

// View is what the watcher needs to know of the node.
type View struct {
	// Ready reports whether the VLAN is ready; otherwise no probe can be sent, and Why is the reason.
	Ready bool
	Why   string
	// Report and Snapshot are those of the last sample of the node, taken against Expected.
	Report   check.Report
	Snapshot check.Snapshot
	Expected check.Expected
	// Announcer is the annotation contract.NodeAnnouncer; By is the announcer of that kind, which a Watcher sets.
	Announcer string
	By        announcer.Announcer
	// Node is the name of the Node; empty when it is not known.
	Node string
	// Answers are the addresses that the agent of this node answers for, sorted.
	Answers []netip.Addr
}

// answers reports whether the agent of this node answers for an address.
func (v View) answers(a netip.Addr) bool {
	_, found := slices.BinarySearchFunc(v.Answers, a, netip.Addr.Compare)
	return found
}

// source is the node's own address on the VLAN interface, invalid when there is none.
func (v View) source() netip.Addr {
	source, _ := netip.ParseAddr(v.Report.Source) // the zero Addr with an error
	return source
}

// mac is the hardware address of the VLAN interface; empty when it is not known.
func (v View) mac() string {
	if l := v.Snapshot.LinkNamed(v.Report.Interface); l != nil {
		return l.MAC
	}
	return ""
}

// observe returns what is known of an address without the wire.
func (v View) observe(router Router, t Target) Observation {
	o := Observation{
		Target: t, Interface: v.Report.Interface, Node: v.Node, Held: v.Snapshot.Holds(t.Address),
		By: v.By, Answers: v.answers(t.Address),
	}
	o.ReturnBy = returnBy(router, v, o)
	if !v.source().IsValid() {
		o.Error = "the node has no address of its own on the VLAN interface"
	}
	return o
}

// returnBy looks up by which interface this node would answer a client from an address that it carries.
func returnBy(router Router, view View, o Observation) string {
	if !slices.Contains(o.Held, o.Interface) {
		return ""
	}
	answers := router.Routes(view.Snapshot, []check.RouteQuestion{{Destination: check.Outside(), Source: o.Address},
		{Destination: o.Address}})
	switch {
	case len(answers) < 2:
		return ""
	case answers[0].Interface == "" && !answers[1].Local:
		return "" // the address has gone since the snapshot was taken
	case answers[0].Interface == "":
		return "no interface (" + answers[0].Error + ")"
	default:
		return answers[0].Interface
	}
}

// Observe probes the targets once. The sender address of the requests is the node's own, never that of a Service. Only
// the end of ctx is an error; a request that could not be sent is an observation.
func Observe(ctx context.Context, prober Prober, router Router, view View, targets []Target) ([]Observation, error) {
	source := view.source()
	observations := make([]Observation, len(targets))
	questions := make([]arp.Question, len(targets))
	for i, t := range targets {
		observations[i] = view.observe(router, t)
		questions[i] = arp.Question{Target: t.Address, Source: source}
	}
	if !source.IsValid() || len(targets) == 0 {
		return observations, nil
	}
	answers, err := prober.Ask(ctx, view.Report.Interface, questions)
	for i := range observations {
		if err != nil {
			observations[i].Error = err.Error()
			continue
		}
		observations[i].MACs = answers[i].MACs
		observations[i].Replied = answers[i].Replied
	}
	return observations, ctx.Err()
}

// evaluate assesses each address.
func (w *Watcher) evaluate(view View, all []subject) (assessments []assessment, findings []check.Finding) {
	now := time.Now()
	for _, s := range all {
		st := w.states[s.Address]
		o := st.observe(s, w.observation(view, s, st, now), view.mac(), w.Node, now)
		o.proven = w.scheduler.Proven(s.Address)
		assessments = append(assessments, o)
		if o.finding.ID != "" {
			findings = append(findings, o.finding)
		}
	}
	return assessments, findings
}

// observation is all that is known of an address.
func (w *Watcher) observation(view View, s subject, st *addressState, now time.Time) Observation {
	o := view.observe(w.Router, s.Target)
	changedAt := w.scheduler.Record(&o, now)
	o.Gone = s.phase == gone
	o.NoEndpoints = view.By.NeedsEndpoints() != "" && WithoutEndpoints(s.service)
	if o.Error == "" {
		o.Error = st.unasked
	}
	st.notice(o, now)
	if !w.needsLookup(view, s, st, o) {
		return o
	}
	if s.service != nil {
		election := view.By.Elected(s.service, latest(st.movedAt, changedAt))
		// What was read before the address moved does not show where it is now. When no machine answers, it is nowhere.
		if election.Read.After(st.movedAt) || len(st.held)+len(st.macs) == 0 {
			o.Election = election
		}
		o.ElectionAwaited = o.Election.State == "" && election.Error == "" && election.Source != ""
	}
	w.name(&o, s)
	return o
}

// needsLookup reports whether the node asks the API server about an address: the address concerns this node, this node
// reports it, or something is wrong that no node has reported yet.
func (w *Watcher) needsLookup(view View, s subject, st *addressState, o Observation) bool {
	_, reporting := w.reported[s.Address]
	return st.involved || reporting || (st.suspicious && !s.reported(entryOf(o, view.mac()).State))
}

// name looks up the owners of the machines that claim the address.
func (w *Watcher) name(o *Observation, s subject) {
	o.Names = map[string]string{}
	likely := []string{o.Election.Owner}
	if s.service != nil {
		named, _ := o.By.Named(s.service)
		likely = append(likely, named)
	}
	conflict := len(o.MACs) > 1 || len(o.MACs) > 0 && (len(o.held()) > 0 || o.elected())
	for _, mac := range o.MACs {
		switch node, known := w.Owners(mac, conflict, likely...); {
		case !known:
		case node == "":
			o.Foreign = append(o.Foreign, mac)
		default:
			o.Names[mac] = node
		}
	}
}

// latest is the last of several times; the zero Time is before all others.
func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

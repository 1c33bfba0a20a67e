package vip

import (
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/verify/kubevip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// evaluate forms an opinion of each address.
func (w *Watcher) evaluate(view View, all []subject) (opinions []assessment, findings []check.Finding) {
	now := time.Now()
	for _, s := range all {
		st := w.states[s.Address]
		o := st.observe(s, w.observation(view, s, st, now), view.mac(), w.Node, now)
		o.proven = w.scheduler.Proven(s.Address)
		opinions = append(opinions, o)
		if o.finding.ID != "" {
			findings = append(findings, o.finding)
		}
	}
	return opinions, findings
}

// observation is all that is known of an address.
func (w *Watcher) observation(view View, s subject, st *addressState, now time.Time) Observation {
	o := view.observe(w.Router, s.Target)
	changedAt := w.scheduler.Record(&o, now)
	o.Gone = s.phase == gone
	if o.Error == "" {
		o.Error = st.unasked
	}
	st.notice(o, now)
	if !w.needsLookup(view, s, st, o) {
		return o
	}
	if w.Elections != nil && s.service != nil && view.Announcer == contract.AnnouncerKubeVIP {
		lease := w.Elections.Of(s.service, latest(st.movedAt, changedAt))
		// What was read before the address moved does not show where it is now. When no machine answers, it is nowhere.
		if lease.Read.After(st.movedAt) || len(st.held)+len(st.macs) == 0 {
			o.Lease = lease
		}
		o.LeaseAwaited = o.Lease.Standing == "" && lease.Error == ""
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
	if w.Owners == nil {
		return
	}
	o.Names = map[string]string{}
	likely := []string{o.Lease.Holder}
	if s.service != nil {
		likely = append(likely, s.service.Annotations[kubevip.VIPHost])
	}
	conflict := len(o.MACs) > 1 || len(o.MACs) > 0 && (len(o.held()) > 0 || o.holdsLease())
	for _, mac := range o.MACs {
		switch node, known := w.Owners.Of(mac, conflict, likely...); {
		case !known:
		case node == "":
			o.Foreign = append(o.Foreign, mac)
		default:
			o.Names[mac] = node
		}
	}
}

// latest is the last of several times; the zero Time is before all others.
func latest(times ...time.Time) (last time.Time) {
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}

//go:build linux

package examine

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/diagnose"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/vip"
)

// renewal is how long to wait for a renewal of kube-vip's lease: it renews every second or two.
const renewal = 5 * time.Second

// ExamineAddress diagnoses one address: who answers for it, who should, and what this node has to do with it. Of the
// node's own checks only those are kept that do not pass, because they may be the cause.
func (e *Examiner) ExamineAddress(ctx context.Context, address netip.Addr) (diagnose.Document, error) {
	s, d, err := e.observe(ctx, e.Network, address)
	if err != nil {
		return d, err
	}
	d.Findings = slices.DeleteFunc(slices.Clone(d.Findings),
		func(f check.Finding) bool { return f.Status == check.OK || f.Status == check.Skip })
	d.Address = &diagnose.Address{Address: address, Role: roleOf(s.expected, address),
		Held: s.view.Snapshot.Holds(address)}
	services := s.servicesWith(address)
	target := vip.Target{Address: address}
	for _, service := range services {
		d.Address.Services = append(d.Address.Services, nameOf(service))
		target.Service = d.Address.Services[0]
	}
	var names owners
	var election announcer.Election
	if s.cluster.listed {
		if names, err = e.readReports(ctx, d.Address); err != nil {
			d.APIServer = joined(d.APIServer, err.Error())
		}
		if len(services) > 0 {
			election = s.view.By.Elected(services[0], time.Time{})
		}
		if election.Error != "" {
			d.APIServer = joined(d.APIServer, "get "+capital(election.Source)+": "+election.Error)
		}
	}
	d.Address.Holders = append(agreed(s.agreement, address), holders(services, s.view.By, election)...)
	unasked, broken := vip.Unasked(s.view.Report, []vip.Target{target})
	if broken {
		d.Address.Unasked = "this node's path to the public network is broken"
		d.Findings = append(d.Findings, unasked...)
		return d.Sum(), nil
	}
	observations, err := vip.Observe(ctx, e.Prober, e.Reader, s.view, []vip.Target{target})
	if err != nil {
		return d, fmt.Errorf("look %s up: %w", address, err)
	}
	o := observations[0]
	o.Election = election
	o.Gone = s.cluster.listed && len(services) == 0
	o.NoEndpoints = o.By.NeedsEndpoints() != "" && slices.ContainsFunc(services, vip.WithoutEndpoints)
	nameOwners(&o, names)
	d.Address.ReturnBy = o.ReturnBy
	d.Address.Unasked = o.Error
	d.Address.Claimants = claimants(o, names)
	d.Findings = append(d.Findings, evaluate(o, d.Address.Role))
	return d.Sum(), nil
}

// evaluate checks an observation. An address that no Service has and that this node does not carry should be silent.
func evaluate(o vip.Observation, role string) check.Finding {
	if !o.Gone || len(o.Held) > 0 || o.Error != "" {
		return vip.Evaluate(o)
	}
	f := check.Finding{ID: vip.NothingStale, Severity: check.Error, Wire: true, Doc: check.DocOf(vip.NothingStale),
		Title: fmt.Sprintf("no machine answers for %s, which no Service has", o.Address)}
	switch {
	case len(o.MACs) == 0:
		f.Status = check.OK
		f.Observed = "no answer"
	case role != "":
		f.Status = check.OK
		f.Observed = "answered, as expected of " + role
	default:
		f.Status = check.Warn
		f.Reason = vip.ReasonStaleAddress
		f.Observed = strings.Join(o.MACs, " and ")
		f.Cause = fmt.Sprintf("%s is answered by %s, but no Service has it", o.Address, strings.Join(o.MACs, " and "))
		f.Fixes = o.Fixes(announcer.Stray)
	}
	return f
}

// roleOf is what an address is in the network besides that of a Service; empty when it is nothing else.
func roleOf(expected check.Expected, address netip.Addr) string {
	for _, b := range expected.Network.Blocks {
		if b.Gateway == address {
			return fmt.Sprintf("the gateway of block %s", b.CIDR)
		}
	}
	if slices.Contains(expected.Network.IPs, address) {
		return "this node's own address"
	}
	return ""
}

// servicesWith are the Services that have an address published, the first by name first.
func (o observed) servicesWith(address netip.Addr) []*corev1.Service {
	var found []*corev1.Service
	for _, t := range o.cluster.targets() {
		for _, service := range o.cluster.services {
			if t.Address == address && t.Service == nameOf(service) {
				found = append(found, service)
			}
		}
	}
	return found
}

func joined(text, more string) string { return strings.TrimPrefix(text+"; "+more, "; ") }

func nameOf(s *corev1.Service) string { return s.Namespace + "/" + s.Name }

// readReports reads from all Nodes what their agents report; nil when they cannot be read.
func (e *Examiner) readReports(ctx context.Context, a *diagnose.Address) (owners, error) {
	names := owners{}
	err := e.nodes(ctx, func(node *corev1.Node) {
		names.learn(node)
		if s, reported := sightingOf(node, a.Address); reported {
			a.Sightings = append(a.Sightings, s)
		}
	})
	if err != nil {
		return nil, err
	}
	return names, nil
}

// holders are the nodes that should announce an address, and the sources of that, the strongest first.
func holders(services []*corev1.Service, by announcer.Announcer, election announcer.Election) []diagnose.Holder {
	var found []diagnose.Holder
	if election.Owner != "" {
		found = append(found, diagnose.Holder{Node: election.Owner,
			Source: capital(election.Source) + " (" + standingText(election.State) + ")"})
	}
	for _, s := range services {
		if node, annotation := by.Named(s); node != "" {
			found = append(found, diagnose.Holder{Node: node,
				Source: "annotation " + annotation + " of Service " + nameOf(s)})
		}
	}
	return found
}

// capital writes the source of an election as the name of an object.
func capital(source string) string { return strings.ToUpper(source[:1]) + source[1:] }

func standingText(s announcer.State) string {
	switch s {
	case announcer.Held:
		return "renewed during the check"
	case "":
		return fmt.Sprintf("not renewed within %s", renewal)
	default:
		return string(s)
	}
}

// nameOwners adds the owners of the hardware addresses to an observation. They stay unknown where no agent reported
// anything: then an address without an owner proves nothing.
func nameOwners(o *vip.Observation, names owners) {
	if len(names) == 0 {
		return
	}
	o.Names = map[string]string{}
	for _, mac := range o.MACs {
		if nodes := names[mac]; len(nodes) > 0 {
			o.Names[mac] = strings.Join(nodes, " or ")
		} else {
			o.Foreign = append(o.Foreign, mac)
		}
	}
}

func claimants(o vip.Observation, names owners) []diagnose.Claimant {
	var all []diagnose.Claimant
	for _, mac := range o.MACs {
		all = append(all, diagnose.Claimant{MAC: mac, Nodes: names[mac]})
	}
	return all
}

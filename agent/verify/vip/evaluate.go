package vip

import (
	"fmt"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

// Evaluate turns an observation into a finding. What is closer to the cause goes first: an address that this node
// carries against the election explains why two machines answer. The wire and the kernel outweigh the election, which
// only shows who should answer; an address that this node holds counts as answered by this node, because the kernel
// answers for its own addresses and a machine never receives its own reply.
func Evaluate(o Observation) check.Finding {
	held := o.held()
	switch {
	case o.Error != "":
		f := o.finding(AddressAnswers, check.Unknown, ReasonNotAsked, o.Error)
		f.Cause = o.String() + " could not be checked: " + o.Error
		return f
	case len(held) > 0 && (o.Gone || o.otherElected()):
		return o.stale(held)
	case o.inUserSpace() && len(o.carried()) > 0:
		return o.stale(o.carried())
	case len(o.foreign()) > 0:
		return o.foreignOwner()
	case len(o.MACs) > 1, len(held) > 0 && len(o.MACs) > 0:
		return o.duplicate()
	case len(held) > 0 && !o.here():
		return o.wrongInterface(held)
	case o.here() && o.ReturnBy != "" && o.ReturnBy != o.Interface:
		return o.returnElsewhere()
	case o.here(), o.Replied:
		return o.answered()
	case o.NoEndpoints && !o.inUse():
		return o.withoutEndpoints()
	case o.Election.State == announcer.Held:
		return o.holderSilent()
	default:
		return o.silent()
	}
}

// answered checks whether the one machine that answers for an address is the one that should.
func (o Observation) answered() check.Finding {
	observed := "held by this node on " + o.Interface
	if !o.here() {
		observed = "answered by " + strings.Join(o.claimants(), " and ")
	}
	switch {
	case !o.here() && o.elected(), !o.here() && o.otherElected() && len(o.MACs) == 1 &&
		o.Names[o.MACs[0]] != "" && o.Names[o.MACs[0]] != o.Election.Owner:
		return o.wrongNode(observed)
	case o.Election.State == announcer.Expired, o.Election.State == announcer.Released,
		o.Election.State == announcer.Missing:
		return o.unguarded(observed)
	default:
		return o.finding(AddressAnswers, check.OK, ReasonAnswered, observed)
	}
}

// Unasked are the findings for addresses that cannot be checked, because the node's own path to the network is broken:
// a consequence, skipped because of its cause. broken is false if the node can send probes.
func Unasked(report check.Report, targets []Target) (findings []check.Finding, broken bool) {
	address := report.Finding(check.NodeAddress)
	if address.Status == check.OK || address.Status == check.Warn {
		return nil, false
	}
	because := address.Because
	if address.Status == check.Fail || address.Status == check.Unknown {
		because = "because of " + string(check.NodeAddress)
	}
	for _, t := range targets {
		f := Observation{Target: t}.finding(AddressAnswers, check.Skip, "", "")
		f.Because = because
		findings = append(findings, f)
	}
	return findings, true
}

func (o Observation) finding(id check.ID, status check.Status, reason, observed string) check.Finding {
	declaration := declared(id)
	subject := o.Address.String()
	if o.Service != "" {
		subject += " of Service " + o.Service
	}
	title := strings.TrimSuffix(declaration.Title, "the address of a Service")
	if title == declaration.Title {
		title += ": "
	}
	return check.Finding{ID: id, Title: title + subject, Status: status, Severity: declaration.Severity, Reason: reason,
		Observed: observed, Wire: declaration.Wire, Doc: check.DocOf(id)}
}

// Fixes returns what repairs a fault where the announcer runs.
func (o Observation) Fixes(kind announcer.FaultKind) []check.Fix {
	return o.by().Fixes(o.fault(kind))
}

func (o Observation) fault(kind announcer.FaultKind) announcer.Fault {
	return announcer.Fault{Kind: kind, Address: o.Address, Interface: o.Interface, Carried: o.carried(),
		Here: o.elected(), Election: o.Election}
}

// byOwner names the node that should answer.
func (o Observation) byOwner() string {
	return "Node " + o.Election.Owner + ", which holds the " + o.Election.Source
}

func (o Observation) stale(held []string) check.Finding {
	f := o.finding(NothingStale, check.Fail, ReasonStaleAddress, "on "+join(held)+" of this node")
	f.Cause = fmt.Sprintf("this node carries %s on %s, ", o, join(held))
	switch {
	case o.Gone:
		f.Expected = "not on this node: no Service uses it"
		f.Cause += "which no Service uses"
	case o.inUserSpace():
		f.Expected = "on no interface: the agents announce addresses"
		f.Cause += "so its kernel answers in addition to the agent that announces it"
	default:
		f.Expected = "on " + o.byOwner()
		f.Cause += fmt.Sprintf("but the %s is held by Node %s", o.Election.Source, o.Election.Owner)
	}
	f.Fixes = o.Fixes(announcer.Stale)
	return f
}

func (o Observation) foreignOwner() check.Finding {
	f := o.finding(OwnMachine, check.Fail, ReasonForeignOwner, strings.Join(o.claimants(), " and "))
	f.Expected = "a Node of the cluster"
	f.Cause = fmt.Sprintf("%s is answered by %s, which is not a Node of the cluster", o,
		strings.Join(o.foreign(), " and "))
	f.Fixes = announcer.Advice("find the server with this hardware address in phoenixNAP's portal and remove the " +
		"address from it; if it is a Node, check that the agent runs there")
	return f
}

func (o Observation) duplicate() check.Finding {
	claimants := strings.Join(o.claimants(), " and ")
	f := o.finding(SingleAnswer, check.Fail, ReasonDuplicate, claimants)
	f.Expected = "one machine"
	f.Cause = fmt.Sprintf("%s is answered by %s", o, claimants)
	if len(o.Election.Rivals) > 0 {
		f.Cause += ", and " + o.Election.Trouble
	}
	f.Fixes = o.Fixes(announcer.Duplicate)
	return f
}

func (o Observation) wrongInterface(held []string) check.Finding {
	f := o.finding(RightInterface, check.Fail, ReasonWrongInterface, "on "+join(held))
	f.Expected = "on " + o.Interface
	f.Cause = fmt.Sprintf("%s is on %s of this node instead of %s", o, join(held), o.Interface)
	f.Fixes = o.Fixes(announcer.WrongInterface)
	return f
}

func (o Observation) returnElsewhere() check.Finding {
	f := o.finding(ReturnByNetwork, check.Fail, ReasonReturnPath, "by "+o.ReturnBy)
	f.Expected = "by " + o.Interface
	f.Cause = fmt.Sprintf("this node holds %s, but would send its replies by %s instead of %s", o, o.ReturnBy,
		o.Interface)
	f.Fixes = announcer.Advice("make the gateway of the public network the node's default gateway, or route by " +
		"source and by connection mark (--manage=return-path does); phoenixnap-agent diagnose explain " +
		string(check.ReturnPath) + " says how")
	return f
}

func (o Observation) wrongNode(observed string) check.Finding {
	f := o.finding(RightNode, check.Fail, ReasonWrongNode, observed)
	f.Expected = o.byOwner()
	f.Cause = fmt.Sprintf("%s is %s, but the %s is held by Node %s", o, observed, o.Election.Source, o.Election.Owner)
	f.Fixes = announcer.Advice("on the node that answers", o.fault(announcer.Stale).Remove(o.Interface))
	return f
}

// unguarded: an address answers although no node is elected.
func (o Observation) unguarded(observed string) check.Finding {
	var f check.Finding
	if o.Election.State == announcer.Missing {
		f = o.finding(LeaseAlive, check.Warn, ReasonLeaseMissing, observed+", and there is no "+o.Election.Source)
	} else {
		f = o.finding(LeaseAlive, check.Fail, ReasonLeaseExpired,
			observed+", and the "+o.Election.Source+" is "+string(o.Election.State))
		f.Expected = "a lease that is renewed"
	}
	f.Cause = fmt.Sprintf("%s is %s, but %s", o, observed, o.Election.Trouble)
	f.Fixes = o.Fixes(announcer.Unguarded)
	return f
}

func (o Observation) holderSilent() check.Finding {
	f := o.finding(HolderAnswers, check.Fail, ReasonHolderSilent, o.silence())
	f.Expected = "a reply by " + o.byOwner()
	f.Cause = fmt.Sprintf("Node %s holds the %s, but does not answer for %s", o.Election.Owner, o.Election.Source, o)
	f.Fixes = o.Fixes(announcer.OwnerSilent)
	return f
}

func (o Observation) silent() check.Finding {
	f := o.finding(AddressAnswers, check.Fail, ReasonNoAnswer, o.silence())
	f.Expected = "a reply by the node that announces it"
	f.Cause = fmt.Sprintf("no machine answers for %s on %s", o, o.Interface)
	f.Fixes = o.Fixes(announcer.Silent)
	return f
}

// withoutEndpoints: no node announces the address of a Service that could not serve. That is a state of the Service,
// not a fault of the network.
func (o Observation) withoutEndpoints() check.Finding {
	f := o.finding(AddressAnswers, check.Warn, ReasonNoEndpoints, o.silence())
	f.Expected = "endpoints of the Service"
	f.Cause = fmt.Sprintf("no machine answers for %s, because the Service has no endpoints: %s", o,
		o.by().NeedsEndpoints())
	namespace, name, _ := strings.Cut(o.Service, "/")
	f.Fixes = announcer.Advice("start pods that the selector of the Service matches",
		fmt.Sprintf("kubectl --namespace %s get endpointslices --selector kubernetes.io/service-name=%s", namespace,
			name))
	return f
}

func (o Observation) silence() string {
	text := "no reply to ARP requests on " + o.Interface
	if len(o.MACs) > 0 {
		text += ", but it is announced by " + strings.Join(o.claimants(), " and ")
	}
	return text
}

func join(names []string) string {
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(names))), ", ")
}

package vip

import (
	"fmt"
	"slices"
	"strings"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/announcer/kubevip"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

// Evaluate turns an observation into a finding. What is closer to the cause goes first: an address that this node
// carries against the lease explains why two machines answer. The wire and the kernel outweigh the lease, which only
// shows who should answer; an address that this node holds counts as answered by this node, because the kernel answers
// for its own addresses and a machine never receives its own reply.
func Evaluate(o Observation) check.Finding {
	held := o.held()
	switch {
	case o.Error != "":
		f := o.finding(AddressAnswers, check.Unknown, ReasonNotAsked, o.Error)
		f.Cause = o.String() + " could not be checked: " + o.Error
		return f
	case len(held) > 0 && (o.Gone || o.otherHoldsLease()):
		return o.stale(held)
	case o.Agents && len(o.carried()) > 0:
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
	case o.NoEndpoints && !o.elected():
		return o.withoutEndpoints()
	case o.Lease.State == kubevip.Held:
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
	case !o.here() && o.holdsLease(), !o.here() && o.otherHoldsLease() && len(o.MACs) == 1 &&
		o.Names[o.MACs[0]] != "" && o.Names[o.MACs[0]] != o.Lease.Holder:
		return o.wrongNode(observed)
	case o.Lease.State == kubevip.Expired, o.Lease.State == kubevip.Released, o.Lease.State == kubevip.Missing:
		return o.leaseDead(observed)
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

// advice is a fix that is the same whatever configures the network.
func advice(note string, commands ...string) []check.Fix {
	return []check.Fix{{Tool: check.AnyTool, Commands: commands, Note: note}}
}

func (o Observation) stale(held []string) check.Finding {
	f := o.finding(NothingStale, check.Fail, ReasonStaleAddress, "on "+join(held)+" of this node")
	switch {
	case o.Gone:
		f.Expected = "not on this node: no Service uses it"
		f.Cause = fmt.Sprintf("this node carries %s on %s, which no Service uses", o, join(held))
	case o.Agents:
		f.Expected = "on no interface: the agents announce addresses"
		f.Cause = fmt.Sprintf("this node carries %s on %s, so its kernel answers in addition to the agent that "+
			"announces it", o, join(held))
	default:
		f.Expected = "on Node " + o.Lease.Holder + ", which holds the lease " + o.Lease.Name
		f.Cause = fmt.Sprintf("this node carries %s on %s, but the lease %s is held by Node %s", o, join(held),
			o.Lease.Name, o.Lease.Holder)
	}
	note := "on this node: kube-vip leaves the address behind when it is killed"
	if o.Agents {
		note = "on this node: no interface needs the address of a Service while the agents announce"
		held = o.carried()
	}
	for _, name := range held {
		f.Fixes = append(f.Fixes, advice(note, o.remove(name))...)
	}
	if len(held) == 0 {
		f.Fixes = advice("the agent of this node stops as soon as it sees that no Service uses the address; if this " +
			"lasts, restart the agent")
	}
	return f
}

func (o Observation) foreignOwner() check.Finding {
	f := o.finding(OwnMachine, check.Fail, ReasonForeignOwner, strings.Join(o.claimants(), " and "))
	f.Expected = "a Node of the cluster"
	f.Cause = fmt.Sprintf("%s is answered by %s, which is not a Node of the cluster", o,
		strings.Join(o.foreign(), " and "))
	f.Fixes = advice("find the server with this hardware address in phoenixNAP's portal and remove the address from " +
		"it; if it is a Node, check that the agent runs there")
	return f
}

func (o Observation) duplicate() check.Finding {
	claimants := strings.Join(o.claimants(), " and ")
	f := o.finding(SingleAnswer, check.Fail, ReasonDuplicate, claimants)
	f.Expected = "one machine"
	f.Cause = fmt.Sprintf("%s is answered by %s", o, claimants)
	note := "on the node that does not announce it: kube-vip leaves the address behind when it is killed; the " +
		"Service's annotation kube-vip.io/vipHost names the holder"
	switch {
	case o.Agents:
		note = "on the node of which an interface carries it: the agents announce addresses without adding them"
	case o.Lease.Rival != "":
		f.Cause += fmt.Sprintf(", and kube-vip has elected twice: the lease %s is held by Node %s, and %s by Node %s",
			o.Lease.Name, o.Lease.Holder, o.Lease.Rival, o.Lease.RivalHolder)
		note = "first set svc_election of kube-vip to the same value on all nodes; then on the node that still " +
			"announces it without the lease"
	case o.Lease.State == kubevip.Held:
		note = fmt.Sprintf("on the node that does not hold the lease %s, which is held by Node %s", o.Lease.Name,
			o.Lease.Holder)
	}
	f.Fixes = advice(note, o.remove(o.Interface))
	return f
}

func (o Observation) wrongInterface(held []string) check.Finding {
	f := o.finding(RightInterface, check.Fail, ReasonWrongInterface, "on "+join(held))
	f.Expected = "on " + o.Interface
	f.Cause = fmt.Sprintf("%s is on %s of this node instead of %s", o, join(held), o.Interface)
	f.Fixes = advice(fmt.Sprintf("set kube-vip's vip_interface, and the annotation kube-vip.io/serviceInterface where "+
		"the Service has it, to %s (the default is the interface of the default route) and restart kube-vip on this "+
		"node",
		o.Interface))
	return f
}

func (o Observation) returnElsewhere() check.Finding {
	f := o.finding(ReturnByNetwork, check.Fail, ReasonReturnPath, "by "+o.ReturnBy)
	f.Expected = "by " + o.Interface
	f.Cause = fmt.Sprintf("this node holds %s, but would send its replies by %s instead of %s", o, o.ReturnBy,
		o.Interface)
	f.Fixes = advice("make the gateway of the public network the node's default gateway, or route by source and by " +
		"connection mark (--manage=return-path does); phoenixnap-agent diagnose explain " + string(check.ReturnPath) +
		" says how")
	return f
}

func (o Observation) wrongNode(observed string) check.Finding {
	f := o.finding(RightNode, check.Fail, ReasonWrongNode, observed)
	f.Expected = "Node " + o.Lease.Holder + ", which holds the lease " + o.Lease.Name
	f.Cause = fmt.Sprintf("%s is %s, but the lease %s is held by Node %s", o, observed, o.Lease.Name, o.Lease.Holder)
	f.Fixes = advice("on the node that answers", o.remove(o.Interface))
	return f
}

// leaseDead: an address answers although no node holds the lease. A missing lease may have another name.
func (o Observation) leaseDead(observed string) check.Finding {
	if o.Lease.State == kubevip.Missing {
		f := o.finding(LeaseAlive, check.Warn, ReasonLeaseMissing, observed+", and there is no lease "+o.Lease.Name)
		f.Cause = fmt.Sprintf("%s is %s, but neither kube-vip's lease %s nor the one for all Services, %s, exists", o,
			observed, o.Lease.Name, o.Lease.Global)
		f.Fixes = advice("where kube-vip is not in the namespace kube-system, or has svc_leasename "+
			"(servicesLeaseName) in its environment, arguments or configuration, set --kube-vip-lease of the agent to "+
			"<namespace>/<name> of the lease in use", "kubectl get leases --all-namespaces")
		return f
	}
	f := o.finding(LeaseAlive, check.Fail, ReasonLeaseExpired,
		observed+", and the lease "+o.Lease.Name+" is "+string(o.Lease.State))
	f.Expected = "a lease that is renewed"
	f.Cause = fmt.Sprintf("%s is %s, but kube-vip's lease %s is not renewed", o, observed, o.Lease.Name)
	if o.Lease.Holder != "" {
		f.Cause += ", which Node " + o.Lease.Holder + " held last"
	}
	f.Fixes = o.restart("run kube-vip on the node that answers; if it is to run on other nodes only, run it there " +
		"and delete the address on this one: " + o.remove(o.Interface))
	return f
}

func (o Observation) holderSilent() check.Finding {
	f := o.finding(HolderAnswers, check.Fail, ReasonHolderSilent, o.silence())
	f.Expected = "a reply by Node " + o.Lease.Holder + ", which holds the lease " + o.Lease.Name
	f.Cause = fmt.Sprintf("Node %s holds the lease %s, but does not answer for %s", o.Lease.Holder, o.Lease.Name, o)
	note := "run phoenixnap-agent diagnose on Node " + o.Lease.Holder + " and fix what it finds; if that is only " +
		"this, restart kube-vip there, which adds the address again"
	if o.holdsLease() {
		note = "restart kube-vip on this node, which adds the address again"
	}
	f.Fixes = o.restart(note)
	return f
}

func (o Observation) silent() check.Finding {
	f := o.finding(AddressAnswers, check.Fail, ReasonNoAnswer, o.silence())
	f.Expected = "a reply by the node that announces it"
	f.Cause = fmt.Sprintf("no machine answers for %s on %s", o, o.Interface)
	f.Fixes = o.restart("kube-vip must run on a node that is ready for the public network")
	return f
}

// withoutEndpoints: kube-vip announces nothing for a Service that could not serve. That is a state of the Service, not
// a fault of the network.
func (o Observation) withoutEndpoints() check.Finding {
	f := o.finding(AddressAnswers, check.Warn, ReasonNoEndpoints, o.silence())
	f.Expected = "endpoints of the Service"
	f.Cause = fmt.Sprintf("no machine answers for %s, because the Service has no endpoints: kube-vip 1.2 and newer "+
		"announces an address only while there are some", o)
	namespace, name, _ := strings.Cut(o.Service, "/")
	f.Fixes = advice("start pods that the selector of the Service matches",
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

func (o Observation) remove(interfaceName string) string {
	return fmt.Sprintf("ip address delete %s/32 dev %s", o.Address, interfaceName)
}

func (o Observation) restart(note string) []check.Fix {
	const pods = "kubectl --namespace kube-system get pods --output wide --selector app.kubernetes.io/name="
	if o.Agents {
		return advice("an agent must run on a node that is ready for the public network; the ConfigMap shows which "+
			"node must announce the address", pods+"phoenixnap-agent",
			"kubectl --namespace kube-system get configmap phoenixnap-announcer --output yaml")
	}
	return advice(note, pods+"kube-vip", "kubectl get nodes --label-columns phoenixnap.com/vlan-ready")
}

func join(names []string) string {
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(names))), ", ")
}

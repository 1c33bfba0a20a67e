package overview

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// Kind is a kind of problem.
type Kind string

// The kinds, the most fundamental first: each may cause the following ones.
const (
	KindAPIServer  Kind = "APIServerUnreachable" // the API server does not answer
	KindController Kind = "NoController"         // no replica of the controller holds the Lease
	KindAccount    Kind = "AccountUnreadable"    // the controller cannot read the phoenixNAP account
	KindStale      Kind = "AccountStale"         // the controller has not read the account for long
	KindNetwork    Kind = "NetworkNotReady"      // a public network cannot be used
	KindWaiting    Kind = "NodeUninitialized"    // Nodes wait until a controller initializes them
	KindServer     Kind = "NodeWithoutServer"    // no phoenixNAP server is known for Nodes
	KindAgent      Kind = "NoAgent"              // no agent reports on Nodes
	KindOutdated   Kind = "ReportsOutdated"      // agents have not shown for a while that they run
	KindReplica    Kind = "ReplicaDown"          // a pod of the controller does not work, another one does
	KindVLAN       Kind = "VLANNotReady"         // a Node cannot carry traffic of the public network
	KindAddresses  Kind = "AddressesUnhealthy"   // addresses that concern a Node do not answer as they should
	KindKeyShared  Kind = "HeartbeatKeyShared"   // another cluster on the VLAN has the key of this one's heartbeats
	KindCarrier    Kind = "NoNodeReady"          // no Node may carry traffic, so nothing is bought or published
	KindService    Kind = "ServiceUnhealthy"     // a Service has no address, or it is not answered
	KindBlocks     Kind = "BlocksUnused"         // blocks are paid for and not used
	KindUnreadable Kind = "Unreadable"           // something could not be read, so that there may be more problems
)

// Problem is something that is wrong, or that could not be determined.
type Problem struct {
	Kind Kind `json:"kind"`
	// Objects are the names of the Nodes, Services or pods that it is about.
	Objects []string `json:"objects,omitempty"`
	// Message says what is wrong and what to do.
	Message string `json:"message"`
	// Undetermined reports that nothing is known to be wrong: something could not be read.
	Undetermined bool `json:"undetermined,omitempty"`
}

// problemsOf returns what is wrong, the most fundamental first. o contains everything but the problems.
func problemsOf(f Facts, o Overview) []Problem {
	problems := []Problem{}
	if f.Unreachable != "" {
		return append(problems, Problem{Kind: KindAPIServer, Undetermined: true, Message: text.Clean(
			"The API server cannot be asked, so nothing is known about the cluster: " + f.Unreachable +
				" (kubectl cluster-info; check the network, --kubeconfig and --context)")})
	}
	for _, find := range []func(Facts, Overview) []Problem{
		controllerProblems, accountProblems, networkProblems, waitingProblems, serverProblems, agentProblems,
		replicaProblems, outdatedProblems, vlanProblems, keyProblems, carrierProblems, serviceProblems, blockProblems,
	} {
		problems = append(problems, find(f, o)...)
	}
	for _, each := range o.Unreadable {
		problems = append(problems, Problem{Kind: KindUnreadable, Message: each, Undetermined: true})
	}
	return problems
}

func one(kind Kind, message string, objects ...string) []Problem {
	return []Problem{{Kind: kind, Message: message, Objects: objects}}
}

const leaseObject = "Lease " + metav1.NamespaceSystem + "/" + controllerApp

// controllerProblems reports that no replica holds the Lease, with the reason that its pods show.
func controllerProblems(f Facts, o Overview) []Problem {
	if o.Controller.State != controllerSilent {
		return nil
	}
	return one(KindController, "No controller works: "+leaseState(o)+". "+whyNoController(f, o))
}

func leaseState(o Overview) string {
	c := o.Controller
	switch {
	case c.Renewed == nil:
		return leaseObject + " does not exist, so none has ever led"
	case c.Leader == "":
		return fmt.Sprintf("no replica has held %s for %s", leaseObject, o.age(*c.Renewed))
	default:
		return fmt.Sprintf("%s has not renewed %s for %s", c.Leader, leaseObject, o.age(*c.Renewed))
	}
}

func whyNoController(f Facts, o Overview) string {
	if !o.knows(PartPods) {
		return "Why is unknown: you may not list its pods"
	}
	pods := podsOf(f, controllerApp)
	if len(pods) == 0 {
		return "No pod of it exists in " + metav1.NamespaceSystem + ": install it, or see why (kubectl -n " +
			metav1.NamespaceSystem + " describe deployment,replicaset -l " + podLabel + "=" + controllerApp + ")"
	}
	for _, p := range pods {
		if a := ailmentOf(p); a != (ailment{}) {
			return "Its " + a.sentence(p)
		}
	}
	p := pods[0]
	return text.Clean(fmt.Sprintf("Its pod %s/%s runs, and does not lead (kubectl -n %s logs %s)", p.Namespace, p.Name,
		p.Namespace, p.Name))
}

// accountProblems reports that the controller cannot read the account, as it says itself or as its silence shows.
func accountProblems(_ Facts, o Overview) []Problem {
	c := o.Controller
	var problems []Problem
	if c.Failing != nil {
		message := fmt.Sprintf("%s (reported %s ago)", c.Failing.Message, o.age(c.Failing.Reported))
		if c.State == controllerSilent {
			message += " (the last report of a controller that no longer works)"
		}
		problems = one(KindAccount, message)
	}
	if c.Looked != nil && !o.Network.Off && o.Time.Sub(*c.Looked) > staleAccount {
		problems = append(problems, one(KindStale, fmt.Sprintf("No controller has read the account for %s. What "+
			"follows about blocks may have changed", o.age(*c.Looked)))...)
	}
	return problems
}

// networkProblems reports public networks that cannot be used, as the controller says.
func networkProblems(f Facts, o Overview) []Problem {
	var problems []Problem
	for _, n := range f.Networks {
		ready := meta.FindStatusCondition(n.Status.Conditions, v1beta1.ConditionReady)
		if ready != nil && ready.Status == metav1.ConditionFalse && o.Controller.Failing == nil {
			problems = append(problems, one(KindNetwork, text.Clean(fmt.Sprintf("PublicNetwork %s: %s", n.Name,
				ready.Message)), text.Clean(n.Name))...)
		}
	}
	return problems
}

// waitingProblems reports Nodes with the taint that a controller removes.
func waitingProblems(_ Facts, o Overview) []Problem {
	var names []string
	for _, n := range o.Nodes {
		if n.Waiting {
			names = append(names, n.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	why := "why is an event: kubectl describe node " + names[0]
	switch {
	case o.Controller.State == controllerSilent:
		why = "a controller must work first"
	case o.Controller.Failing != nil:
		why = "the controller must be able to read the account first"
	}
	return one(KindWaiting, fmt.Sprintf("%s for initialization, so most pods do not start there (taint %s): %s",
		subject(names, "waits", "wait"), taintUninitialized, why), names...)
}

func serviceProblems(_ Facts, o Overview) []Problem {
	var problems []Problem
	for _, s := range o.Services {
		if s.Healthy || !s.Reported() && o.Network.Off { // perhaps another load balancer serves it
			continue
		}
		message := cmp.Or(s.Message(), s.State)
		if !s.Reported() {
			message = "the controller has not reported on it (kubectl -n " + s.Namespace + " describe service " +
				s.Name + ")"
		}
		name := s.Namespace + "/" + s.Name
		problems = append(problems, one(KindService, "Service "+name+": "+message+hint(s), name)...)
	}
	return problems
}

// hint returns the command that explains why an address is published but not answered.
func hint(service Service) string {
	if service.Address == "" || !service.AddressPublished.True() || service.Going != nil {
		return ""
	}
	return " (kubectl pnap diagnose vip " + service.Address + ")"
}

// blockProblems reports blocks that are paid for but unused: those without an IPBlock as the events say.
func blockProblems(f Facts, o Overview) []Problem {
	orphans := slices.DeleteFunc(slices.Clone(o.Blocks), func(b Block) bool { return b.Standing != standingOrphan })
	names := make([]string, len(orphans))
	for i, b := range orphans {
		names[i] = b.IPBlock
	}
	var problems []Problem
	switch len(orphans) {
	case 0:
	case 1:
		problems = one(KindBlocks, "IPBlock "+names[0]+" is paid for but unused: "+orphans[0].Message, names...)
	default:
		problems = one(KindBlocks, fmt.Sprintf("%d IP blocks are paid for but unused (kubectl describe ipb): %s",
			len(orphans), text.Some(names, maxListed)), names...)
	}
	for _, e := range f.about(contract.OrphanedIPBlock) {
		problems = append(problems, one(KindBlocks, fmt.Sprintf("%s (reported %s ago)", text.Clean(e.Message),
			o.age(e.LastTimestamp.Time)))...)
	}
	return problems
}

// maxListed bounds the names in one message.
const maxListed = 5

// nodeList names Nodes.
func nodeList(names []string) string {
	if len(names) == 1 {
		return "Node " + names[0]
	}
	return fmt.Sprintf("%d Nodes (%s)", len(names), text.Some(names, maxListed))
}

// subject begins a sentence about Nodes with the verb in singular or plural.
func subject(names []string, singular, plural string) string {
	if len(names) == 1 {
		return nodeList(names) + " " + singular
	}
	return nodeList(names) + " " + plural
}

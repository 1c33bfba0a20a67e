package overview

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// serverProblems reports Nodes that nothing connects with a phoenixNAP server, and that do not wait for it.
func serverProblems(f Facts, _ Overview) []Problem {
	without := map[string][]string{}
	var problems []Problem
	for i := range f.Nodes {
		n := &f.Nodes[i]
		waits := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taintUninitialized })
		id, err := contract.ParseProviderID(n.Spec.ProviderID)
		if n.Annotations[contract.NodeServerMissing] != "" {
			problems = append(problems, replaced(n, id)...)
		}
		if waits || err == nil {
			continue
		}
		kind := "another provider"
		if n.Spec.ProviderID == "" {
			kind = ""
		}
		without[kind] = append(without[kind], text.Clean(n.Name))
	}
	for _, kind := range slices.Sorted(maps.Keys(without)) {
		names := slices.Sorted(slices.Values(without[kind]))
		message := subject(names, "has", "have") + " no provider ID and no taint, so no controller looks for a " +
			"server: the kubelet was registered without --cloud-provider=external"
		if kind != "" {
			message = subject(names, "has", "have") + " the provider ID of " + kind + ": only " +
				"phoenixnap://<server-id> and bmc://servers/<server-id> are served (kubectl get node " + names[0] +
				" -o jsonpath={.spec.providerID})"
		}
		problems = append(problems, one(KindServer, message, names...)...)
	}
	return problems
}

// replaced reports a Ready Node whose server no longer exists.
func replaced(n *corev1.Node, id string) []Problem {
	name := text.Clean(n.Name)
	return one(KindServer, "Node "+name+" names phoenixNAP server "+id+", which no longer exists: the machine was "+
		"replaced (kubectl delete node "+name+", then restart the kubelet on the machine)", name)
}

// agentProblems reports Nodes on which no agent reports, grouped by the reason that its pod shows.
func agentProblems(f Facts, o Overview) []Problem {
	if o.Network.Off {
		return nil // agents have nothing to look at
	}
	silent := map[string][]string{}
	for i := range f.Nodes {
		n := &f.Nodes[i]
		if lacksAgent(n) {
			reason := whyNoAgent(f, o, n)
			silent[reason] = append(silent[reason], text.Clean(n.Name))
		}
	}
	var problems []Problem
	for _, reason := range slices.Sorted(maps.Keys(silent)) {
		names := slices.Sorted(slices.Values(silent[reason]))
		problems = append(problems, one(KindAgent, "No agent reports on "+nodeList(names)+
			", so VLAN and addresses are unknown there: "+reason, names...)...)
	}
	return problems
}

// lacksAgent reports whether no agent has reported on a Node, or not for long. Agents run on Linux only.
func lacksAgent(n *corev1.Node) bool {
	if system := n.Labels[corev1.LabelOSStable]; system != "" && system != string(corev1.Linux) {
		return false
	}
	c := contract.FindNodeCondition(n, contract.ConditionVLANReady)
	return c == nil || c.Status == corev1.ConditionUnknown &&
		(c.Reason == agentSilent || c.Reason == nodeUnreachable)
}

// The controller writes these reasons while an agent does not renew its Lease.
const (
	agentSilent     = "AgentSilent"
	nodeUnreachable = "NodeUnreachable"
)

func whyNoAgent(f Facts, o Overview, n *corev1.Node) string {
	if c := contract.FindNodeCondition(n, contract.ConditionVLANReady); c != nil && c.Reason == nodeUnreachable {
		return "the node is down or cut off, because its kubelet does not report either"
	}
	if !o.knows(PartPods) {
		return "why is unknown, because you may not list pods"
	}
	pods := podsOf(f, agentApp)
	if len(pods) == 0 {
		return "no pod of it exists in " + metav1.NamespaceSystem + ": install it, or see why (kubectl -n " +
			metav1.NamespaceSystem + " describe daemonset " + agentApp + ")"
	}
	at := slices.IndexFunc(pods, func(p *corev1.Pod) bool { return p.Spec.NodeName == n.Name })
	if at < 0 {
		return "no pod of it is there (kubectl -n " + metav1.NamespaceSystem + " describe daemonset " + agentApp + ")"
	}
	p := pods[at]
	a := ailmentOf(p)
	switch {
	case a == (ailment{}):
		a = ailment{"it runs, and has not reported", "kubectl -n " + p.Namespace + " logs " + p.Name}
	case isSame(pods, a): // the same on all nodes is one problem, whatever the pods are called
		return text.Clean("pods of DaemonSet " + agentApp + ": " + a.cause)
	}
	return a.sentence(p)
}

// isSame reports whether all pods have the ailment.
func isSame(pods []*corev1.Pod, a ailment) bool {
	other := func(p *corev1.Pod) bool { return ailmentOf(p).cause != a.cause }
	return len(pods) > 1 && !slices.ContainsFunc(pods, other)
}

// replicaProblems reports pods of the controller that do not work while another one does.
func replicaProblems(f Facts, o Overview) []Problem {
	if o.Controller.State == controllerSilent {
		return nil // the pods explain why
	}
	var problems []Problem
	for _, p := range podsOf(f, controllerApp) {
		if a := ailmentOf(p); a != (ailment{}) && !hasEnded(p) {
			problems = append(problems, one(KindReplica, "A replica of the controller does not work: "+a.sentence(p),
				text.Clean(p.Name))...)
		}
	}
	return problems
}

// outdatedProblems reports agents that were alive a while ago. Where the controller has noticed that, it is among
// agentProblems.
func outdatedProblems(f Facts, o Overview) []Problem {
	if o.Network.Off {
		return nil
	}
	var problems []Problem
	for i := range f.Nodes {
		renewed, outdated := f.lastSign(&f.Nodes[i])
		if !outdated || lacksAgent(&f.Nodes[i]) {
			continue
		}
		name := text.Clean(f.Nodes[i].Name)
		since := "since its kubelet does not report"
		if renewed != nil {
			since = "for " + o.age(*renewed)
		}
		problems = append(problems, one(KindOutdated, "The agent of Node "+name+" has not reported "+since+
			", so what it says of VLAN and addresses is outdated: the node is down or cut off, or its agent has ended "+
			"(kubectl describe node "+name+")", name)...)
	}
	return problems
}

// carrierProblems reports that no Node may carry traffic, where a public network is published.
func carrierProblems(f Facts, o Overview) []Problem {
	if o.Network.Off || o.Network.ID == "" || len(f.Nodes) == 0 {
		return nil
	}
	may, why := contract.Carriers{}.Any(pointers(f.Nodes))
	if may {
		return nil
	}
	return one(KindCarrier, "No Node may carry load-balancer traffic, so no IP block is bought and no address is "+
		"published: "+why)
}

// vlanProblems reports what the agents found. What no agent looks at any more is among agentProblems, and addresses
// that cannot be checked without the VLAN follow from that.
func vlanProblems(f Facts, o Overview) []Problem {
	if o.Network.Off {
		return nil
	}
	lacking := map[string]bool{}
	for i := range f.Nodes {
		lacking[text.Clean(f.Nodes[i].Name)] = lacksAgent(&f.Nodes[i])
	}
	var vlan, addresses []Problem
	for _, n := range o.Nodes {
		if lacking[n.Name] {
			continue
		}
		if v := n.VLANReady; v.Status != "" && !v.True() {
			vlan = append(vlan, one(KindVLAN, nodeMessage(n, v), n.Name)...)
		}
		v := n.AnnouncementHealthy
		follows := !n.VLANReady.True() && v.Status == string(corev1.ConditionUnknown)
		if v.Status != "" && !v.True() && !follows {
			addresses = append(addresses, one(KindAddresses, nodeMessage(n, v), n.Name)...)
		}
	}
	return append(vlan, addresses...)
}

// keyProblems reports that agents receive heartbeats that another cluster signs with the key of this one.
func keyProblems(_ Facts, o Overview) []Problem {
	var names []string
	for _, n := range o.Nodes {
		if v := n.AnnouncementHealthy; v.True() && v.Reason == contract.HeartbeatKeyShared {
			names = append(names, n.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return one(KindKeyShared, subject(names, "drops", "drop")+" heartbeats that another cluster on the VLAN signs "+
		"with the key of this one: replace the key of one of the clusters, in its Secret "+
		metav1.NamespaceSystem+"/"+contract.AnnouncerSecret, names...)
}

func nodeMessage(n Node, v Condition) string {
	return fmt.Sprintf("Node %s: %s (kubectl pnap diagnose node %s)", n.Name, cmp.Or(v.Message, v.Reason), n.Name)
}

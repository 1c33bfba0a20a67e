package walk

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/sim/pnapsim/simtest"
)

// editNode changes a Node as users, kubelets and agents do, if it exists.
func (w *world) editNode(name, what string, change func(*corev1.Node)) {
	node, err := w.kube.CoreV1().Nodes().Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return
	}
	change(node)
	conditions := node.Status.Conditions
	node, err = w.kube.CoreV1().Nodes().Update(w.t.Context(), node, metav1.UpdateOptions{})
	if err == nil {
		node.Status.Conditions = conditions
		_, err = w.kube.CoreV1().Nodes().UpdateStatus(w.t.Context(), node, metav1.UpdateOptions{})
	}
	if err != nil {
		w.did("Node %s is not edited: %v", name, err)
		return
	}
	w.did("Node %s: %s", name, what)
}

func exclude(n *corev1.Node) { n.Labels[corev1.LabelNodeExcludeBalancers] = "" }

func include(n *corev1.Node) { delete(n.Labels, corev1.LabelNodeExcludeBalancers) }

func cordon(n *corev1.Node) { n.Spec.Unschedulable = true }

// vlanIs is what the agent of a Node reports; empty for a Node without an agent.
func vlanIs(status corev1.ConditionStatus) func(*corev1.Node) {
	return func(n *corev1.Node) { setCondition(n, contract.ConditionVLANReady, status) }
}

func setCondition(n *corev1.Node, kind corev1.NodeConditionType, status corev1.ConditionStatus) {
	isKind := func(c corev1.NodeCondition) bool { return c.Type == kind }
	n.Status.Conditions = slices.DeleteFunc(slices.Clone(n.Status.Conditions), isKind)
	if status != "" {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: kind, Status: status, Reason: "walk"})
	}
}

// beat renews the time of what the agent of a Node reports.
func beat(n *corev1.Node) {
	for i := range n.Status.Conditions {
		n.Status.Conditions[i].LastHeartbeatTime = metav1.Now()
	}
}

// nodeIsBarred has a user keep load-balancer traffic off Nodes, as kubeadm does, or an agent find a fault.
func (w *world) nodeIsBarred() {
	w.inject(classBarredNodes)
	edits := map[string]func(*corev1.Node){
		"excluded": exclude, "included": include, "cordoned": cordon, "VLAN broken": vlanIs(corev1.ConditionFalse),
		"VLAN ready": vlanIs(corev1.ConditionTrue), "no agent": vlanIs(""),
	}
	all := w.random.IntN(3) == 0
	chosen := w.random.IntN(w.nodes)
	names := []string{"excluded", "included", "cordoned", "VLAN broken", "VLAN ready", "no agent"}
	name := names[w.random.IntN(len(names))]
	for i := range w.nodes {
		if all || i == chosen {
			w.editNode(nodeName(i), name, edits[name])
		}
	}
}

// serverIsReplaced has the owner of a machine install another one under the name of a Node that stays Ready.
func (w *world) serverIsReplaced() {
	w.inject(classReplacedServer)
	w.portal(pnapsim.Edit{Kind: pnapsim.EditDeleteServer, Server: serverID(w.random.IntN(w.nodes))})
}

// checkReplaced: a Ready Node whose server is gone is marked, if that can be certain, and no other Node is. It is not
// certain by a clock that is behind: its lists of servers seem to be older than the Node.
func (w *world) checkReplaced() {
	exists := map[string]bool{}
	for _, server := range w.sim.State(accountID).Servers {
		exists[contract.ProviderID(text(server["id"]))] = text(server["status"]) != "reserved"
	}
	list, err := w.kube.CoreV1().Nodes().List(context.WithoutCancel(w.t.Context()), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	var missing []corev1.Node
	for _, n := range list.Items {
		marked := n.Annotations[contract.NodeServerMissing] != ""
		_, published := n.Annotations[contract.NodePublicNetworks]
		switch {
		case marked && (exists[n.Spec.ProviderID] || published):
			w.fail("Node %s is marked: its server exists %t, annotations %v", n.Name, exists[n.Spec.ProviderID],
				n.Annotations)
		case n.Spec.ProviderID != "" && !exists[n.Spec.ProviderID]:
			missing = append(missing, n)
		}
	}
	if len(missing) == 1 && len(list.Items) > 2 && w.process.skew >= 0 &&
		statusOf(&missing[0], corev1.NodeReady) == corev1.ConditionTrue &&
		missing[0].Annotations[contract.NodeServerMissing] == "" {
		w.fail("Node %s is Ready, and it is not noticed that its server is gone: %v", missing[0].Name,
			missing[0].Annotations)
	}
}

// unbar makes every Node one that may carry traffic, if its server can.
func (w *world) unbar() {
	for i := range w.nodes {
		w.editNode(nodeName(i), "unbarred", func(n *corev1.Node) {
			include(n)
			vlanIs("")(n)
		})
	}
}

// judgeCarriers: no block is bought for a Service while no Node can carry its traffic, nor could a minute ago.
func (w *world) judgeCarriers(bought block) {
	w.mu.Lock()
	ago := time.Since(w.observer.carried)
	w.mu.Unlock()
	if bought.owner() == "" || ago < time.Minute || w.nodesAreLate() || w.mayCarry() {
		return
	}
	w.count.futile.Add(1)
	w.fail("%s is bought, and for %s no Node could carry its traffic", bought, ago)
}

// observeCarriers notes when a Node could carry traffic.
func (w *world) observeCarriers() {
	may := w.mayCarry()
	w.mu.Lock()
	defer w.mu.Unlock()
	if may {
		w.observer.carried = time.Now()
	}
}

// mayCarry says by itself, and not by the rule of the controller, whether a Node can carry traffic with kube-vip.
func (w *world) mayCarry() bool {
	list, err := w.kube.CoreV1().Nodes().List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		return true
	}
	agents := false
	for i := range list.Items {
		agents = agents || statusOf(&list.Items[i], contract.ConditionVLANReady) != ""
	}
	for i := range list.Items {
		if carries(&list.Items[i], agents) {
			return true
		}
	}
	return false
}

func carries(n *corev1.Node, agents bool) bool {
	_, barred := n.Labels[corev1.LabelNodeExcludeBalancers]
	kubeVIP := n.Labels["phoenixnap.com/vlan-ready"] == "true"
	vlan := statusOf(n, contract.ConditionVLANReady)
	return (!barred || kubeVIP) && strings.Contains(n.Annotations["phoenixnap.com/public-networks"], `"member":true`) &&
		strings.HasPrefix(n.Spec.ProviderID, "phoenixnap://") && statusOf(n, corev1.NodeReady) != "Unknown" &&
		(vlan == "True" || vlan == "" && (!agents || kubeVIP))
}

func statusOf(n *corev1.Node, kind corev1.NodeConditionType) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// TestEveryClusterOfNodes: whatever the Nodes of a cluster are like, a Service gets an address exactly if one of them
// can carry its traffic, else the reason, on the Service and as an event, names the Nodes; and nothing is bought.
func TestEveryClusterOfNodes(t *testing.T) {
	specs := simtest.Specs(t)
	count := &counts{}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 24 {
		w := clusterOf(random)
		t.Run(strings.Join(w, " and "), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newWorld(t, uint64(1000+12*i), count, specs).serveOn(w) })
		})
	}
}

// kinds are the Nodes of a cluster; the server of node-0 and node-1 is a member of the network, that of node-2 is not.
var kinds = map[string][]func(*corev1.Node){
	"fit": nil, "excluded": {exclude}, "cordoned": {cordon}, "broken": {vlanIs(corev1.ConditionFalse)},
	"excluded and ready": {exclude, vlanIs(corev1.ConditionTrue)}, "ready": {vlanIs(corev1.ConditionTrue)},
	"foreign": {func(n *corev1.Node) {
		n.Spec.ProviderID = "k3s://" + n.Name
		n.Spec.Taints = nil
	}},
	"unreachable": {func(n *corev1.Node) { setCondition(n, corev1.NodeReady, corev1.ConditionUnknown) }},
	"not ready":   {func(n *corev1.Node) { setCondition(n, corev1.NodeReady, corev1.ConditionFalse) }},
}

// clusterOf chooses one to three kinds.
func clusterOf(random *rand.Rand) []string {
	names := []string{"fit", "excluded", "cordoned", "broken", "excluded and ready", "ready", "foreign", "unreachable",
		"not ready"}
	cluster := make([]string, 1+random.IntN(3))
	for i := range cluster {
		cluster[i] = names[random.IntN(len(names))]
	}
	return cluster
}

// serveOn creates the Nodes, waits, and creates a Service.
func (w *world) serveOn(cluster []string) {
	w.manages = false
	w.nodes = min(len(cluster), w.nodes)
	for i := range w.nodes {
		w.register(i)
		for _, change := range kinds[cluster[i]] {
			w.editNode(nodeName(i), cluster[i], change)
		}
	}
	w.process = w.live(0)
	time.Sleep(time.Minute)
	w.createWith("web", nil)
	for range 20 { // for so long the agents report
		time.Sleep(30 * time.Second)
		for i := range w.nodes {
			w.editNode(nodeName(i), "heartbeat", beat)
		}
	}
	synctest.Wait()
	service := w.services()[0]
	may := w.mayCarry()
	if got := addressOf(&service) != ""; got != may || (len(w.ours()) > 0) != may ||
		(explanation(&service) == "NoNodeReady") == may || w.events.has("UnAvailableLoadBalancer") == may {
		w.fail("%q may carry %t: the Service has %q, reason %q; blocks %v; events %v", cluster, may,
			addressOf(&service), explanation(&service), w.ours(), w.events.reasons)
	}
	if w.t.Failed() {
		w.t.Log(strings.Join(w.history, "\n"))
	}
	w.process.bury()
	time.Sleep(10 * time.Minute) // for what sleeps where nothing can wake it
}

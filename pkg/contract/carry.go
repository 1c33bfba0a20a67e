package contract

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// toBeDeleted is the taint that the cluster autoscaler puts on a Node before it deletes it.
const toBeDeleted = "ToBeDeletedByClusterAutoscaler"

// Carriers decides which Nodes may carry the traffic of load balancers. The controller, the agents and kubectl pnap ask
// only here: by one rule a block is bought, an address published and announced, and the label NodeVLANReady set.
//
// What the announcer does counts. The agents follow the labels and annotations of their Node. kube-vip reads none of
// them: it announces wherever its pod runs, which is where the label NodeVLANReady is.
type Carriers struct {
	// Network is the ID of the public network; empty for the first one that each Node names.
	Network string
	// Announcer is AnnouncerKubeVIP or AnnouncerAgent; empty for that of the network on each Node.
	Announcer string
	// Selector is --service-node-selector; nil for what each Node names: the controller publishes AnnouncerNone on
	// those that it does not select.
	Selector labels.Selector
}

// CarriersOf returns the rule of the public network of an ID; of an empty ID that of the default network.
type CarriersOf func(networkID string) Carriers

// Everywhere is the rule of every network.
func (c Carriers) Everywhere() CarriersOf { return func(string) Carriers { return c } }

// All returns the rules of the networks that a Node lists; that of the default network if it lists none that can be
// read.
func (of CarriersOf) All(node *corev1.Node) []Carriers {
	list, _, err := ParsePublicNetworks(node.Annotations)
	if err != nil || len(list) == 0 {
		return []Carriers{of("")}
	}
	rules := make([]Carriers, len(list))
	for i, n := range list {
		rules[i] = of(n.ID)
	}
	return rules
}

// Unfit returns why a Node should carry the traffic of none of its networks, by the first of them.
func (of CarriersOf) Unfit(node *corev1.Node, watched bool) Obstacle {
	return first(of.All(node), func(c Carriers) Obstacle { return c.Unfit(node, watched) })
}

// Barred returns why a Node must carry the traffic of none of its networks, by the first of them.
func (of CarriersOf) Barred(node *corev1.Node) Obstacle {
	return first(of.All(node), func(c Carriers) Obstacle { return c.Barred(node) })
}

// first is the first obstacle, unless one of the rules has none.
func first(rules []Carriers, obstacle func(Carriers) Obstacle) Obstacle {
	found := Obstacle{}
	for _, rule := range rules {
		each := obstacle(rule)
		if each == (Obstacle{}) {
			return each
		}
		found = cmp.Or(found, each)
	}
	return found
}

// Obstacle is why a Node may not carry traffic. The zero Obstacle means that it may.
type Obstacle struct {
	// Why continues the sentence "Node x …".
	Why string
	// Remedy is a command, or what else to do; %s stands for the names of the Nodes. Empty where waiting is enough.
	Remedy string
}

// Explain continues the sentence "Node x …" for the Nodes of these names, with what to do.
func (o Obstacle) Explain(names ...string) string {
	if o.Remedy == "" {
		return o.Why
	}
	return o.Why + " (" + strings.ReplaceAll(o.Remedy, "%s", strings.Join(names, " ")) + ")"
}

// published is what the controller has published on a Node about the network of the Carriers.
type published struct {
	NodeNetwork
	member  bool  // the network is in the list, and the server is a member
	empty   bool  // no network is in the list, or there is no list yet
	nothing bool  // no address is announced on the Node
	err     error // why the list cannot be read
}

func (c Carriers) published(node *corev1.Node) published {
	list, listed, err := ParsePublicNetworks(node.Annotations)
	n, found := networkIn(list, c.Network)
	p := published{NodeNetwork: n, member: found && n.Member, empty: len(list) == 0, err: err,
		nothing: listed && len(list) == 0 || found && n.Announcer == AnnouncerNone}
	p.Announcer = cmp.Or(c.Announcer, n.Announcer)
	return p
}

// Barred returns why a Node must not carry traffic, although it may be able to: it is about to go, or someone decided
// so. The zero Obstacle means that it is not barred.
func (c Carriers) Barred(node *corev1.Node) Obstacle { return c.barred(node, c.published(node)) }

func (c Carriers) barred(node *corev1.Node, network published) Obstacle {
	switch {
	case leaving(node) != Obstacle{}:
		return leaving(node)
	case c.Selector != nil && !c.Selector.Matches(labels.Set(node.Labels)):
		return Obstacle{"does not match --service-node-selector", "add the labels " + text.Quote(c.Selector.String())}
	case c.Selector == nil && network.nothing:
		return Obstacle{"does not match --service-node-selector", "add the labels that this option names"}
	case ExcludedFromLoadBalancers(node):
		return Obstacle{"has the label " + corev1.LabelNodeExcludeBalancers,
			"kubectl label node %s " + corev1.LabelNodeExcludeBalancers + "-"}
	case network.Announcer == AnnouncerAgent && node.Annotations[NodeHandOver] == TagTrue:
		return Obstacle{"hands its addresses over", "kubectl annotate node %s " + NodeHandOver + "-"}
	default:
		return Obstacle{}
	}
}

// MarksDeletion reports whether a taint means that its Node is about to be deleted.
func MarksDeletion(taint corev1.Taint) bool { return taint.Key == toBeDeleted }

// leaving is why a Node will be gone soon.
func leaving(node *corev1.Node) Obstacle {
	switch {
	case node.DeletionTimestamp != nil:
		return Obstacle{Why: "is being deleted"}
	case slices.ContainsFunc(node.Spec.Taints, MarksDeletion):
		return Obstacle{Why: "is about to be deleted by the cluster autoscaler"}
	default:
		return Obstacle{}
	}
}

// Unfit returns why a Node should not carry traffic. By this the label NodeVLANReady is set. watched reports whether
// any Node of the cluster has an agent: where none has, a Node without one is not suspicious.
func (c Carriers) Unfit(node *corev1.Node, watched bool) Obstacle {
	return c.unfit(node, c.published(node), watched)
}

func (c Carriers) unfit(node *corev1.Node, network published, watched bool) Obstacle {
	return cmp.Or(c.barred(node, network), c.outside(node, network), network.broken(node, watched))
}

// Obstacle returns why a Node does not carry traffic: it is unfit, and no pod of kube-vip runs there all the same.
func (c Carriers) Obstacle(node *corev1.Node, watched bool) Obstacle {
	network := c.published(node)
	switch {
	case network.runsKubeVIP(node):
		return cmp.Or(leaving(node), c.outside(node, network), network.brokenItself(node, watched))
	case network.Announcer == AnnouncerAgent:
		return cmp.Or(c.barred(node, network), c.outside(node, network), network.brokenItself(node, watched))
	default:
		return c.unfit(node, network, watched)
	}
}

// brokenItself is broken, but for a Node whose agent has found a fault in another one of its networks only.
func (p published) brokenItself(node *corev1.Node, watched bool) Obstacle {
	condition := FindNodeCondition(node, ConditionVLANReady)
	if condition != nil && condition.Status == corev1.ConditionFalse && !Unreachable(node) &&
		VLANInterfaceOf(node, p.ID).Ready {
		return Obstacle{}
	}
	return p.broken(node, watched)
}

// runsKubeVIP reports whether a pod of kube-vip runs on the Node, if kube-vip announces. The last Node keeps its label,
// barred or not.
func (p published) runsKubeVIP(node *corev1.Node) bool {
	return p.Announcer == AnnouncerKubeVIP && node.Labels[NodeVLANReady] == TagTrue
}

// outside is why a Node is not in the public network.
func (c Carriers) outside(node *corev1.Node, network published) Obstacle {
	_, err := ParseProviderID(node.Spec.ProviderID)
	switch {
	case node.Spec.ProviderID == "":
		return Obstacle{"has no phoenixNAP server yet", "kubectl describe node %s"}
	case err != nil:
		return Obstacle{Why: "is no phoenixNAP server"}
	case node.Annotations[NodeServerMissing] != "":
		return Obstacle{"names a phoenixNAP server that no longer exists", "kubectl describe node %s"}
	case network.err != nil:
		return Obstacle{"has an unreadable " + text.Clean(network.err.Error()),
			"kubectl annotate node %s " + NodePublicNetworks + "-"}
	case network.empty:
		return Obstacle{Why: "waits for the controller to publish the public network"}
	case !network.member:
		return Obstacle{"is not a member of public network " + text.Clean(cmp.Or(c.Network, network.ID)),
			"add its server to the network, or set --manage-membership"}
	default:
		return network.unnamed(node)
	}
}

// unnamed is why kube-vip cannot be given the VLAN interface of a Node. Only by its name does kube-vip know in which
// public network it is, so in all but the default one the name ends in the VLAN ID.
func (p published) unnamed(node *corev1.Node) Obstacle {
	if p.Announcer != AnnouncerKubeVIP || p.Name == v1beta1.DefaultNetwork {
		return Obstacle{}
	}
	name := VLANInterfaceOf(node, p.ID).Name
	switch {
	case name == "":
		return Obstacle{"has no agent that reports the VLAN interface of public network " + text.Clean(p.Name),
			"kubectl describe node %s"}
	case name[len(strings.TrimRight(name, "0123456789")):] != strconv.Itoa(p.VLAN):
		return Obstacle{fmt.Sprintf("has the VLAN interface %s of public network %s, whose name does not end in the "+
			"VLAN ID %d, as kube-vip needs it there", text.Clean(name), text.Clean(p.Name), p.VLAN),
			fmt.Sprintf("name it bond0.%d, as docs/guides/network.md shows", p.VLAN)}
	default:
		return Obstacle{}
	}
}

// broken is why a Node that is in the public network cannot carry its traffic now.
func (p published) broken(node *corev1.Node, watched bool) Obstacle {
	condition := FindNodeCondition(node, ConditionVLANReady)
	switch {
	case Unreachable(node):
		return Obstacle{"is unreachable, because its kubelet does not report", "kubectl describe node %s"}
	case condition == nil && watched && !p.runsKubeVIP(node):
		return Obstacle{"has no agent that reports on it", "kubectl -n kube-system describe daemonset phoenixnap-agent"}
	case condition == nil || condition.Status == corev1.ConditionTrue:
		return Obstacle{}
	default:
		return Obstacle{text.Clean(fmt.Sprintf("has the condition %s=%s, reason %s", ConditionVLANReady,
			condition.Status, condition.Reason)), "kubectl describe node %s"}
	}
}

// Unreachable reports whether the kubelet of a Node does not report, so that what the Node says may be long past.
func Unreachable(node *corev1.Node) bool {
	kubelet := FindNodeCondition(node, corev1.NodeReady)
	return kubelet != nil && kubelet.Status == corev1.ConditionUnknown
}

// Any reports whether a Node may carry traffic. If none may, why names the Nodes, the reason of each, and what to do.
func (c Carriers) Any(nodes []*corev1.Node) (may bool, why string) {
	watched := slices.ContainsFunc(nodes, func(node *corev1.Node) bool {
		return FindNodeCondition(node, ConditionVLANReady) != nil
	})
	stopped := map[Obstacle][]string{}
	for _, node := range nodes {
		o := c.Obstacle(node, watched)
		if o == (Obstacle{}) {
			return true, ""
		}
		stopped[o] = append(stopped[o], text.Clean(node.Name))
	}
	if len(stopped) == 0 {
		return false, "the cluster has no Nodes"
	}
	return false, explain(stopped)
}

// maxNodesNamed bounds the Nodes that a message names for one obstacle.
const maxNodesNamed = 5

// explain says what stops Nodes; what stops the most comes first.
func explain(stopped map[Obstacle][]string) string {
	order := slices.SortedFunc(maps.Keys(stopped), func(a, b Obstacle) int {
		return cmp.Or(len(stopped[b])-len(stopped[a]), cmp.Compare(a.Why, b.Why))
	})
	said := make([]string, 0, len(order))
	for _, o := range order {
		names := slices.Sorted(slices.Values(stopped[o]))
		shown := names[:min(len(names), maxNodesNamed)]
		said = append(said, "Node "+text.Some(names, maxNodesNamed)+" "+o.Explain(shown...))
	}
	return strings.Join(said, "; ")
}

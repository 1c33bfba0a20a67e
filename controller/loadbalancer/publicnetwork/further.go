package publicnetwork

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/config"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/announcer"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// Further are the public networks that are served beside that of the option loadbalancer. It is safe for concurrent
// use.
type Further struct {
	mu     sync.Mutex
	served []v1beta1.PublicNetwork
	read   bool
}

// Served are the objects of these networks, and whether all of them were known once.
func (f *Further) Served() (served []v1beta1.PublicNetwork, read bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.served, f.read
}

func (f *Further) set(served []v1beta1.PublicNetwork, read bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.served = served
	f.read = f.read || read
}

// candidates are the objects of which some are served beside the network of the options.
type candidates struct {
	options *config.Config
	all     []v1beta1.PublicNetwork
	// vlans are the VLAN IDs by the IDs of networks, 0 for a network that the account does not have; those that were
	// not read yet are missing. They matter to an announcer that knows networks by their interfaces.
	vlans map[string]int
}

// served are those that can be served. Whether the account has such a network, and in which state, is found by those
// who use it. complete reports whether nothing is missing to decide about each.
func (c candidates) served() (served []v1beta1.PublicNetwork, complete bool) {
	complete = true
	for i := range c.all {
		why, refused := c.refuse(&c.all[i])
		if !refused {
			served = append(served, c.all[i])
		}
		complete = complete && why.status != metav1.ConditionUnknown
	}
	return served, complete
}

// refuse says why an object cannot be served beside the network of the options, or not yet.
func (c candidates) refuse(object *v1beta1.PublicNetwork) (verdict, bool) {
	option := c.options.LoadBalancer
	if !option.Enabled() {
		return no(ReasonNotSupported, "the option loadbalancer is off, so no public network is served; set it to this "+
			"one, or kubectl delete pubnet %s", object.Name), true
	}
	if object.Name == v1beta1.DefaultNetwork {
		return no(ReasonOtherNetwork, "the option loadbalancer names public network %s, and this object is of %s; set "+
			"the option to that one, or have the object made again: kubectl annotate pubnet %s %s=true, then kubectl "+
			"delete pubnet %s", option.Network.ID, object.Spec.ID, object.Name, contract.AllowDeletion,
			object.Name), true
	}
	if object.Spec.ID == option.Network.ID {
		return no(ReasonDuplicateID, "public network %s is that of the option loadbalancer, which is served under the "+
			"name %s: kubectl delete pubnet %s", object.Spec.ID, v1beta1.DefaultNetwork, object.Name), true
	}
	first := c.oldest(func(other v1beta1.PublicNetwork) bool { return other.Spec.ID == object.Spec.ID })
	_, err := selectorOf(object.Spec.Members.NodeSelector)
	switch word := announcer.Word(option.Announcer); {
	case first != object.Name:
		return no(ReasonDuplicateID, "PublicNetwork %s, which is older, is of %s, too: kubectl delete pubnet %s",
			first, object.Spec.ID, object.Name), true
	case object.Spec.Announcer != word:
		return no(ReasonNotSupported, "all public networks have one announcer, that of the option loadbalancer: set "+
			"spec.announcer to %s", word), true
	case err != nil:
		return no(ReasonNotSupported, "spec.members.nodeSelector: %v; correct it", err), true
	case announcer.KnowsByInterface(option.Announcer):
		return c.refuseVLAN(object)
	default:
		return verdict{}, false
	}
}

// refuseVLAN says why an announcer that knows networks by the names of their interfaces cannot serve one: the network
// of the options, or that of an older object, has the same VLAN ID, so that interfaces have one name.
func (c candidates) refuseVLAN(object *v1beta1.PublicNetwork) (verdict, bool) {
	option := c.options.LoadBalancer
	home, homeRead := c.vlans[option.Network.ID]
	vlan, read := c.vlans[object.Spec.ID]
	if !homeRead || !read {
		return verdict{metav1.ConditionUnknown, ReasonNetworkUnreadable, "the network is not served before its VLAN " +
			"is read, because " + option.Announcer + " knows networks by their interfaces"}, true
	}
	other := v1beta1.DefaultNetwork
	if vlan != home {
		other = c.oldest(func(o v1beta1.PublicNetwork) bool { return vlan == c.vlans[o.Spec.ID] })
	}
	if vlan == 0 || other == object.Name {
		return verdict{}, false
	}
	return no(ReasonNotSupported, "PublicNetwork %s has the VLAN ID %d, too, and %s knows networks by the names of "+
		"their interfaces: use a network with another VLAN ID, or announce with the agents: set the option loadbalancer "+
		"to %s://%s, and spec.announcer to %s", other, vlan, option.Announcer, contract.AnnouncerAgent,
		option.Network.ID, v1beta1.AnnouncerAgent), true
}

// oldest is the name of the oldest object of some, the first by name of several.
func (c candidates) oldest(of func(v1beta1.PublicNetwork) bool) string {
	some := slices.DeleteFunc(slices.Clone(c.all), func(o v1beta1.PublicNetwork) bool { return !of(o) })
	return slices.MinFunc(some, func(a, b v1beta1.PublicNetwork) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	}).Name
}

// words are those of selectors for the operators of requirements.
var words = map[string]selection.Operator{
	"In": selection.In, "NotIn": selection.NotIn, "Exists": selection.Exists, "DoesNotExist": selection.DoesNotExist,
	"Gt": selection.GreaterThan, "Lt": selection.LessThan,
}

// selectorOf is what requirements demand of Nodes, the reverse of requirements; nil for none.
func selectorOf(demanded []v1beta1.NodeRequirement) (labels.Selector, error) {
	if len(demanded) == 0 {
		return nil, nil
	}
	selector := labels.NewSelector()
	for _, r := range demanded {
		one, err := labels.NewRequirement(r.Key, words[r.Operator], r.Values)
		if err != nil {
			return nil, fmt.Errorf("label %s: %w", r.Key, err)
		}
		selector = selector.Add(*one)
	}
	return selector, nil
}

// Policy is what an object says of the blocks and Nodes of its network, as options do.
type Policy struct {
	network.Named
	Selector                                        labels.Selector
	Allocation, BlockSize                           string
	MaxBlocks, MaxRetained, MaxRetainedPerNamespace int
	// Managed reports that the controller adds servers to the network, WithoutAddress that they get no address there.
	Managed, WithoutAddress bool
}

// NamedOf is the network of an object.
func NamedOf(object *v1beta1.PublicNetwork) network.Named {
	return network.Named{Name: object.Name, ID: object.Spec.ID}
}

// PolicyOf reads the policy of an object that is served. What is missing is as the definition has it.
func PolicyOf(object *v1beta1.PublicNetwork) Policy {
	blocks := object.Spec.IPBlocks
	selector, _ := selectorOf(object.Spec.Members.NodeSelector) // those with another one are not served
	p := Policy{Named: NamedOf(object), Selector: selector,
		Allocation: contract.AllocationDedicated, BlockSize: cmp.Or(blocks.Size, "/29"),
		MaxBlocks: number(blocks.Maximum, 0), MaxRetained: number(blocks.MaximumRetained, 2),
		MaxRetainedPerNamespace: number(blocks.MaximumRetainedPerNamespace, 1),
		Managed:                 object.Spec.Members.Membership == v1beta1.MembershipManage,
		WithoutAddress:          object.Spec.Members.Addresses == v1beta1.MemberAddressesNone}
	if blocks.Allocation == v1beta1.AllocationShared {
		p.Allocation = contract.AllocationShared
	}
	return p
}

func number(n *int32, standard int) int {
	if n == nil {
		return standard
	}
	return int(*n)
}

package publicnetwork

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

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

// Served are the objects of these networks, and whether they were read once.
func (f *Further) Served() (served []v1beta1.PublicNetwork, read bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.served, f.read
}

func (f *Further) set(served []v1beta1.PublicNetwork) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.served = served
	f.read = true
}

// further are those of all objects that can be served beside the network of the options. Whether the account has such a
// network, and in which state, is found by those who use it.
func further(o *config.Config, all []v1beta1.PublicNetwork) []v1beta1.PublicNetwork {
	return slices.DeleteFunc(slices.Clone(all), func(object v1beta1.PublicNetwork) bool {
		_, refused := refuseFurther(&object, o, all)
		return refused
	})
}

// refuseFurther says why an object cannot be served beside the network of the options.
func refuseFurther(object *v1beta1.PublicNetwork, o *config.Config, all []v1beta1.PublicNetwork) (verdict, bool) {
	if !o.LoadBalancer.Enabled() {
		return no(ReasonNotSupported, "the option loadbalancer is off, so no public network is served; set it to this "+
			"one, or kubectl delete pubnet %s", object.Name), true
	}
	if object.Name == v1beta1.DefaultNetwork {
		return no(ReasonOtherNetwork, "the option loadbalancer names public network %s, and this object is of %s; set "+
			"the option to that one, or have the object made again: kubectl annotate pubnet %s %s=true, then kubectl "+
			"delete pubnet %s", o.LoadBalancer.NetworkID, object.Spec.ID, object.Name, contract.AllowDeletion,
			object.Name), true
	}
	if object.Spec.ID == o.LoadBalancer.NetworkID {
		return no(ReasonDuplicateID, "public network %s is that of the option loadbalancer, which is served under the "+
			"name %s: kubectl delete pubnet %s", object.Spec.ID, v1beta1.DefaultNetwork, object.Name), true
	}
	first := slices.MinFunc(all, func(a, b v1beta1.PublicNetwork) int {
		return cmp.Or(cmp.Compare(rank(a, object.Spec.ID), rank(b, object.Spec.ID)),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	_, err := selectorOf(object.Spec.Members.NodeSelector)
	one := announcer.OneNetwork(o.LoadBalancer.Announcer, o.LoadBalancer.NetworkID)
	switch word := announcer.Word(o.LoadBalancer.Announcer); {
	case first.Name != object.Name:
		return no(ReasonDuplicateID, "PublicNetwork %s, which is older, is of %s, too: kubectl delete pubnet %s",
			first.Name, object.Spec.ID, object.Name), true
	case one != "":
		return no(ReasonNotSupported, "%s", one), true
	case object.Spec.Announcer != word:
		return no(ReasonNotSupported, "all public networks have one announcer, that of the option loadbalancer: set "+
			"spec.announcer to %s", word), true
	case err != nil:
		return no(ReasonNotSupported, "spec.members.nodeSelector: %v; correct it", err), true
	default:
		return verdict{}, false
	}
}

// rank ranks objects of a network before others.
func rank(object v1beta1.PublicNetwork, id string) int {
	if object.Spec.ID == id {
		return 0
	}
	return 1
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
	Selector                                        labels.Selector
	Allocation, BlockSize                           string
	MaxBlocks, MaxRetained, MaxRetainedPerNamespace int
	// Managed reports that the controller adds servers to the network, WithoutAddress that they get no address there.
	Managed, WithoutAddress bool
}

// PolicyOf reads the policy of an object that is served. What is missing is as the definition has it.
func PolicyOf(object *v1beta1.PublicNetwork) Policy {
	blocks := object.Spec.IPBlocks
	selector, _ := selectorOf(object.Spec.Members.NodeSelector) // those with another one are not served
	p := Policy{Selector: selector, Allocation: contract.AllocationDedicated, BlockSize: cmp.Or(blocks.Size, "/29"),
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

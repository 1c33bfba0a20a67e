package overview

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// Network is a public network, as the controller published it on Nodes, and its PublicNetwork.
type Network struct {
	Name      string `json:"name,omitempty"` // of the object; empty for the one that Nodes list first, if there is none
	Location  string `json:"location,omitempty"`
	ID        string `json:"id,omitempty"`
	VLAN      int    `json:"vlan,omitempty"`
	Announcer string `json:"announcer,omitempty"`
	Blocks    string `json:"blocks,omitempty"`    // how many IPv4 blocks it has, and of how many; empty when unknown
	MaxBlocks int    `json:"maxBlocks,omitempty"` // how many blocks may be bought; 0: no limit but the network's
	// MaxRetained is how many blocks may outlive their Services.
	MaxRetained int `json:"maxRetained,omitempty"`
	// Off reports that the controller serves no Services and has no public network: --load-balancer is not set.
	Off bool `json:"off,omitempty"`
}

// network is the PublicNetwork of the option loadbalancer; nil when there is none.
func (f Facts) network() *v1beta1.PublicNetwork {
	i := slices.IndexFunc(f.Networks, func(n v1beta1.PublicNetwork) bool { return n.Name == v1beta1.DefaultNetwork })
	if i < 0 {
		return nil
	}
	return &f.Networks[i]
}

// networkOf returns the network of the option loadbalancer. Without its object, that is the one that the first Node
// lists.
func networkOf(f Facts) Network {
	object := f.network()
	switch {
	case isOff(f.Nodes):
		return Network{Off: true}
	case object == nil:
		return publishedOn(f.Nodes, "")
	default:
		return networkWith(f, object)
	}
}

// furtherOf returns the other networks, in the order of their names.
func furtherOf(f Facts) []Network {
	var further []Network
	for i := range f.Networks {
		if f.Networks[i].Name != v1beta1.DefaultNetwork && !isOff(f.Nodes) {
			further = append(further, networkWith(f, &f.Networks[i]))
		}
	}
	slices.SortFunc(further, func(a, b Network) int { return cmp.Compare(a.Name, b.Name) })
	return further
}

// networkWith returns what Nodes and object say of a network.
func networkWith(f Facts, object *v1beta1.PublicNetwork) Network {
	n := publishedOn(f.Nodes, object.Spec.ID)
	n.Name = text.Clean(object.Name)
	n.Location = text.Clean(object.Status.Location)
	n.Blocks = text.Clean(object.Status.Blocks)
	n.MaxBlocks = number(object.Spec.IPBlocks.Maximum)
	n.MaxRetained = number(object.Spec.IPBlocks.MaximumRetained)
	n.ID = cmp.Or(n.ID, text.Clean(object.Spec.ID))
	return n
}

// publishedOn returns the network of an ID as the first Node lists it that does, without one the first that is listed.
func publishedOn(nodes []corev1.Node, id string) Network {
	for i := range nodes {
		if n, ok, err := contract.NodeNetworkOf(nodes[i].Annotations, id); err == nil && ok {
			return Network{ID: text.Clean(n.ID), VLAN: n.VLAN, Announcer: text.Clean(n.Announcer)}
		}
	}
	return Network{}
}

// number is 0 for none.
func number(n *int32) int {
	if n == nil {
		return 0
	}
	return int(*n)
}

// isOff reports whether the controller has published on Nodes that there is no public network.
func isOff(nodes []corev1.Node) bool {
	off := false
	for i := range nodes {
		list, ok, err := contract.ParsePublicNetworks(nodes[i].Annotations)
		if err != nil || len(list) > 0 {
			return false
		}
		off = off || ok
	}
	return off
}

package controllers

import (
	"cmp"
	"reflect"
	"sync"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/config"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/publicnetwork"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/node/membership"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/node/metadata"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// balancers are the Balancers of the public networks that are or were served, each made when it is first needed, and
// again when its object says something else. It is safe for concurrent use.
type balancers struct {
	config  reconcile.Config // of the network of the option loadbalancer
	further *publicnetwork.Further

	mu     sync.Mutex
	byName map[string]policed
}

// policed is a Balancer and what it was made of.
type policed struct {
	policy   publicnetwork.Policy
	balancer *reconcile.Balancer
}

func newBalancers(config reconcile.Config, further *publicnetwork.Further) *balancers {
	return &balancers{config: config, further: further,
		byName: map[string]policed{config.Network.Name: {balancer: reconcile.New(config)}}}
}

// of is the Balancer of a network. One that is not served any more keeps its last one.
func (b *balancers) of(name string) *reconcile.Balancer {
	b.mu.Lock()
	defer b.mu.Unlock()
	served, _ := b.further.Served()
	for i := range served {
		if served[i].Name == name {
			b.make(&served[i])
		}
	}
	return b.byName[name].balancer
}

func (b *balancers) make(object *v1beta1.PublicNetwork) {
	policy := publicnetwork.PolicyOf(object)
	known, made := b.byName[object.Name]
	if made && reflect.DeepEqual(known.policy, policy) {
		return
	}
	config := b.config
	config.Network = policy.Named
	config.Location = ""
	config.LocationOfNetwork = true
	config.Selector = policy.Selector
	config.Allocation = policy.Allocation
	config.BlockSize = policy.BlockSize
	config.MaxBlocks = policy.MaxBlocks
	config.MaxRetained = policy.MaxRetained
	config.MaxRetainedPerNamespace = policy.MaxRetainedPerNamespace
	b.byName[object.Name] = policed{policy: policy, balancer: reconcile.New(config)}
}

// places are the public networks that are served.
func (c *Controllers) places() plan.Places {
	places := plan.Places{Served: []plan.Place{c.place(c.options.LoadBalancer.Network)}}
	if c.options.Location == "" {
		places.LocationAnnotation = c.options.AnnotationIPLocation
	}
	if c.options.DryRun {
		return places
	}
	served, read := c.further.Served()
	places.Partial = !read
	for i := range served {
		places.Served = append(places.Served, c.place(publicnetwork.NamedOf(&served[i])))
	}
	return places
}

// published are the public networks that Nodes list. A dry run previews that of the option.
func (c *Controllers) published() (served []metadata.PublicNetwork, all bool) {
	option := c.options.LoadBalancer
	if option.Network.ID == "" {
		return nil, true
	}
	announces := cmp.Or(option.Announcer, contract.AnnouncerNone)
	served = []metadata.PublicNetwork{{Named: option.Network, Announcer: announces,
		Selector: c.options.ServiceNodeSelector, Managed: c.options.ManageMembership}}
	if c.options.DryRun {
		return served, true
	}
	further, all := c.further.Served()
	for i := range further {
		policy := publicnetwork.PolicyOf(&further[i])
		served = append(served, metadata.PublicNetwork{Named: policy.Named, Announcer: announces,
			Selector: policy.Selector, Managed: policy.Managed})
	}
	return served, all
}

// managed are the networks to which the controller adds servers. A dry run previews that of the option.
func (c *Controllers) managed() []membership.Network {
	var all []membership.Network
	if c.options.ManageMembership {
		all = append(all, membership.Network{
			Named: c.options.LoadBalancer.Network, WithoutAddress: c.options.NodeAddress == config.NodeAddressNone,
			Selector: c.options.ServiceNodeSelector, MaxBlocks: c.options.MaxIPBlocks,
		})
	}
	if c.options.DryRun {
		return all
	}
	served, _ := c.further.Served()
	for i := range served {
		if policy := publicnetwork.PolicyOf(&served[i]); policy.Managed {
			all = append(all, membership.Network{Named: policy.Named, WithoutAddress: policy.WithoutAddress,
				Selector: policy.Selector, MaxBlocks: policy.MaxBlocks})
		}
	}
	return all
}

// nodesKept are the networks in which nodes get addresses of a block that the controller bought.
func (c *Controllers) nodesKept() []network.Named {
	var all []network.Named
	for _, n := range c.managed() {
		if !n.WithoutAddress {
			all = append(all, n.Named)
		}
	}
	return all
}

// carriersOf is the rule by which Nodes may carry traffic of the load balancers of a public network. What Nodes list
// says whether the selector of one that is not served any more selects them.
func (c *Controllers) carriersOf(networkID string) contract.Carriers {
	option := c.options.LoadBalancer
	rule := contract.Carriers{Network: cmp.Or(networkID, option.Network.ID), Announcer: option.Announcer}
	if rule.Network == option.Network.ID {
		rule.Selector = c.options.ServiceNodeSelector
		return rule
	}
	served, _ := c.further.Served()
	for i := range served {
		if served[i].Spec.ID == networkID {
			rule.Selector = publicnetwork.PolicyOf(&served[i]).Selector
		}
	}
	return rule
}

// place is a network as it was read last. One that the account does not have is in no location.
func (c *Controllers) place(named network.Named) plan.Place {
	public, _, err := c.account.LastNetwork(named.ID)
	if pnap.IsInaccessible(err) {
		public = network.Network{ID: named.ID}
	}
	return plan.Place{Named: named, Public: public}
}

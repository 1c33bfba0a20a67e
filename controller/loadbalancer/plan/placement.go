package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/api/v1beta1"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/text"
)

// Place is a public network that is served, as the choice of a network for a Service sees it.
type Place struct {
	network.Named
	// Public is what was read of the network last; the zero Network before that.
	Public network.Network
}

// Places are the public networks that are served.
type Places struct {
	// Served are the networks, first that of the option loadbalancer.
	Served []Place
	// Partial is true while others may be served that were not read yet.
	Partial bool
	// LocationAnnotation is the annotation by which a Service asks for a location; empty where it means nothing,
	// because an option says in which location blocks are bought.
	LocationAnnotation string
}

// Homes are the public networks in which Services have something.
type Homes struct {
	byUID                     map[string][]string // in how many it is recorded, without order
	byName, byObject, byGroup map[string]string
	blocks                    []home
}

// home is a block. One of which an owner is known can have no address of another Service: its addresses may have been
// sold again since, in another network.
type home struct {
	cidr    netip.Prefix
	network string
	owner   ipblock.Holder
}

// of reports whether an address can be one of the block that a Service has.
func (h home) of(service *corev1.Service, address netip.Addr) bool {
	named := h.owner.Namespace == service.Namespace && h.owner.Name == service.Name
	return h.cidr.Contains(address) && (h.owner == ipblock.Holder{} || h.owner.UID == string(service.UID) || named)
}

// HomesOf finds them in the objects of all blocks.
func HomesOf(records ipblock.Records) Homes {
	h := Homes{byUID: map[string][]string{}, byName: map[string]string{}, byObject: map[string]string{},
		byGroup: map[string]string{}}
	for _, r := range records {
		h.byObject[r.Name] = r.Network
		for _, group := range r.Groups {
			h.byGroup[group] = r.Network
		}
		for _, holder := range append([]ipblock.Holder{r.Service}, r.Holders...) {
			if holder.UID != "" {
				h.byUID[holder.UID] = append(h.byUID[holder.UID], r.Network)
			}
			if holder.Name != "" && holder.Namespace != "" {
				h.byName[holder.Namespace+"/"+holder.Name] = r.Network
			}
		}
		if r.Report.CIDR.IsValid() {
			h.blocks = append(h.blocks, home{r.Report.CIDR, r.Network, r.Service})
		}
	}
	return h
}

// Of is the network in which a Service, or an earlier one of its name, has a block or an address; empty for none. What
// is recorded of it decides before the address that it publishes: another Service, or another cluster, may have that by
// now. Of several networks, it is that of its address: a Service does not move.
func (h Homes) Of(service *corev1.Service, places Places) string {
	recorded := h.byUID[string(service.UID)]
	among := func(name string) bool { return len(recorded) == 0 || slices.Contains(recorded, name) }
	for _, address := range publishedBy(service) {
		for _, b := range h.blocks {
			if b.of(service, address) && among(b.network) {
				return b.network
			}
		}
		for _, p := range places.Served {
			if among(p.Name) && slices.ContainsFunc(p.Public.Blocks, func(b network.ListedBlock) bool {
				return b.CIDR.Contains(address)
			}) {
				return p.Name
			}
		}
	}
	return cmp.Or(h.recorded(service), h.byName[service.Namespace+"/"+service.Name])
}

// recorded is the first network by its name in which a Service is recorded; empty for none.
func (h Homes) recorded(service *corev1.Service) string {
	all := h.byUID[string(service.UID)]
	if len(all) == 0 {
		return ""
	}
	return slices.Min(all)
}

// Choose is the name of the network that serves a Service: that in which it has something, or in which the IPBlock is
// that it names, or the group with which it shares an address; else the one that it names; else one in the location
// that it names, of several one with room; else the one of the option loadbalancer. Without a name, the step says what
// the author has to change, or what the Service waits for.
func (p Places) Choose(service *corev1.Service, homes Homes) (name string, instead ipblock.Step) {
	key := keyOf(service)
	asked := networkOf(service)
	location := p.locationOf(service)
	switch have := cmp.Or(homes.Of(service, p), homes.byObject[namedBy(service)],
		homes.byGroup[service.Namespace+"/"+key]); {
	case have != "":
		return p.named(have, "in which the Service has its address or IP block")
	case asked != "":
		return p.named(asked, "which annotation "+contract.ServiceNetwork+" names")
	case location != "" && len(p.Served) > 1:
		return p.in(location)
	default:
		return p.Served[0].Name, ipblock.Step{}
	}
}

// ChooseForRelease is Choose for a Service that is to be released: what it asks for matters no more. A record goes
// before its address, which it may show to the end.
func (p Places) ChooseForRelease(service *corev1.Service, homes Homes) (name string, instead ipblock.Step) {
	if have := cmp.Or(homes.recorded(service), homes.Of(service, p)); have != "" {
		return p.named(have, "in which the Service has its address or IP block")
	}
	return p.Served[0].Name, ipblock.Step{}
}

// Named are the networks without what was read of them.
func (p Places) Named() []network.Named {
	named := make([]network.Named, 0, len(p.Served))
	for _, s := range p.Served {
		named = append(named, s.Named)
	}
	return named
}

// In is the name of the first network in a location; empty without one.
func (p Places) In(location string) string {
	for _, s := range p.Served {
		if network.SameLocation(s.Public.Location, location) {
			return s.Name
		}
	}
	return ""
}

// Only reports whether there is but one network.
func (p Places) Only() bool { return len(p.Served) == 1 && !p.Partial }

// Sole reports whether there is but one network, and the Service asks for no other one.
func (p Places) Sole(service *corev1.Service) bool {
	asked := networkOf(service)
	return p.Only() && (asked == "" || asked == p.Served[0].Name)
}

// networkOf is the name of the network that a Service asks for; empty when it asks for none.
func networkOf(service *corev1.Service) string {
	return strings.TrimSpace(service.Annotations[contract.ServiceNetwork])
}

func (p Places) locationOf(service *corev1.Service) string {
	if p.LocationAnnotation == "" {
		return ""
	}
	return strings.TrimSpace(service.Annotations[p.LocationAnnotation])
}

// named is the network of a name.
func (p Places) named(name, why string) (string, ipblock.Step) {
	switch {
	case slices.ContainsFunc(p.Served, func(s Place) bool { return s.Name == name }):
		return name, ipblock.Step{}
	case p.Partial:
		return "", p.wait()
	default:
		return "", ipblock.RefuseStep(network.Block{}, ipblock.NetworkNotServed,
			"public network %s, %s, is not served; name one of %s, or have an administrator create PublicNetwork %s",
			text.Quote(name), why, p.describe(), text.Quote(name))
	}
}

// in is the network in a location, of several the first one with room.
func (p Places) in(location string) (string, ipblock.Step) {
	there := slices.DeleteFunc(slices.Clone(p.Served), func(s Place) bool {
		return !network.SameLocation(s.Public.Location, location)
	})
	roomy := slices.IndexFunc(there, func(s Place) bool { return s.Public.IPv4Blocks() < network.BlockLimit })
	unread := slices.ContainsFunc(p.Served, func(s Place) bool { return s.Public.ID == "" })
	switch {
	case roomy >= 0:
		return there[roomy].Name, ipblock.Step{}
	case p.Partial || unread:
		return "", p.wait()
	case len(there) > 0:
		return there[0].Name, ipblock.Step{}
	default:
		return "", ipblock.RefuseStep(network.Block{}, ipblock.NetworkNotServed,
			"no public network is in location %s, which annotation %s names; set it to the location of one of %s, or "+
				"have an administrator create a PublicNetwork there",
			text.Quote(location), p.LocationAnnotation, p.describe())
	}
}

func (p Places) wait() ipblock.Step {
	return ipblock.Step{Action: ipblock.Wait, Reason: ipblock.NetworkUnreadable,
		Detail: "waiting until all public networks were read"}
}

// describe names the networks that are served, with their locations.
func (p Places) describe() string {
	names := make([]string, 0, len(p.Served))
	for _, s := range p.Served {
		names = append(names, fmt.Sprintf("%s (%s)", s.Name, cmp.Or(s.Public.Location, "not read yet")))
	}
	return strings.Join(names, ", ")
}

// RefuseOrder says why nothing is bought for a block that was ordered for a network which is not served.
func (p Places) RefuseOrder(r ipblock.Record) (refusal ipblock.Step, refused bool) {
	if !r.Ordered || r.BlockID != "" || r.Deleted {
		return ipblock.Step{}, false
	}
	_, refusal = p.named(r.Network, "which spec.attachment names")
	return refusal, refusal.Action == ipblock.Refuse
}

// Serves returns the Services that a network serves. Those that are refused, or wait for a network, are of none.
func (p Places) Serves(name string, all []*corev1.Service, homes Homes) []*corev1.Service {
	return slices.DeleteFunc(slices.Clone(all), func(service *corev1.Service) bool {
		chosen, _ := p.Choose(service, homes)
		return chosen != name
	})
}

// OnlyElsewhere reports whether a Service has something in another public network, and in this one neither an object of
// its own nor an address that it holds.
func OnlyElsewhere(h ipblock.Holder, held netip.Addr, here, elsewhere ipblock.Records) bool {
	_, recorded := here.Own(h)
	return elsewhere.Has(h) && !recorded && !held.IsValid()
}

// otherNetwork says that a Service which has something asks for another network; empty when it does not.
func (obs Observed) otherNetwork() string {
	asked := obs.Desired.Network
	name := cmp.Or(obs.Network.Name, v1beta1.DefaultNetwork)
	if asked == "" || asked == name {
		return ""
	}
	return fmt.Sprintf("the Service is in public network %s, and annotation %s names %s; that cannot be changed in "+
		"place: take the change back, or delete the Service and create it again", name, contract.ServiceNetwork,
		text.Quote(asked))
}

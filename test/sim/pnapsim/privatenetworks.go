package pnapsim

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"
)

// privateNetwork is a network without a way out. The document lists no 409 for it: what is wrong is 400.
type privateNetwork struct {
	made
	owner       string
	name        string
	description string
	location    string
	vlan        int
	cidr        netip.Prefix // the zero value for one that was made without
	isDefault   bool         // the one that servers of the location get
	status      string
	created     time.Time
}

// privateNetworkBody is the body that makes or changes a private network.
type privateNetworkBody struct {
	Name        string  `json:"name"`
	Description *string `json:"description"`
	Location    string  `json:"location"`
	Default     bool    `json:"locationDefault"`
	VLAN        int     `json:"vlanId"`
	CIDR        string  `json:"cidr"`
}

// privateSpace is what private networks are taken from where none is named; any of RFC 1918 may be.
var privateSpace = netip.MustParsePrefix("10.0.0.0/8")

func (s *Sim) listPrivateNetworks(c *call) reply {
	location := c.query.Get("location")
	return s.lagging(c, s.latency.NetworkListLag, listing(inOrder(c.account.private),
		func(n *privateNetwork) bool { return location == "" || location == n.location },
		func(n *privateNetwork) object { return s.privateNetworkView(c.account, n) }))
}

func (s *Sim) privateNetworkView(a *account, n *privateNetwork) object {
	servers := []any{} // the older, deprecated list
	members := []any{}
	for _, srv := range inOrder(a.servers) {
		if m := srv.privateMember(n.id); m != nil {
			ips := slices.Clone(m.ips)
			servers = append(servers, object{"id": srv.id, "ips": ips})
			members = append(members, object{"resourceId": srv.id, "resourceType": "server", "ips": ips})
		}
	}
	view := object{
		"id": n.id, "name": n.name, "location": n.location, "locationDefault": n.isDefault, "vlanId": n.vlan,
		"type": "PRIVATE", "status": n.status, "createdOn": s.timestamp(n.created), "servers": servers,
		"memberships": members,
	}
	optional(view, "description", n.description)
	if n.cidr.IsValid() {
		view["cidr"] = n.cidr.String()
	}
	return view
}

func (s *Sim) createPrivateNetwork(c *call, a *account, body privateNetworkBody) reply {
	faults := privateNetworkFaults(a, nil, body)
	cidr, err := privateRange(a, body, c.force)
	if err != nil {
		faults = append(faults, "cidr: "+err.Error())
	}
	if !knownLocation(body.Location) {
		faults = append(faults, fmt.Sprintf("location %q: want one of %s", body.Location,
			strings.Join(locations(), ", ")))
	}
	if body.VLAN != 0 && usedVLANs(a, body.Location)[body.VLAN] {
		faults = append(faults, fmt.Sprintf("vlanId %d: in use in location %s", body.VLAN, body.Location))
	}
	if faults != nil {
		return invalid(faults...)
	}
	n := &privateNetwork{
		made: s.make(s.newID()), owner: c.client.ID, name: body.Name, description: ptr.Deref(body.Description, ""),
		location: body.Location, vlan: cmp.Or(body.VLAN, freeVLAN(a, body.Location)), cidr: cidr, status: networkBusy,
		created: s.now,
	}
	a.private[n.id] = n
	a.setDefault(n, body.Default)
	s.after(s.latency.NetworkChange, func() { n.status = networkReady })
	return reply{status: http.StatusCreated, body: s.privateNetworkView(a, n)}
}

// privateNetworkFaults lists what is wrong with the name and the default of a network, which is nil for a new one.
func privateNetworkFaults(a *account, n *privateNetwork, body privateNetworkBody) []string {
	location := body.Location
	if n != nil {
		location = n.location
	}
	var faults []string
	hasDefault := false
	for _, other := range a.private {
		if other != n && other.name == body.Name {
			faults = append(faults, fmt.Sprintf("name %q: a network has it", body.Name))
		}
		hasDefault = hasDefault || other != n && other.location == location && other.isDefault
	}
	if !body.Default && !hasDefault {
		faults = append(faults, "locationDefault: location "+location+" would have no default network")
	}
	return faults
}

// setDefault makes a network the default one of its location, in the place of another, or not.
func (a *account) setDefault(n *privateNetwork, isDefault bool) {
	for _, other := range a.private {
		if isDefault && other.location == n.location {
			other.isDefault = false
		}
	}
	n.isDefault = isDefault
}

// privateRange is the range that a new network gets: the one that it names, or one that is free, or none with force.
func privateRange(a *account, body privateNetworkBody, force bool) (netip.Prefix, error) {
	taken := func(cidr netip.Prefix) bool {
		return slices.ContainsFunc(inOrder(a.private), func(n *privateNetwork) bool {
			return n.location == body.Location && n.cidr.IsValid() && n.cidr.Overlaps(cidr)
		})
	}
	if body.CIDR == "" && force {
		return netip.Prefix{}, nil
	}
	if body.CIDR == "" {
		cidr := netip.PrefixFrom(privateSpace.Addr(), 24)
		for taken(cidr) {
			cidr = netip.PrefixFrom(lastAddress(cidr).Next(), 24)
		}
		return cidr, nil
	}
	cidr, err := netip.ParsePrefix(body.CIDR)
	switch {
	case err != nil || cidr != cidr.Masked() || !cidr.Addr().IsPrivate() || !cidr.Addr().Is4() || cidr.Bits() > 30:
		return netip.Prefix{}, errors.New("want an aligned range of private addresses")
	case taken(cidr):
		return netip.Prefix{}, errors.New("it overlaps another private network of the location")
	}
	return cidr, nil
}

func (s *Sim) putPrivateNetwork(c *call, n *privateNetwork, body privateNetworkBody) reply {
	s.judgeUse(c, "private network "+n.id, n.owner)
	if faults := privateNetworkFaults(c.account, n, body); faults != nil {
		return invalid(faults...)
	}
	n.name = body.Name
	n.description = ptr.Deref(body.Description, "")
	c.account.setDefault(n, body.Default)
	return reply{status: http.StatusOK, body: s.privateNetworkView(c.account, n)}
}

func (s *Sim) deletePrivateNetwork(c *call, n *privateNetwork) reply {
	s.judgeUse(c, "private network "+n.id, n.owner)
	for _, srv := range inOrder(c.account.servers) {
		if srv.privateMember(n.id) != nil {
			return invalid("Server " + srv.id + " is a member of the network.")
		}
	}
	others := slices.ContainsFunc(inOrder(c.account.private),
		func(o *privateNetwork) bool { return o != n && o.location == n.location })
	switch {
	case n.status != networkReady:
		return invalid("The network is " + n.status + ".")
	case n.isDefault && others:
		return invalid("The network is the default one of location " + n.location + ", which has others.")
	}
	delete(c.account.private, n.id)
	return reply{status: http.StatusNoContent}
}

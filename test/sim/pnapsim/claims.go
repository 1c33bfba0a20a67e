package pnapsim

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// What a client may claim.
const (
	ClaimServerGone     = "server-gone"     // states that Server is gone, so that its Node may be deleted.
	ClaimServerAlive    = "server-alive"    // states that Server exists.
	ClaimServerUnusable = "server-unusable" // states that Server cannot be initialised or managed.
	ClaimPublished      = "published"       // states that Address of Block is published for Service.
	ClaimWithdrawn      = "withdrawn"       // states that Service has no published address any more.
	ClaimReleased       = "released"        // states that Block is deleted.
	ClaimLog            = "log"             // shows Text that the client wrote to a log, an event or an error.
)

// Claim is what a client under test believes or did beyond the API. The judge knows better and reports a false one.
type Claim struct {
	// Client is the ID of the client.
	Client string `json:"client"`
	// Kind is one of the constants Claim….
	Kind string `json:"kind"`
	// Server, Block, Address, Service and Text are what it is about, as the kind needs.
	Server  string `json:"server,omitempty"`
	Block   string `json:"block,omitempty"`
	Address string `json:"address,omitempty"`
	Service string `json:"service,omitempty"`
	Text    string `json:"text,omitempty"`
	// Shared states that other Services may have the same address.
	Shared bool `json:"shared,omitempty"`
}

type publication struct {
	client  string
	block   string
	address netip.Addr
	shared  bool
}

// Claim judges a claim and returns why it is false, or nothing. An error means that it could not be
// judged: the client or the kind is unknown.
func (s *Sim) Claim(claim Claim) (falsehoods []string, err error) {
	defer s.enter()()
	c := s.clients[claim.Client]
	if c == nil {
		return nil, fmt.Errorf("claim of client %q: no such client", claim.Client)
	}
	a := s.accounts[c.account]
	switch claim.Kind {
	case ClaimServerGone, ClaimServerAlive, ClaimServerUnusable:
		falsehoods = judgeServerClaim(a, claim)
	case ClaimPublished:
		falsehoods = s.judgePublication(c, a, claim)
	case ClaimWithdrawn:
		delete(s.judge.published, claim.Service)
	case ClaimReleased:
		if b := a.blocks[claim.Block]; b != nil {
			falsehoods = []string{fmt.Sprintf("block %s is %s", b.id, b.status)}
		}
	case ClaimLog:
		if names := s.secretsIn(claim.Text); names != nil {
			falsehoods = []string{"the text holds " + strings.Join(names, ", ")}
		}
	default:
		return nil, fmt.Errorf("claim kind %q is unknown", claim.Kind)
	}
	for _, why := range falsehoods {
		s.violate(c, "claim-"+claim.Kind, "%s", why)
	}
	return falsehoods, nil
}

// judgeServerClaim: a server exists unless it is absent, being deleted, or only reserved.
func judgeServerClaim(a *account, claim Claim) []string {
	srv := a.servers[claim.Server]
	live := srv != nil && srv.status != serverDeleting && srv.status != serverReserved
	switch {
	case claim.Kind == ClaimServerAlive && srv == nil:
		return []string{fmt.Sprintf("server %s is gone", claim.Server)}
	case claim.Kind == ClaimServerAlive && srv.status == serverReserved:
		return []string{fmt.Sprintf("server %s is only reserved", claim.Server)}
	case claim.Kind == ClaimServerGone && live:
		return []string{fmt.Sprintf("server %s is %s", claim.Server, srv.status)}
	case claim.Kind == ClaimServerUnusable && live && srv.status != serverError:
		return []string{fmt.Sprintf("server %s is %s, with networkType %s", claim.Server, srv.status, srv.networkType)}
	default:
		return nil
	}
}

func (s *Sim) judgePublication(c *client, a *account, claim Claim) []string {
	ip, err := netip.ParseAddr(claim.Address)
	if err != nil {
		return []string{fmt.Sprintf("service %s: %q is no address", claim.Service, claim.Address)}
	}
	b := a.blocks[claim.Block]
	if b == nil {
		return []string{fmt.Sprintf("service %s: there is no block %q", claim.Service, claim.Block)}
	}
	var why []string
	if b.status != blockAssigned {
		why = append(why, fmt.Sprintf("service %s: block %s is %s", claim.Service, b.id, b.status))
	}
	if !usable(b.cidr, ip, s.first31()) {
		why = append(why, fmt.Sprintf("service %s: %s is the network, gateway or broadcast address of %s, or not in it",
			claim.Service, ip, b.cidr))
	}
	why = append(why, nodesAgainst(a, b, claim.Service, ip)...)
	for service, other := range s.judge.published {
		if service != claim.Service && other.address == ip && (!claim.Shared || !other.shared) {
			why = append(why, fmt.Sprintf("service %s: %s is published for service %s", claim.Service, ip, service))
		}
	}
	slices.Sort(why)
	s.judge.published[claim.Service] = publication{client: c.ID, block: b.id, address: ip, shared: claim.Shared}
	return why
}

// nodesAgainst: some node must be able to announce the address, and no node may own it.
func nodesAgainst(a *account, b *block, service string, ip netip.Addr) []string {
	n := a.networks[b.resource]
	if n == nil {
		return []string{fmt.Sprintf("service %s: block %s is on no network", service, b.id)}
	}
	var why []string
	members := 0
	for _, srv := range membersOf(a, n) {
		m := srv.member(n.id)
		if m.open {
			members++
		}
		if slices.Contains(addresses(m.ips), ip) {
			why = append(why, fmt.Sprintf("service %s: %s is server %s's own address", service, ip, srv.id))
		}
	}
	if members == 0 {
		why = append(why, fmt.Sprintf("service %s: network %s has no member that could announce %s", service, n.id, ip))
	}
	return why
}

// judgePublished reports the client that takes a block away while an address of it is published.
func (s *Sim) judgePublished(c *call, b *block) {
	for service, p := range s.judge.published {
		s.accuse(c, p.block == b.id && p.client == c.client.ID, "unassign-published",
			"block %s is unassigned while %s of it is published for service %s", b.id, p.address, service)
	}
}

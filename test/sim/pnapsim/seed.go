package pnapsim

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Seed is what there is from the start. As a JSON file:
//
//	{
//	  "accounts": [{
//	    "id": "demo",
//	    "clients":  [{"id": "ccm", "secret": "s3cret-of-the-ccm", "judged": true}],
//	    "tags":     [{"name": "team", "isBillingTag": false}],
//	    "networks": [{"id": "60473c2509268bc77fd06d29", "name": "public", "location": "ASH", "vlan": 20}],
//	    "blocks":   [{"name": "nodes", "location": "ASH", "cidr": "203.0.113.0/28", "network": "public"}],
//	    "servers":  [{"hostname": "node-1", "location": "ASH", "networkType": "PRIVATE_ONLY",
//	                  "privateIPs": ["10.0.0.11"],
//	                  "networks": [{"network": "public", "ips": ["203.0.113.2"]}]}]
//	  }]
//	}
//
// IDs of resources are 24 hexadecimal digits, made where they are missing. Networks are named by name or ID. Tags that
// the account lacks are made. What is seeded belongs to the portal's user, except where "owner" names a client.
type Seed struct {
	// Accounts own everything.
	Accounts []AccountSeed `json:"accounts"`
}

// AccountSeed is one account.
type AccountSeed struct {
	ID string `json:"id"`
	// MaxServers and MaxBlocks are quotas; 0 means 100.
	MaxServers int `json:"maxServers,omitempty"`
	MaxBlocks  int `json:"maxBlocks,omitempty"`
	// Clients are its API clients.
	Clients []ClientSeed `json:"clients,omitempty"`
	// Tags, Networks, Blocks and Servers are its resources.
	Tags     []TagSeed     `json:"tags,omitempty"`
	Networks []NetworkSeed `json:"networks,omitempty"`
	Blocks   []BlockSeed   `json:"blocks,omitempty"`
	Servers  []ServerSeed  `json:"servers,omitempty"`
}

// ClientSeed is an API client with its credentials.
type ClientSeed struct {
	// ID and Secret are its OAuth 2.0 client credentials.
	ID     string `json:"id"`
	Secret string `json:"secret"`
	// Scopes that it may be granted; none means all: bmc, bmc.read, tags, tags.read.
	Scopes []string `json:"scopes,omitempty"`
	// Judged clients are held to the rules; the others only to the OpenAPI documents.
	Judged bool `json:"judged,omitempty"`
	// AllowForce are the uses of force=true that it declares: join, membership, unassign.
	AllowForce []string `json:"allowForce,omitempty"`
	// OwnershipTags prove a block to be this client's when it has all of them.
	OwnershipTags map[string]string `json:"ownershipTags,omitempty"`
	// MaxPurchases is the most blocks that it declares to buy; absent means any number.
	MaxPurchases *int `json:"maxPurchases,omitempty"`
	// RequestsPerMinute is the most requests to one operation that it declares; 0 means any number.
	RequestsPerMinute float64 `json:"requestsPerMinute,omitempty"`
}

// TagSeed is a tag of the account.
type TagSeed struct {
	Name string `json:"name"`
	// Billing tags appear on invoices.
	Billing bool `json:"isBillingTag,omitempty"`
}

// NetworkSeed is a public network.
type NetworkSeed struct {
	ID    string `json:"id,omitempty"`
	Owner string `json:"owner,omitempty"`
	// Name is unique in the account.
	Name     string `json:"name"`
	Location string `json:"location"`
	// VLAN ID, 2 to 4094; 0 means the lowest that is free.
	VLAN int `json:"vlan,omitempty"`
}

// BlockSeed is an IP block.
type BlockSeed struct {
	ID    string `json:"id,omitempty"`
	Owner string `json:"owner,omitempty"`
	// Grants are what a client may do with it although it is not its own: assign, unassign, tags, delete.
	Grants []string `json:"grants,omitempty"`
	// Name is the description.
	Name     string `json:"name,omitempty"`
	Location string `json:"location"`
	CIDR     string `json:"cidr"`
	// Network that it is assigned to, by name or ID; empty means none.
	Network string            `json:"network,omitempty"`
	Tags    map[string]string `json:"tags,omitempty"`
	// BringYourOwn blocks belong to the account's owner outright.
	BringYourOwn bool `json:"isBringYourOwn,omitempty"`
	// SystemManaged blocks are managed by phoenixNAP.
	SystemManaged bool `json:"isSystemManaged,omitempty"`
	// Parent is the ID of the block that it is a part of, which is divided by that; empty for none.
	Parent string `json:"parent,omitempty"`
	// Status is any word, also one of the future; empty means what follows from Network.
	Status string `json:"status,omitempty"`
}

// ServerSeed is a server.
type ServerSeed struct {
	ID       string `json:"id,omitempty"`
	Owner    string `json:"owner,omitempty"`
	Hostname string `json:"hostname"`
	Location string `json:"location"`
	// Type such as s1.c1.small, which is the default.
	Type string `json:"type,omitempty"`
	// Status; empty means powered-on.
	Status string `json:"status,omitempty"`
	// NetworkType; empty means PUBLIC_AND_PRIVATE.
	NetworkType string `json:"networkType,omitempty"`
	// PrivateIPs and PublicIPs are its own addresses.
	PrivateIPs []string `json:"privateIPs,omitempty"`
	PublicIPs  []string `json:"publicIPs,omitempty"`
	// Gateway is the address of its default gateway.
	Gateway string `json:"gateway,omitempty"`
	// ReservationID makes it reserved, not gone, when it is deprovisioned.
	ReservationID string            `json:"reservationID,omitempty"`
	Tags          map[string]string `json:"tags,omitempty"`
	// Networks that it is a member of.
	Networks []MembershipSeed `json:"networks,omitempty"`
}

// MembershipSeed is a server's membership in a network.
type MembershipSeed struct {
	Network string `json:"network"`
	Owner   string `json:"owner,omitempty"`
	// IPs of the server in it, single addresses and ranges.
	IPs []string `json:"ips,omitempty"`
}

// ReadSeed reads a seed file. Unknown properties are an error.
func ReadSeed(r io.Reader) (Seed, error) {
	var seed Seed
	decoder := json.NewDecoder(r)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&seed); err != nil {
		return Seed{}, fmt.Errorf("read seed: %w", err)
	}
	return seed, nil
}

// Seed adds accounts with all they have. On an error, which names what is wrong, a part of it may have been added.
func (s *Sim) Seed(seed Seed) error {
	defer s.enter()()
	for _, one := range seed.Accounts {
		if err := s.seedAccount(one); err != nil {
			return fmt.Errorf("seed account %q: %w", one.ID, err)
		}
	}
	return nil
}

func (s *Sim) seedAccount(seed AccountSeed) error {
	if seed.ID == "" || s.accounts[seed.ID] != nil {
		return errors.New("an ID is required, and must not be taken")
	}
	a := &account{
		id: seed.ID, maxServers: cmp.Or(seed.MaxServers, defaultLimit), maxBlocks: cmp.Or(seed.MaxBlocks, defaultLimit),
		servers: map[string]*server{}, blocks: map[string]*block{}, networks: map[string]*network{},
		private: map[string]*privateNetwork{}, peerGroups: map[string]*peerGroup{}, tags: map[string]*tag{},
		money: newMoney(),
	}
	s.accounts[a.id] = a
	for _, one := range seed.Clients {
		if err := s.seedClient(a, one); err != nil {
			return fmt.Errorf("client %q: %w", one.ID, err)
		}
	}
	for _, one := range seed.Tags {
		if !tagText.MatchString(one.Name) || a.tagNamed(one.Name) != nil {
			return fmt.Errorf("tag %q: malformed, or named twice", one.Name)
		}
		s.addTag(a, tagBody{Name: one.Name, Billing: one.Billing})
	}
	for _, one := range seed.Networks {
		if err := s.seedNetwork(a, one); err != nil {
			return fmt.Errorf("network %q: %w", one.Name, err)
		}
	}
	for _, one := range seed.Blocks {
		if err := s.seedBlock(a, one); err != nil {
			return fmt.Errorf("block %q: %w", one.CIDR, err)
		}
	}
	for _, one := range seed.Servers {
		if err := s.seedServer(a, one); err != nil {
			return fmt.Errorf("server %q: %w", one.Hostname, err)
		}
	}
	return nil
}

func (s *Sim) seedClient(a *account, seed ClientSeed) error {
	if seed.ID == "" || s.clients[seed.ID] != nil {
		return errors.New("an ID is required, and must not be taken")
	}
	if seed.Scopes == nil {
		seed.Scopes = []string{"bmc", "bmc.read", "tags", "tags.read"}
	}
	s.clients[seed.ID] = &client{ClientSeed: seed, account: a.id}
	return nil
}

// seedID is the ID of a seeded object.
func (s *Sim) seedID(id string) (string, error) {
	if id == "" {
		return s.newID(), nil
	}
	if len(id) != 24 || strings.Trim(id, "0123456789abcdef") != "" {
		return "", fmt.Errorf("ID %q: want 24 hexadecimal digits", id)
	}
	return id, nil
}

func (s *Sim) seedNetwork(a *account, seed NetworkSeed) error {
	id, err := s.seedID(seed.ID)
	if err != nil {
		return err
	}
	if !knownLocation(seed.Location) || seed.Name == "" {
		return errors.New("a name and a known location are required")
	}
	if r, ok := s.checkNewNetwork(a, networkBody{Name: &seed.Name, Location: seed.Location, VLAN: seed.VLAN}); !ok {
		return errors.New(messageOf(r.body))
	}
	a.networks[id] = &network{
		made: s.make(id), owner: seed.Owner, name: seed.Name, location: seed.Location,
		vlan:   cmp.Or(seed.VLAN, freeVLAN(a, seed.Location)),
		status: networkReady, created: s.longAgo(),
	}
	return nil
}

// longAgo is before every lag.
func (s *Sim) longAgo() time.Time { return s.now.Add(-24 * time.Hour) }

func (a *account) findNetwork(nameOrID string) (*network, error) {
	for _, n := range inOrder(a.networks) {
		if n.id == nameOrID || n.name == nameOrID {
			return n, nil
		}
	}
	return nil, fmt.Errorf("there is no network %q", nameOrID)
}

func (s *Sim) seedBlock(a *account, seed BlockSeed) error {
	id, err := s.seedID(seed.ID)
	if err != nil {
		return err
	}
	cidr, err := netip.ParsePrefix(seed.CIDR)
	if err != nil || cidr != cidr.Masked() || !knownLocation(seed.Location) {
		return errors.New("an aligned CIDR and a known location are required")
	}
	if err := s.takeRange(a, cidr, seed.Parent); err != nil {
		return err
	}
	b := &block{
		made: s.make(id), owner: seed.Owner, grants: seed.Grants, location: seed.Location, cidr: cidr,
		status: blockUnassigned, description: seed.Name, byo: seed.BringYourOwn, system: seed.SystemManaged,
		parent: seed.Parent, created: s.longAgo(),
	}
	if b.tags, err = s.seedTags(a, seed.Tags); err != nil {
		return err
	}
	a.blocks[id] = b
	if seed.Network != "" {
		err = s.seedAssignment(a, b, seed.Network)
	}
	if seed.Status != "" {
		b.status = seed.Status
		b.edited = true
		b.editedAt = s.longAgo()
	}
	return err
}

func (s *Sim) seedAssignment(a *account, b *block, network string) error {
	n, err := a.findNetwork(network)
	if err != nil {
		return err
	}
	if r, ok := s.assignable(a, n, b, 0); !ok {
		return fmt.Errorf("assign to network %s: %s", n.name, messageOf(r.body))
	}
	b.status = blockAssigned
	b.resource = n.id
	b.resourceKind = ofNetwork
	n.blocks = append(n.blocks, b.id)
	return nil
}

func (s *Sim) seedTags(a *account, tags map[string]string) ([]assignment, error) {
	bodies := []assignmentBody{}
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		if a.tagNamed(name) == nil {
			s.addTag(a, tagBody{Name: name})
		}
		bodies = append(bodies, assignmentBody{Name: name, Value: tags[name]})
	}
	list, faults := s.resolveTags(a, bodies)
	if faults != nil {
		return nil, errors.New(strings.Join(faults, "; "))
	}
	return list, nil
}

func (s *Sim) seedServer(a *account, seed ServerSeed) error {
	id, err := s.seedID(seed.ID)
	if err != nil {
		return err
	}
	if seed.Hostname == "" || !knownLocation(seed.Location) {
		return errors.New("a hostname and a known location are required")
	}
	srv := s.newServer(seed.Owner, serverBody{
		Hostname: seed.Hostname, OS: "ubuntu/jammy", Type: cmp.Or(seed.Type, "s1.c1.small"), Location: seed.Location,
		NetworkType: cmp.Or(seed.NetworkType, networkTypeBoth), Reservation: seed.ReservationID,
	})
	srv.id = id
	srv.status = cmp.Or(seed.Status, serverPoweredOn)
	srv.gateway = seed.Gateway
	srv.publicIPs = seed.PublicIPs
	srv.created = s.longAgo()
	if seed.PrivateIPs != nil {
		srv.privateIPs = seed.PrivateIPs
	}
	if srv.tags, err = s.seedTags(a, seed.Tags); err != nil {
		return err
	}
	a.servers[id] = srv
	s.stock[srv.location]++
	for _, one := range seed.Networks {
		if err := s.seedMembership(a, srv, one); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sim) seedMembership(a *account, srv *server, seed MembershipSeed) error {
	n, err := a.findNetwork(seed.Network)
	if err != nil {
		return err
	}
	if r, ok := s.checkIPs(&call{account: a}, srv, n, seed.IPs); !ok {
		return fmt.Errorf("membership in %s: %v", n.name, r.body)
	}
	srv.members = append(srv.members, &membership{
		network: n.id, owner: seed.Owner, ips: append([]string{}, seed.IPs...), status: membershipAssigned, open: true,
	})
	n.view = append(n.view, memberView{server: srv.id, ips: append([]string{}, seed.IPs...)})
	return nil
}

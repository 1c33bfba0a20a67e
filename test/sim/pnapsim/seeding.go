package pnapsim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"
)

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

// Seed adds accounts with all they have. On an error, which names what is wrong, a part of it may have
// been added.
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
		id: seed.ID, maxServers: orLimit(seed.MaxServers), maxBlocks: orLimit(seed.MaxBlocks),
		servers: map[string]*server{},
		blocks:  map[string]*block{}, networks: map[string]*network{}, tags: map[string]*tag{}, money: newMoney(),
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

func orLimit(n int) int {
	if n == 0 {
		return defaultLimit
	}
	return n
}

func (s *Sim) seedClient(a *account, seed ClientSeed) error {
	if seed.ID == "" || s.clients[seed.ID] != nil {
		return errors.New("an ID is required, and must not be taken")
	}
	c := &client{
		id: seed.ID, secret: seed.Secret, account: a.id, scopes: seed.Scopes, judged: seed.Judged,
		forces: seed.AllowForce,
		marks:  seed.OwnershipTags, buys: seed.MaxPurchases, budget: seed.RequestsPerMinute,
	}
	if c.scopes == nil {
		c.scopes = allScopes()
	}
	s.clients[c.id] = c
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
	vlan := seed.VLAN
	if vlan == 0 {
		vlan = freeVLAN(a, seed.Location)
	}
	a.networks[id] = &network{
		seq: s.nextSeq(), id: id, owner: seed.Owner, name: seed.Name, location: seed.Location, vlan: vlan,
		status: networkReady, created: s.longAgo(),
	}
	return nil
}

// longAgo is before every lag.
func (s *Sim) longAgo() time.Time { return s.now.Add(-24 * time.Hour) }

func (a *account) findNetwork(nameOrID string) (*network, error) {
	for _, n := range a.networksInOrder() {
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
	if !s.pool.take(cidr) {
		return errors.New("it overlaps another block")
	}
	b := &block{
		seq: s.nextSeq(), id: id, owner: seed.Owner, grants: seed.Grants, location: seed.Location, cidr: cidr,
		status: blockUnassigned, description: seed.Name, byo: seed.BringYourOwn, created: s.longAgo(),
	}
	if b.tags, err = s.seedTags(a, seed.Tags); err != nil {
		return err
	}
	a.blocks[id] = b
	if seed.Network == "" {
		return nil
	}
	n, err := a.findNetwork(seed.Network)
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
	names := []string{}
	for name := range tags {
		names = append(names, name)
	}
	slices.Sort(names)
	bodies := []assignmentBody{}
	for _, name := range names {
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
	if seed.Type == "" {
		seed.Type = "s1.c1.small"
	}
	if seed.NetworkType == "" {
		seed.NetworkType = networkTypeBoth
	}
	srv := s.newServer(seed.Owner, serverBody{
		Hostname: seed.Hostname, OS: "ubuntu/jammy", Type: seed.Type, Location: seed.Location,
		NetworkType: seed.NetworkType,
		Reservation: seed.ReservationID,
	})
	srv.id = id
	srv.status = serverPoweredOn
	srv.gateway = seed.Gateway
	srv.publicIPs = seed.PublicIPs
	srv.created = s.longAgo()
	if seed.Status != "" {
		srv.status = seed.Status
	}
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
	if r, ok := s.checkIPs(&call{account: a}, srv, n, seed.IPs, true); !ok {
		return fmt.Errorf("membership in %s: %v", n.name, r.body)
	}
	srv.members = append(srv.members, &membership{
		network: n.id, owner: seed.Owner, ips: orNone(seed.IPs), status: membershipAssigned, open: true,
	})
	n.view = append(n.view, memberView{server: srv.id, ips: orNone(seed.IPs)})
	return nil
}

package pnapsim

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// What the portal's user may do behind the clients' backs.
const (
	EditAddBlock      = "add-block"
	EditDeleteBlock   = "delete-block"
	EditUnassignBlock = "unassign-block"
	EditRetagBlock    = "retag-block"
	EditBlockStatus   = "block-status"
	EditDivideBlock   = "divide-block" // into two parts, which get Tags
	EditAddServer     = "add-server"   // Server, Hostname and its private IPs, where Network is
	EditRenameServer  = "rename-server"
	EditServerStatus  = "server-status"
	EditDeleteServer  = "delete-server"
	EditRemoveMember  = "remove-member"
	EditAddMember     = "add-member"
	EditDeleteNetwork = "delete-network"
	EditNetworkStatus = "network-status"
)

// Edit is a change that the portal's user or phoenixNAP itself makes, at once and without a request of a
// client. Each kind uses the fields that it needs.
type Edit struct {
	// Kind is one of the constants Edit….
	Kind string `json:"kind"`
	// Block, Server and Network are IDs.
	Block   string `json:"block,omitempty"`
	Server  string `json:"server,omitempty"`
	Network string `json:"network,omitempty"`
	// Hostname, Status, Tags and IPs are new values. EditNetworkStatus without a Status gives the network back
	// the one that it has by itself.
	Hostname string            `json:"hostname,omitempty"`
	Status   string            `json:"status,omitempty"`
	Tags     map[string]string `json:"tags,omitempty"`
	IPs      []string          `json:"ips,omitempty"`
	// CIDR is that of the new block of EditAddBlock, also of one deleted a moment ago; empty for any /29.
	CIDR string `json:"cidr,omitempty"`
}

// OutOfBand makes an edit. An error names the missing object.
func (s *Sim) OutOfBand(e Edit) error {
	defer s.enter()()
	switch e.Kind {
	case EditAddBlock:
		return s.addPortalBlock(e)
	case EditAddServer:
		return s.addPortalServer(e)
	}
	for _, a := range s.accounts {
		switch e.Kind {
		case EditDeleteBlock, EditUnassignBlock, EditRetagBlock, EditBlockStatus, EditDivideBlock:
			if b := a.blocks[e.Block]; b != nil {
				return s.editBlock(a, b, e)
			}
		case EditRenameServer, EditServerStatus, EditDeleteServer, EditRemoveMember, EditAddMember:
			if srv := a.servers[e.Server]; srv != nil {
				return s.editServer(a, srv, e)
			}
		case EditDeleteNetwork, EditNetworkStatus:
			if n := a.networks[e.Network]; n != nil {
				s.editNetwork(a, n, e)
				return nil
			}
		default:
			return fmt.Errorf("edit kind %q is unknown", e.Kind)
		}
	}
	return fmt.Errorf("edit %s: there is no block %q, server %q or network %q", e.Kind, e.Block, e.Server, e.Network)
}

// addPortalBlock buys a block with the given tags and assigns it to a network.
func (s *Sim) addPortalBlock(e Edit) error {
	for _, a := range s.accounts {
		n := a.networks[e.Network]
		if n == nil {
			continue
		}
		if e.CIDR != "" {
			return s.seedBlock(a, BlockSeed{Location: n.location, CIDR: e.CIDR, Network: n.id, Tags: e.Tags})
		}
		cidr, ok := s.pool.buy(n.location, 29, false, s.now, time.Duration(s.latency.Quarantine))
		if !ok {
			return fmt.Errorf("edit %s: no /29 is left in %s", e.Kind, n.location)
		}
		s.pool.giveBack(cidr, s.now) // seedBlock takes it again
		return s.seedBlock(a, BlockSeed{Location: n.location, CIDR: cidr.String(), Network: n.id, Tags: e.Tags})
	}
	return fmt.Errorf("edit %s: there is no network %q", e.Kind, e.Network)
}

// addPortalServer adds a server that is installed and switched on, and a member of no public network.
func (s *Sim) addPortalServer(e Edit) error {
	for _, a := range s.accounts {
		if n := a.networks[e.Network]; n != nil {
			return s.seedServer(a, ServerSeed{ID: e.Server, Hostname: e.Hostname, Location: n.location,
				NetworkType: networkTypePrivate, PrivateIPs: e.IPs})
		}
	}
	return fmt.Errorf("edit %s: there is no network %q", e.Kind, e.Network)
}

func (s *Sim) editBlock(a *account, b *block, e Edit) error {
	switch e.Kind {
	case EditDivideBlock:
		return s.divide(a, b, e.Tags)
	case EditDeleteBlock:
		for _, part := range a.parts(b.id) {
			s.detach(a, part)
			s.removeBlock(a, part)
		}
		s.detach(a, b)
		s.removeBlock(a, b)
	case EditUnassignBlock:
		s.detach(a, b)
	case EditRetagBlock:
		tags, err := s.seedTags(a, e.Tags)
		if err != nil {
			return fmt.Errorf("retag block %s: %w", b.id, err)
		}
		b.tags = tags
	case EditBlockStatus:
		b.status = e.Status
		b.edited = true // the word may be one of the future
		b.editedAt = s.now
	}
	return nil
}

// detach takes a block from its resource through legal states, at once.
func (s *Sim) detach(a *account, b *block) {
	switch b.status {
	case blockSubnetted:
		return
	case blockCreating:
		s.moveBlock(b, blockUnassigned)
	case blockAssigning:
		s.moveBlock(b, blockErrorAssigning)
	}
	if b.status != blockUnassigned && b.status != blockUnassigning {
		s.moveBlock(b, blockUnassigning)
	}
	if b.status == blockUnassigning {
		s.moveBlock(b, blockUnassigned)
	}
	drop := func(id string) bool { return id == b.id }
	if n := a.networks[b.resource]; n != nil {
		n.blocks = slices.DeleteFunc(n.blocks, drop)
	}
	if srv := a.servers[b.resource]; srv != nil {
		srv.ownBlocks = slices.DeleteFunc(srv.ownBlocks, drop)
	}
	b.resource = ""
	b.resourceKind = ""
}

func (s *Sim) editServer(a *account, srv *server, e Edit) error {
	switch e.Kind {
	case EditRenameServer:
		srv.hostname = e.Hostname
	case EditServerStatus:
		srv.status = e.Status
	case EditDeleteServer:
		s.startEnd(a, srv, true)
	case EditRemoveMember:
		m := srv.member(e.Network)
		if m == nil {
			return fmt.Errorf("edit %s: server %s is no member of network %q", e.Kind, srv.id, e.Network)
		}
		s.startLeave(a, srv, m, 0)
		s.settle()
	case EditAddMember:
		return s.addMember(a, srv, e)
	}
	return nil
}

func (s *Sim) addMember(a *account, srv *server, e Edit) error {
	n := a.networks[e.Network]
	if n == nil || srv.member(e.Network) != nil {
		return fmt.Errorf("edit %s: there is no network %q, or server %s is a member of it", e.Kind, e.Network, srv.id)
	}
	m := &membership{network: n.id, ips: append([]string{}, e.IPs...), status: membershipAssigned, open: true}
	srv.members = append(srv.members, m)
	s.followView(a, n.id)
	return nil
}

func (s *Sim) editNetwork(a *account, n *network, e Edit) {
	if e.Kind == EditNetworkStatus {
		own := map[bool]string{true: networkBusy, false: networkReady}[n.changes > 0]
		n.status = cmp.Or(e.Status, own)
		n.edited = e.Status != ""
		return
	}
	for _, srv := range membersOf(a, n) {
		s.startLeave(a, srv, srv.member(n.id), 0)
	}
	s.settle()
	s.removeNetwork(a, n)
}

package membership

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/node/instances"
)

// patience returns how old the list of servers may be, and since when the network must have been read: other
// controllers read them often enough unless a change is awaited.
func (m *Manager) patience() (age time.Duration, after time.Time) {
	now := m.config.Now()
	for _, at := range m.touched {
		if now.Sub(at) < 2*time.Minute {
			return instances.DefaultWindow, time.Time{}
		}
	}
	return instances.PeriodicMaxAge, now.Add(-account.PeriodicMaxAge)
}

// observe reads what a decision needs; the network is not older than after.
func (m *Manager) observe(ctx context.Context, list instances.List, after time.Time) (observed, error) {
	if err := list.Check(); err != nil {
		return observed{}, err
	}
	network, err := m.config.Account.Prove(ctx, m.config.Network.ID, after)
	if err != nil {
		return observed{}, err
	}
	recorded, err := m.store.load(ctx)
	if err != nil {
		return observed{}, err
	}
	nodes, err := m.lister.List(labels.Everything())
	if err != nil {
		return observed{}, fmt.Errorf("list Nodes: %w", err)
	}
	now := m.config.Now()
	best, rivals := wanted(claims(nodes, m.config.Network.Selector), list.ByID)
	return observed{
		nodes: nodes, now: now, network: network, servers: list.ByID, memberRecord: recorded,
		wanted: best, rivals: rivals, elsewhere: m.config.Elsewhere,
		isChanging: func(id string) bool {
			return !list.AskedAt.After(m.touched[id]) || now.Before(m.backoffs[id])
		},
		unwantedFor: func(id string) time.Duration {
			since, unwanted := m.unwanted[id]
			if !unwanted {
				return 0
			}
			return now.Sub(since)
		},
	}, nil
}

// remember records since when recorded servers are unwanted, by the controller's clock.
func (m *Manager) remember(o observed) {
	unwanted := map[string]time.Time{}
	for id, recorded := range o.memberRecord.members {
		if _, isWanted := o.wanted[id]; isWanted && recorded.Network == o.network.ID {
			continue
		}
		since, known := m.unwanted[id]
		if !known {
			since = o.now
		}
		unwanted[id] = since
	}
	m.unwanted = unwanted
	maps.DeleteFunc(m.touched, func(_ string, at time.Time) bool { return o.now.Sub(at) > time.Hour })
	maps.DeleteFunc(m.backoffs, func(_ string, until time.Time) bool { return o.now.After(until) })
	switch {
	case len(o.wanted) > 0:
		m.idle = time.Time{}
	case m.idle.IsZero():
		m.idle = o.now
	}
}

// confirmWanted returns the wanted Nodes by server ID, read live. An empty list is an error: a cluster that is being
// restored.
func (m *Manager) confirmWanted(ctx context.Context) (map[string][]*corev1.Node, error) {
	list, err := m.config.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list Nodes before servers leave the public network: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, errors.New("the cluster has no Nodes: servers stay in the public network")
	}
	nodes := make([]*corev1.Node, len(list.Items))
	for i := range list.Items {
		nodes[i] = &list.Items[i]
	}
	return claims(nodes, m.config.Network.Selector), nil
}

// blocks is what a pass knows about the account's blocks.
type blocks struct {
	// View has the blocks that matter to the nodes.
	ipblock.Account
	// all are all blocks of the account, those of the cluster included that the list omits if the index was read.
	all []network.Block
	// nodes are the blocks that were bought for the nodes and can be read by their ID.
	nodes []network.Sighting
	// doubtful reports that there is, or may be, a block for the nodes that cannot be read: it is listed and indexed,
	// or recorded and in the network or the index, or in both without a record. None is bought, and the record stays.
	doubtful bool
	// records are what purchases, and the blocks that were bought, are recorded in.
	records ipblock.Records
	// brought are the objects with which people bring blocks for the nodes, and shared those of all blocks whose
	// addresses several have.
	brought, shared ipblock.Records
}

// recorded returns the ID of the block in the recorded purchase; empty when it has none.
func (b blocks) recorded() string {
	if b.Purchase == nil {
		return ""
	}
	return b.Purchase.BlockID
}

// recordLost reports that the only block of the nodes may be one that nothing but the index and the network shows: no
// purchase is recorded that could name it.
func (b blocks) recordLost(network network.Network) bool {
	return b.Purchase == nil && slices.ContainsFunc(b.Unseen, network.Listed)
}

// observeBlocks finds the blocks of the nodes; the index is always read for every block, else only if there seems to be
// none.
func (p *pass) observeBlocks(ctx context.Context, every bool) (blocks, error) {
	if err := p.identify(ctx); err != nil {
		return blocks{}, err
	}
	listing, err := p.config.Ledgers.List(ctx)
	if err != nil {
		return blocks{}, err
	}
	seen := blocks{records: p.seen.BoundedAll(listing.Records), brought: listing.BroughtForNodes,
		shared: listing.Shared}
	seen.Account = ipblock.Account{Now: p.config.Now(), Network: p.config.Network.Named}
	if last, found := seen.records.Last(true); found {
		seen.Purchase = &last.Purchase
	}
	found, err := p.config.Account.Find(ctx, account.Search{
		Cluster: p.cluster(), IDs: slices.Concat(recordedIDs(seen.records), recordedIDs(seen.brought)),
		Wanted: p.owner().Owns,
		Enough: func(sightings []network.Sighting) bool {
			return !every && slices.ContainsFunc(sightings, p.isReadable)
		},
		ListAfter: p.now, After: p.now,
	})
	if err != nil {
		return blocks{}, err
	}
	seen.Sightings = found.Wanted
	seen.all = found.All()
	for _, s := range found.Wanted {
		switch {
		case p.isReadable(s):
			seen.nodes = append(seen.nodes, s)
		case p.owner().Owns(s.Block):
			seen.doubtful = true
		}
	}
	if seen.Networks, err = p.networks(ctx, seen.nodes); err != nil {
		return blocks{}, err
	}
	seen.Unseen = found.Unseen
	if _, unseen := seen.BoughtUnseen(); unseen || seen.recordLost(p.network) {
		seen.doubtful = true
	}
	p.slots = p.slots.Next(seen.Account, p.cluster(), seen.all)
	return seen, nil
}

// isReadable reports whether a block was bought for the nodes and can be read by its ID.
func (p *pass) isReadable(s network.Sighting) bool { return !s.Hidden && p.owner().Owns(s.Block) }

// networks returns the configured network and those that one of the blocks is assigned to, if they can be read.
func (p *pass) networks(ctx context.Context, bought []network.Sighting) (map[string]network.Network, error) {
	networks := map[string]network.Network{p.network.ID: p.network}
	for _, s := range bought {
		id := s.Block.ResourceID
		if _, known := networks[id]; known || id == "" || s.Block.ResourceType == "server" {
			continue
		}
		network, err := p.config.Account.Network(ctx, id, p.now)
		switch {
		case err == nil:
			networks[id] = network
		case !pnap.IsInaccessible(err):
			return nil, err
		}
	}
	return networks, nil
}

// cluster returns the UID of the namespace kube-system, which identify has read.
func (m *Manager) cluster() string { return string(m.namespace.UID) }

// identify reads the identity of the cluster once.
func (m *Manager) identify(ctx context.Context) error {
	if m.namespace != nil {
		return nil
	}
	namespace, err := account.ReadCluster(ctx, m.config.Kube)
	m.namespace = namespace
	return err
}

// recordedIDs are the IDs of the blocks that are recorded for the nodes.
func recordedIDs(records ipblock.Records) []string {
	var ids []string
	for _, r := range records {
		if r.Nodes && r.BlockID != "" {
			ids = append(ids, r.BlockID)
		}
	}
	return ids
}

// adopt records the block that is kept, to find it by its ID. A purchase whose block may still appear stays.
func (p *pass) adopt(ctx context.Context, seen blocks, b network.Block) error {
	if seen.adopts(b) {
		return allocation.ForNodes(p.config.Ledgers.Objects(), p.config.Network.Name, seen.records).Answer(ctx, b.ID)
	}
	return p.forgetRecords(ctx, seen)
}

// adopts reports whether to record the block.
func (b blocks) adopts(kept network.Block) bool {
	return !b.records.Names(kept.ID) && (!b.PurchaseOpen() || b.shows(kept))
}

// forgetRecords removes the records of which there is certainly no block.
func (p *pass) forgetRecords(ctx context.Context, seen blocks) error {
	if seen.doubtful || seen.PurchaseOpen() {
		return nil
	}
	for _, r := range seen.records {
		readable := slices.ContainsFunc(seen.nodes, func(s network.Sighting) bool { return s.Block.ID == r.BlockID })
		if !r.Nodes || r.Allocated || readable || seen.Exists(r.BlockID) {
			continue
		}
		if err := allocation.Remove(ctx, p.config.Ledgers.Objects(), r); err != nil {
			return err
		}
	}
	return nil
}

// shows reports whether the block of the last purchase is this one, or another one that can be read.
func (b blocks) shows(kept network.Block) bool {
	return b.Purchase.Shows(kept) ||
		slices.ContainsFunc(b.nodes, func(s network.Sighting) bool { return s.Block.ID == b.recorded() })
}

package membership

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/allocation"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
)

// address returns an address of a node block for the server, the one that it already holds if any. ok is false when
// the server has to wait; the reason is recorded on the Node if a user must act. Without addresses it is the zero Addr.
func (p *pass) address(ctx context.Context, serverID string, node *corev1.Node) (_ netip.Addr, ok bool, err error) {
	if p.config.Network.WithoutAddress {
		return netip.Addr{}, true, nil
	}
	if p.sources == nil {
		if p.sources, err = p.findSources(ctx); err != nil {
			return netip.Addr{}, false, err
		}
	}
	holder := ipblock.Holder{Name: serverID}
	ask := ipblock.Ask{Now: p.config.Now(), InUse: p.inUse}
	chosen := choose(p.sources, holder, ask)
	if err := p.prepare(ctx, chosen); err != nil {
		return netip.Addr{}, false, err
	}
	if chosen.usable {
		return p.allocate(ctx, chosen, holder, ask, node)
	}
	if chosen.reason != "" {
		eventType := corev1.EventTypeWarning
		if chosen.reason == ReasonDryRun {
			eventType = corev1.EventTypeNormal
		}
		p.record(node, eventType, chosen.reason, chosen.text)
		p.backOff(serverID)
	}
	return netip.Addr{}, false, nil
}

// backOff lets a server wait before its membership is changed again.
func (m *Manager) backOff(serverID string) {
	m.backoffs[serverID] = m.config.Now().Add(waitPause)
}

// allocate allocates an address in the ledger of a source and saves it.
func (p *pass) allocate(
	ctx context.Context, from *source, holder ipblock.Holder, ask ipblock.Ask, node *corev1.Node,
) (netip.Addr, bool, error) {
	next, grant, err := from.ledger.Expire(nil, ask.Now).Take(holder, ask)
	switch {
	case errors.Is(err, ipblock.ErrQuarantined):
		klog.FromContext(ctx).V(2).Info("Free addresses of the node block are in quarantine", "block", from.block.ID,
			"until", from.ledger.QuarantineEnds())
		p.backOff(holder.Name)
		return netip.Addr{}, false, nil
	case errors.Is(err, ipblock.ErrFull), errors.Is(err, ipblock.ErrClosed):
		p.record(node, corev1.EventTypeWarning, ReasonNodeBlockFull, fmt.Sprintf(
			"IP block %s (%s) has no address left for this node: bring a further block with an IPBlock of source "+
				"Brought and purpose Nodes, use no addresses with --node-address=none, or select fewer nodes with "+
				"--service-node-selector", from.block.ID, from.block.CIDR))
		p.backOff(holder.Name)
		return netip.Addr{}, false, nil
	case err != nil:
		return netip.Addr{}, false, err
	}
	if old, found := from.ledger.AddressOf(holder); found && old == grant.Address {
		return old, true, nil
	}
	if from.ledger, err = p.config.Ledgers.Save(ctx, next); err != nil {
		return netip.Addr{}, false, err
	}
	return grant.Address, true, nil
}

// inUse reports addresses that servers have in the network without an entry in the ledger.
func (p *pass) inUse(address netip.Addr) bool {
	if slices.ContainsFunc(p.network.Members, func(m network.Member) bool { return slices.Contains(m.IPs, address) }) {
		return true
	}
	for _, server := range p.servers {
		if entry, member := membershipOf(server, p.network.ID); member && slices.Contains(entry.IPs, address) {
			return true
		}
	}
	return false
}

// free releases an address in the ledger of its block.
func (p *pass) free(ctx context.Context, serverID string, address netip.Addr, unused bool) error {
	seen, err := p.observeBlocks(ctx, true)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(seen.all, func(b network.Block) bool { return b.CIDR.IsValid() && b.CIDR.Contains(address) })
	if unseen := p.unseenAt(address); at < 0 && unseen != "" {
		return fmt.Errorf("address %s of server %s stays allocated until the phoenixNAP API shows IP block %s, which "+
			"is in public network %s", address, serverID, unseen, p.network.ID)
	}
	if at < 0 {
		return nil // the block no longer exists, so its ledger is obsolete
	}
	current, err := p.ledgerOf(ctx, seen.all[at])
	if err != nil {
		return err
	}
	holder := ipblock.Holder{Name: serverID}
	if _, assigned := current.AddressOf(holder); !assigned {
		return nil
	}
	next := current.Free(holder, p.config.Now())
	if unused {
		delete(next.Quarantined, address)
	}
	if next, err = p.config.Ledgers.Save(ctx, next); err != nil {
		return err
	}
	for i := range p.sources {
		if p.sources[i].block.ID == next.BlockID {
			p.sources[i].ledger = next
		}
	}
	return nil
}

// unseenAt returns the ID of the block of the network that has the address; empty when there is none.
func (p *pass) unseenAt(address netip.Addr) string {
	for _, b := range p.network.Blocks {
		if b.CIDR.IsValid() && b.CIDR.Contains(address) {
			return b.ID
		}
	}
	return ""
}

// nodeBlockSize is the size of a node block that is bought: 13 addresses.
const nodeBlockSize = ipblock.LargestSize

func (m *Manager) owner() network.Owner {
	return network.NodesOwner(m.cluster(), m.config.Network.Name)
}

// bought uses the block that was bought for the nodes, and buys one if there is none.
func (p *pass) bought(ctx context.Context, seen blocks) (source, error) {
	kept, _, found := ipblock.ChooseNodeBlock(seen.nodes, seen.recorded(), p.used, seen.Account)
	switch {
	case !found && seen.doubtful:
		return source{}, nil
	case !found:
		return p.buy(ctx, seen)
	}
	if err := p.adopt(ctx, seen, kept.Block); err != nil {
		return source{}, err
	}
	current, err := p.ledgerOf(ctx, kept.Block)
	if err != nil {
		return source{}, err
	}
	if current.Closed { // its release had begun, and it is needed again
		if current, err = p.config.Ledgers.Save(ctx, current.Reopen()); err != nil {
			return source{}, err
		}
	}
	step := ipblock.EnsureBlock(kept, seen.Account)
	if step.Reason == ipblock.NetworkFull {
		step.Detail += p.taken(seen.all)
		if current.Empty() && !p.used(kept.Block) {
			step = p.slots.ReleaseUnassigned(step, seen.Now)
		}
	}
	return p.follow(ctx, step, current)
}

// taken says who holds the slots of the network.
func (p *pass) taken(known []network.Block) string {
	return "; the slots are held: " + p.network.Taken(p.cluster(), known)
}

func (p *pass) ledgerOf(ctx context.Context, block network.Block) (ipblock.Ledger, error) {
	current, err := p.config.Ledgers.Get(ctx, block.ID)
	if errors.Is(err, allocation.ErrNotFound) {
		created := ipblock.NewLedger(block.ID, block.CIDR)
		created.Nodes = true
		created.Brought = !p.owner().Owns(block)
		return created, nil
	}
	current, _ = current.Bound(p.config.Now())
	return current, err
}

// follow takes the next step towards an assigned block. The block is usable once no step is left.
func (p *pass) follow(ctx context.Context, s ipblock.Step, current ipblock.Ledger) (source, error) {
	switch s.Action {
	case ipblock.Done:
		return source{block: s.Block, ledger: current, usable: true}, nil
	case ipblock.Refuse:
		return unavailable("the block for the nodes' own addresses cannot be used: %s", s.Detail), nil
	case ipblock.Assign, ipblock.Unassign, ipblock.Delete, ipblock.Wait, ipblock.Buy:
	}
	err := p.apply(ctx, s)
	switch {
	case err == nil, pnap.IsConflict(err):
		return source{}, nil
	case pnap.IsDryRun(err):
		return source{reason: ReasonDryRun, text: err.Error()}, nil
	case pnap.IsRefused(err):
		return unavailable("the phoenixNAP API rejected the request to %s IP block %s (%s): %s", s.Action, s.Block.ID,
			s.Block.CIDR, pnap.Explain(err)), nil
	default:
		return source{}, err
	}
}

// apply changes the account according to the step. It returns errors of the API.
func (p *pass) apply(ctx context.Context, s ipblock.Step) error {
	var err error
	switch s.Action {
	case ipblock.Assign:
		err = p.config.Cloud.AssignBlock(ctx, s.Network, s.Block.ID)
	case ipblock.Unassign:
		err = p.config.Cloud.UnassignBlock(ctx, s.Network, s.Block.ID)
	case ipblock.Delete:
		err = p.config.Cloud.DeleteBlock(ctx, s.Block.ID)
	case ipblock.Wait, ipblock.Buy, ipblock.Refuse, ipblock.Done:
		return nil
	}
	p.config.Account.Invalidate()
	if err == nil {
		klog.FromContext(ctx).Info("Changing a block of the nodes' own addresses", "action", s.Action, "block",
			s.Block.ID, "cidr", s.Block.CIDR, "network", s.Network)
	}
	return err
}

// buy buys a node block if one is due. Blocks of the cluster count whether the list shows them or not.
func (p *pass) buy(ctx context.Context, seen blocks) (source, error) {
	desired := ipblock.Request{
		Location: p.network.Location, LocationSource: "the public network", Size: nodeBlockSize,
	}
	account := seen.Account
	account.Slots = ipblock.Slots{MaxBlocks: p.config.Network.MaxBlocks}
	for _, block := range seen.all {
		if network.OfCluster(block, p.cluster()) {
			account.Bought++
			account.Coming = account.Coming || p.slots.Coming(block, seen.Now)
			if p.network.Lacks(block) {
				account.Reserved++
			}
		}
	}
	due := ipblock.Extend(p.owner(), desired, account)
	switch due.Action {
	case ipblock.Buy:
	case ipblock.Refuse:
		if due.Reason == ipblock.NetworkFull {
			due.Detail += p.taken(seen.all)
		}
		return unavailable("no block for the nodes' own addresses can be bought: %s", due.Detail), nil
	case ipblock.Wait, ipblock.Assign, ipblock.Unassign, ipblock.Delete, ipblock.Done:
		return source{}, nil
	}
	_, err := p.config.Buyer.Buy(ctx, purchase.Order{
		Owner: p.owner(), Location: desired.Location, LocationSource: desired.LocationSource, Size: nodeBlockSize,
	}, allocation.ForNodes(p.config.Ledgers.Objects(), p.config.Network.Name, seen.records))
	p.config.Account.Invalidate()
	return purchaseResult(err)
}

// purchaseResult converts the result of a purchase attempt to a reason for the Nodes that wait.
func purchaseResult(err error) (source, error) {
	var pause *purchase.Pause
	var refused *purchase.Refused
	switch {
	case err == nil, errors.As(err, &pause), errors.Is(err, allocation.ErrConflict):
		return source{}, nil
	case errors.As(err, &refused):
		return unavailable("%s", refused.Detail), nil
	case pnap.IsDryRun(err):
		return source{reason: ReasonDryRun, text: err.Error()}, nil
	default:
		return source{}, err
	}
}

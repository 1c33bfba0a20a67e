package membership

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
)

const (
	auditEvery = 10 * time.Minute // how often to search for blocks that nodes no longer need
	// repeatEvery is how often a block that cannot be released is reported: events expire after an hour by default.
	repeatEvery = time.Hour
)

// report is the last report on a block, and its time.
type report struct {
	text string
	at   time.Time
}

// isIdle reports whether no Node has been wanted for a while, and the controller manages no membership.
func (m *Manager) isIdle(o observed) bool {
	return len(o.wanted)+len(o.memberRecord.members) == 0 && !m.idle.IsZero() && o.now.Sub(m.idle) >= leaveAfter
}

// needed returns how many bought blocks nodes need, where people bring some.
func (m *Manager) needed(idle bool, brought ipblock.Records) int {
	if idle || len(brought) > 0 || m.config.Network.WithoutAddress {
		return 0
	}
	return 1
}

// auditDue reports whether there may be more bought blocks than nodes need. This is checked rarely, and when nodes have
// just stopped needing any block; the only consequence is a check with live data.
func (m *Manager) auditDue(ctx context.Context, o observed) (bool, error) {
	idle := m.isIdle(o)
	began := idle && !m.wasIdle
	m.wasIdle = idle
	if o.now.Before(m.auditAt) && !began {
		return false, nil
	}
	m.auditAt = o.now.Add(period)
	listing, err := m.config.Ledgers.List(ctx)
	if err != nil {
		return false, err
	}
	candidates, err := m.candidates(ctx, listing.Records)
	if err != nil {
		return false, err
	}
	if len(candidates) > m.needed(idle, listing.BroughtForNodes) {
		return true, nil
	}
	m.auditAt = o.now.Add(auditEvery)
	return false, nil
}

// candidates returns the blocks that, by the list, the index of the tag or the recorded purchase, are for the nodes.
func (m *Manager) candidates(ctx context.Context, records ipblock.Records) (map[string]bool, error) {
	if err := m.identify(ctx); err != nil {
		return nil, err
	}
	found, err := m.config.Account.Find(ctx, account.Search{Cluster: m.cluster(), Wanted: m.owner().Owns,
		Trusted: func(network.Block) bool { return true }})
	if err != nil {
		return nil, err
	}
	ids := map[string]bool{}
	for _, s := range found.Wanted {
		ids[s.Block.ID] = true
	}
	for _, r := range records {
		if r.Nodes {
			ids[cmp.Or(r.BlockID, r.Name)] = true // a purchase without an answer may have bought one
		}
	}
	return ids, nil
}

// audit takes the next step to release bought blocks that nodes do not need, and records when to check again.
func (p *pass) audit(ctx context.Context, idle bool) error {
	seen, err := p.observeBlocks(ctx, true)
	if err != nil {
		return err
	}
	if seen.PurchaseOpen() {
		return nil // another block may still appear
	}
	kept, surplus, found := ipblock.ChooseNodeBlock(seen.nodes, seen.recorded(), p.used, seen.Account)
	switch {
	case !found:
		return p.forgetRecords(ctx, seen)
	case found && p.needed(idle, seen.brought) == 0:
		surplus = append(surplus, kept)
	case found:
		if err := p.adopt(ctx, seen, kept.Block); err != nil {
			return err
		}
	}
	return p.releaseSurplus(ctx, seen, surplus, idle)
}

// releaseSurplus takes one step for the first of the blocks that allows one; a stuck block does not delay the others.
func (p *pass) releaseSurplus(ctx context.Context, seen blocks, surplus []network.Sighting, idle bool) error {
	surplus = slices.DeleteFunc(surplus, func(s network.Sighting) bool { return seen.brought.Names(s.Block.ID) })
	p.countSurplus(surplus)
	next := auditEvery
	for _, s := range surplus {
		server, address, used := p.user(s.Block)
		left := leaveAfter - p.now.Sub(p.surplus[s.Block.ID])
		switch {
		case network.Retained(s.Block):
		case used:
			p.reportOnce(s.Block, corev1.EventTypeWarning, ReasonNodeBlockSurplus,
				p.inUseText(s.Block, server, address.String()))
		case !idle && left > 0:
			next = min(next, left)
		default:
			again, err := p.releaseBlock(ctx, seen, s)
			if err != nil {
				return err
			}
			next = min(next, again)
			if again == soon {
				p.auditAt = p.now.Add(soon)
				return nil
			}
		}
	}
	p.auditAt = p.now.Add(next)
	return nil
}

// countSurplus records since when each block is not needed.
func (m *Manager) countSurplus(surplus []network.Sighting) {
	now := m.config.Now()
	since := map[string]time.Time{}
	for _, s := range surplus {
		since[s.Block.ID] = now
		if known, ok := m.surplus[s.Block.ID]; ok {
			since[s.Block.ID] = known
		}
	}
	m.surplus = since
	maps.DeleteFunc(m.reports, func(id string, _ report) bool { return since[id].IsZero() })
}

// releaseBlock takes the next step for a block without users: the ledger is closed first, and deleted last.
func (p *pass) releaseBlock(ctx context.Context, seen blocks, s network.Sighting) (again time.Duration, err error) {
	if !s.Block.CIDR.IsValid() {
		return period, nil // it is being created
	}
	current, err := p.ledgerOf(ctx, s.Block)
	if err != nil {
		return 0, err
	}
	if remaining, err := p.quarantine(ctx, current); err != nil || remaining > 0 {
		return max(remaining, period), err
	}
	if !current.Closed {
		if current, err = p.config.Ledgers.Save(ctx, current.Close()); err != nil {
			return 0, err
		}
	}
	step := ipblock.ReleaseBlock(s, seen.Account)
	klog.FromContext(ctx).V(2).Info("Releasing a block of node addresses", "block", s.Block.ID, "step", step.Action,
		"reason", step.Reason)
	switch step.Action {
	case ipblock.Unassign, ipblock.Delete:
		return p.release(ctx, step, current)
	case ipblock.Refuse:
		p.reportOnce(s.Block, corev1.EventTypeWarning, ReasonNodeBlockSurplus, step.Detail)
		return auditEvery, nil
	case ipblock.Wait, ipblock.Buy, ipblock.Assign, ipblock.Done:
	}
	return period, nil
}

// quarantine returns how long addresses of the ledger are still in quarantine. Addresses of servers that do not have
// them, because a process ended between two writes, enter quarantine.
func (p *pass) quarantine(ctx context.Context, l ipblock.Ledger) (time.Duration, error) {
	now := p.config.Now()
	next := l.Expire(nil, now)
	for _, holder := range l.Held {
		next = next.Free(holder, now)
	}
	if len(next.Quarantined) == 0 {
		return 0, nil
	}
	if !l.Empty() {
		if _, err := p.config.Ledgers.Save(ctx, next); err != nil {
			return 0, err
		}
	}
	return next.QuarantineEnds().Sub(now), nil
}

// release changes the account. A rejected request is reported and retried later.
func (p *pass) release(ctx context.Context, step ipblock.Step, current ipblock.Ledger) (again time.Duration,
	err error) {
	err = p.apply(ctx, step)
	switch {
	case err == nil && step.Action == ipblock.Delete:
		p.config.Events.Event(p.namespace, corev1.EventTypeNormal, ReasonNodeBlockReleased,
			fmt.Sprintf("IP block %s (%s), which was bought for the nodes and is not needed, was deleted",
				step.Block.ID, step.Block.CIDR))
		return soon, p.config.Ledgers.Delete(ctx, current)
	case err == nil:
		return soon, nil
	case pnap.IsDryRun(err):
		p.reportOnce(step.Block, corev1.EventTypeNormal, ReasonDryRun, err.Error())
		return auditEvery, nil
	case pnap.IsConflict(err), pnap.IsInaccessible(err):
		return period, nil // the network is changing, or the block was deleted in the meantime
	case pnap.IsRefused(err):
		p.reportOnce(step.Block, corev1.EventTypeWarning, ReasonNodeBlockSurplus,
			fmt.Sprintf("the phoenixNAP API rejected the request to %s IP block %s (%s), which nodes do not need: %s",
				step.Action, step.Block.ID, step.Block.CIDR, pnap.Explain(err)))
		return auditEvery, nil
	default:
		return 0, err
	}
}

// inUseText explains why a block that nodes do not need is kept. Only a server that the controller joined leaves by
// itself.
func (p *pass) inUseText(b network.Block, server, address string) string {
	holder := "server " + server
	if node := p.nodeOf(server); node != nil {
		holder = fmt.Sprintf("node %s (server %s)", node.Name, server)
	}
	remedy := "in the phoenixNAP portal, remove the server from the network, or give it another address there"
	if _, ours := p.memberRecord.members[server]; ours {
		remedy = "exclude the Node with --service-node-selector until it has left the network"
	}
	return fmt.Sprintf("IP block %s (%s) was bought for the nodes and is not needed, but paid for: %s uses its "+
		"address %s. It is deleted when no server uses it: %s", b.ID, b.CIDR, holder, address, remedy)
}

// reportOnce records an event about a block on the Namespace kube-system, and repeats it after a while.
func (m *Manager) reportOnce(b network.Block, kind, reason, text string) {
	now := m.config.Now()
	if last := m.reports[b.ID]; last.text == text && now.Sub(last.at) < repeatEvery {
		return
	}
	m.reports[b.ID] = report{text: text, at: now}
	m.config.Events.Event(m.namespace, kind, reason, text)
}

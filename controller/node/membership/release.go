package membership

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

const (
	// auditEvery is how often blocks that nodes need no more are looked for.
	auditEvery = 10 * time.Minute
	// repeatEvery is how often a block is reported again that cannot be given back: the API server forgets events
	// after an hour by default.
	repeatEvery = time.Hour
)

// report is what was reported of a block, and when.
type report struct {
	text string
	at   time.Time
}

// isIdle reports whether for a while no Node has been wanted, and no server is a member by our hand.
func (m *Manager) isIdle(p picture) bool {
	return len(p.wanted)+len(p.roster.members) == 0 && !m.idle.IsZero() && p.now.Sub(m.idle) >= leaveAfter
}

// needed is how many bought blocks nodes need.
func (m *Manager) needed(idle bool) int {
	if idle || m.config.NodeIPBlock != "" || m.config.WithoutAddress {
		return 0
	}
	return 1
}

// auditDue reports whether there may be more bought blocks than nodes need. That is looked up seldom, and when nodes
// have just ceased to need any; nothing is concluded from it but that a closer look is due.
func (m *Manager) auditDue(ctx context.Context, p picture) (bool, error) {
	idle := m.isIdle(p)
	began := idle && !m.wasIdle
	m.wasIdle = idle
	if p.now.Before(m.auditAt) && !began {
		return false, nil
	}
	m.auditAt = p.now.Add(period)
	candidates, err := m.candidates(ctx)
	if err != nil {
		return false, err
	}
	if len(candidates) > m.needed(idle) {
		return true, nil
	}
	m.auditAt = p.now.Add(auditEvery)
	return false, nil
}

// candidates are the IDs of blocks that the list, the index of the tag or the recorded purchase says to be bought for
// the nodes.
func (m *Manager) candidates(ctx context.Context) (map[string]bool, error) {
	if err := m.identify(ctx); err != nil {
		return nil, err
	}
	listing, err := m.config.Account.Blocks(ctx, time.Time{})
	if err != nil {
		return nil, err
	}
	ids := map[string]bool{}
	for _, b := range listing.Blocks {
		if m.owner().Owns(b) {
			ids[b.ID] = true
		}
	}
	tagged, err := m.config.Account.Tagged(ctx, contract.TagNodes, time.Time{})
	if err != nil {
		return nil, err
	}
	for id, cluster := range tagged {
		if cluster == m.cluster {
			ids[id] = true
		}
	}
	recorded, err := purchase.NewConfigMap(m.config.Kube, purchase.NodesName).Load(ctx)
	if err == nil && recorded != nil && recorded.BlockID != "" {
		ids[recorded.BlockID] = true
	}
	return ids, err
}

// audit takes the next step to give back bought blocks that nodes do not need, and notes when to look again.
func (p *pass) audit(ctx context.Context, idle bool) error {
	seen, err := p.sight(ctx, true)
	if err != nil {
		return err
	}
	if seen.unreadable != nil {
		return seen.unreadable
	}
	if seen.PurchaseOpen() {
		return nil // another block may show yet
	}
	kept, surplus, found := plan.ChooseNodeBlock(seen.nodes, seen.recorded(), p.used, seen.View)
	switch {
	case !found && seen.Purchase != nil && !seen.doubtful:
		return seen.record.Save(ctx, nil)
	case found && p.needed(idle) == 0:
		surplus = append(surplus, kept)
	case found:
		if err := p.adopt(ctx, seen, kept.Block); err != nil {
			return err
		}
	}
	return p.giveBack(ctx, seen, surplus, idle)
}

// giveBack takes one step for the first of the blocks that allows one; one that is stuck does not hold up another.
func (p *pass) giveBack(ctx context.Context, seen blocks, surplus []plan.Sighting, idle bool) error {
	p.countSurplus(surplus)
	next := auditEvery
	for _, s := range surplus {
		server, address, used := p.user(s.Block)
		left := leaveAfter - p.now.Sub(p.surplus[s.Block.ID])
		switch {
		case plan.Retained(s.Block):
		case used:
			p.reportOnce(s.Block, corev1.EventTypeWarning, ReasonNodeBlockSurplus, p.inUseText(s.Block, server, address.String()))
		case !idle && left > 0:
			next = min(next, left)
		default:
			again, err := p.giveBackOne(ctx, seen, s)
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

// countSurplus remembers since when each block is too many.
func (m *Manager) countSurplus(surplus []plan.Sighting) {
	now := m.config.Now()
	since := map[string]time.Time{}
	for _, s := range surplus {
		since[s.Block.ID] = now
		if known, ok := m.surplus[s.Block.ID]; ok {
			since[s.Block.ID] = known
		}
	}
	m.surplus = since
	maps.DeleteFunc(m.reports, func(id string, _ report) bool { _, stays := since[id]; return !stays })
}

// giveBackOne takes the next step for a block of which no server uses an address. The ledger closes first, and goes
// last. It returns when to look again.
func (p *pass) giveBackOne(ctx context.Context, seen blocks, s plan.Sighting) (again time.Duration, err error) {
	if !s.Block.CIDR.IsValid() {
		return period, nil // it is being created
	}
	current, err := p.ledgerOf(ctx, s.Block)
	if err != nil {
		return 0, err
	}
	if rests, err := p.quarantine(ctx, current); err != nil || rests > 0 {
		return max(rests, period), err
	}
	if !current.Closed {
		if current, err = p.config.Ledgers.Save(ctx, current.Close()); err != nil {
			return 0, err
		}
	}
	step := plan.ReleaseBlock(s, seen.View)
	klog.FromContext(ctx).V(2).Info("Giving back a block of the nodes' own addresses", "block", s.Block.ID, "step", step.Action, "reason", step.Reason)
	switch step.Action {
	case plan.Unassign, plan.Delete:
		return p.release(ctx, step, current)
	case plan.Refuse:
		p.reportOnce(s.Block, corev1.EventTypeWarning, ReasonNodeBlockSurplus, step.Detail)
		return auditEvery, nil
	case plan.Wait, plan.Buy, plan.Assign, plan.Done:
	}
	return period, nil
}

// quarantine returns how long addresses of the ledger rest yet. What is held for servers that do not have it, since a
// process ended between two writes, begins to rest.
func (p *pass) quarantine(ctx context.Context, l plan.Ledger) (time.Duration, error) {
	now := p.config.Now()
	settled := l.Settle(nil, now)
	for _, holder := range l.Held {
		settled = settled.Free(holder, now)
	}
	if len(settled.Resting) == 0 {
		return 0, nil
	}
	if !l.Empty() {
		if _, err := p.config.Ledgers.Save(ctx, settled); err != nil {
			return 0, err
		}
	}
	return settled.RestEnds().Sub(now), nil
}

// release changes the account. What the API refuses is reported and tried again later.
func (p *pass) release(ctx context.Context, step plan.Step, current plan.Ledger) (again time.Duration, err error) {
	err = p.apply(ctx, step)
	switch {
	case err == nil && step.Action == plan.Delete:
		p.config.Events.Event(p.namespace, corev1.EventTypeNormal, ReasonNodeBlockReleased,
			fmt.Sprintf("IP block %s (%s), which was bought for the nodes and is not needed, was deleted", step.Block.ID, step.Block.CIDR))
		return soon, p.config.Ledgers.Delete(ctx, current)
	case err == nil:
		return soon, nil
	case pnap.IsDryRun(err):
		p.reportOnce(step.Block, corev1.EventTypeNormal, ReasonDryRun, err.Error())
		return auditEvery, nil
	case pnap.IsConflict(err), pnap.IsInaccessible(err):
		return period, nil // the network is changing, or the block has gone meanwhile
	case pnap.IsRefused(err):
		p.reportOnce(step.Block, corev1.EventTypeWarning, ReasonNodeBlockSurplus,
			fmt.Sprintf("the phoenixNAP API refused to %s IP block %s (%s), which nodes do not need: %v", step.Action, step.Block.ID, step.Block.CIDR, err))
		return auditEvery, nil
	default:
		return 0, err
	}
}

// inUseText says why a block is kept that nodes do not need.
func (p *pass) inUseText(b plan.Block, server, address string) string {
	holder := "server " + server
	if node := p.nodeOf(server); node != nil {
		holder = fmt.Sprintf("node %s (server %s)", node.Name, server)
	}
	return fmt.Sprintf("IP block %s (%s) was bought for the nodes and is not needed, but paid for: %s uses address %s of it. "+
		"It is deleted when no server uses it: exclude the Node with --service-node-selector until it has left the network, or give the server another address",
		b.ID, b.CIDR, holder, address)
}

// reportOnce records an event of a block on the Namespace kube-system, and again after a while.
func (m *Manager) reportOnce(b plan.Block, kind, reason, text string) {
	now := m.config.Now()
	if last := m.reports[b.ID]; last.text == text && now.Sub(last.at) < repeatEvery {
		return
	}
	m.reports[b.ID] = report{text: text, at: now}
	m.config.Events.Event(m.namespace, kind, reason, text)
}

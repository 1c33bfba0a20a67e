package orphans

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/account"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
)

const stepPause = 5 * time.Second // the delay of the next pass while a block is being released

// collect takes one step to release a block. It checks all reasons again first, with the account locked.
func (c *Collector) collect(ctx context.Context, s *suspicion) (again time.Duration, err error) {
	done, err := c.config.Account.Lock(ctx)
	if err != nil {
		return period, err
	}
	defer done()
	view, found, err := c.readLive(ctx, s)
	if err != nil || !found {
		return period, err
	}
	step := ipblock.ReleaseBlock(network.Sighting{Block: s.block}, view)
	if step.Action != ipblock.Unassign && step.Action != ipblock.Delete {
		if step.Action == ipblock.Refuse {
			if s.problem != step.Detail {
				s.problem = step.Detail
				c.record(corev1.EventTypeWarning, eventStuck, step.Detail)
			}
			s.backoff = s.backoff.After(c.config.Now())
		}
		return period, nil
	}
	return c.act(ctx, s, step)
}

// readLive reads the block, its network and the cluster live; false when the block must not be released any more.
func (c *Collector) readLive(ctx context.Context, s *suspicion) (ipblock.Account, bool, error) {
	cluster, err := c.clusterUID(ctx)
	if err != nil {
		return ipblock.Account{}, false, err
	}
	asked := c.config.Now()
	if _, err := c.config.Account.Prove(ctx, c.config.Network.ID, asked); err != nil {
		return ipblock.Account{}, false, err
	}
	block, err := c.config.Cloud.Block(ctx, s.block.ID)
	if pnap.IsInaccessible(err) {
		c.config.Account.Invalidate() // so that the next pass does not use an old list
		return ipblock.Account{}, false, nil
	}
	if err != nil {
		return ipblock.Account{}, false, err
	}
	f, err := c.live(ctx, cluster)
	if err != nil {
		return ipblock.Account{}, false, err
	}
	if !network.OfCluster(block, cluster) || classify(block, f) != s.state {
		klog.FromContext(ctx).Info("An IP block is in use again", "block", block.ID, "cidr", block.CIDR)
		delete(c.suspicions, block.ID)
		return ipblock.Account{}, false, nil
	}
	s.block = block
	networks, err := c.networks(ctx, block, asked)
	view := ipblock.Account{Now: asked, Network: c.config.Network, Networks: networks,
		TakenUp: slices.Concat(f.brought, f.broughtForNodes.IDs())}
	return view, err == nil, err
}

// networks reads the network that the block is assigned to; the configured one when the block names none.
func (c *Collector) networks(
	ctx context.Context, block network.Block, after time.Time,
) (map[string]network.Network, error) {
	id := cmp.Or(block.ResourceID, c.config.Network.ID)
	if id == "" || block.Status == network.Unassigned {
		return nil, nil
	}
	public, err := c.config.Account.Network(ctx, id, after)
	if pnap.IsInaccessible(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return map[string]network.Network{id: public}, nil
}

// act changes the account.
func (c *Collector) act(ctx context.Context, s *suspicion, step ipblock.Step) (again time.Duration, err error) {
	logger := klog.FromContext(ctx).WithValues("block", s.block.ID, "cidr", s.block.CIDR, "standing", s.state)
	if step.Action == ipblock.Delete {
		s.deletion = true
		logger.Info("Deleting an unused IP block")
		err = c.config.Cloud.DeleteBlock(ctx, s.block.ID)
	} else {
		logger.Info("Unassigning an unused IP block", "network", step.Network)
		err = c.config.Cloud.UnassignBlock(ctx, step.Network, s.block.ID)
	}
	c.config.Account.Invalidate()
	inError := s.block.Status == network.ErrorAssigning || s.block.Status == network.ErrorUnassigning
	switch {
	case pnap.IsDryRun(err):
		s.deletion = false
		s.backoff = account.Backoff{Until: c.config.Now().Add(repeatAfter)}
		c.record(corev1.EventTypeNormal, eventDryRun, err.Error())
		return period, nil
	case err != nil:
		s.backoff = s.backoff.After(c.config.Now())
		return period, fmt.Errorf("release IP block %s: %w", s.block.ID, err)
	case inError:
		s.backoff = s.backoff.After(c.config.Now())
	}
	return stepPause, nil
}

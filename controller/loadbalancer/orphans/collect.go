package orphans

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/cloud/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
)

const (
	// stepPause is how soon to look again while a block is being given back.
	stepPause = 5 * time.Second
	// firstRest and lastRest bound the rests after steps that did not end well.
	firstRest = time.Minute
	lastRest  = 16 * time.Minute
)

// rest is how long a block is not touched after a step that failed; it doubles.
type rest struct {
	until  time.Time
	length time.Duration
}

func (r rest) after(now time.Time) rest {
	length := min(max(2*r.length, firstRest), lastRest)
	return rest{until: now.Add(length), length: length}
}

// collect takes one step towards giving a block back. All reasons for it are checked again first, with the
// account locked against all other changes: a Service that appeared meanwhile saves its block.
func (c *Collector) collect(ctx context.Context, s *suspicion) (again time.Duration, err error) {
	done, err := c.config.Account.Lock(ctx)
	if err != nil {
		return c.config.Interval, err
	}
	defer done()
	view, found, err := c.lookAgain(ctx, s)
	if err != nil || !found {
		return c.config.Interval, err
	}
	step := plan.ReleaseBlock(plan.Sighting{Block: s.block}, view)
	if step.Action != plan.Unassign && step.Action != plan.Delete {
		c.postpone(s, step)
		return c.config.Interval, nil
	}
	return c.act(ctx, s, step)
}

// lookAgain reads the block, its network and the cluster as they are now; false says that the block is gone or is not
// to be collected any more.
func (c *Collector) lookAgain(ctx context.Context, s *suspicion) (plan.View, bool, error) {
	cluster, err := c.clusterUID(ctx)
	if err != nil {
		return plan.View{}, false, err
	}
	asked := c.config.Now()
	block, err := c.config.Cloud.Block(ctx, s.block.ID)
	if pnap.IsInaccessible(err) {
		c.config.Account.Invalidate() // so that the next look does not see it in an old list
		return plan.View{}, false, nil
	}
	if err != nil {
		return plan.View{}, false, err
	}
	f, err := c.live(ctx, cluster)
	if err != nil {
		return plan.View{}, false, err
	}
	if !plan.OfCluster(block, cluster) || judge(block, f) != s.standing {
		klog.FromContext(ctx).Info("An IP block is in use again", "block", block.ID, "cidr", block.CIDR)
		delete(c.suspicions, block.ID)
		return plan.View{}, false, nil
	}
	s.block = block
	networks, err := c.networks(ctx, block, asked)
	return plan.View{Now: asked, NetworkID: c.config.NetworkID, Networks: networks}, err == nil, err
}

// networks reads the network that holds the block and the configured one, which holds it when the block does not say.
func (c *Collector) networks(ctx context.Context, block plan.Block, after time.Time) (map[string]plan.Network, error) {
	id := block.ResourceID
	if id == "" {
		id = c.config.NetworkID
	}
	if id == "" || block.Status == plan.Unassigned {
		return nil, nil
	}
	network, err := c.config.Account.Network(ctx, id, after)
	if pnap.IsInaccessible(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return map[string]plan.Network{id: network}, nil
}

// postpone leaves a block for later that waits for something or needs a person.
func (c *Collector) postpone(s *suspicion, step plan.Step) {
	if step.Action == plan.Refuse {
		c.recordError(s, corev1.EventTypeWarning, eventStuck, step.Detail)
		s.rest = s.rest.after(c.config.Now())
	}
}

// act changes the account.
func (c *Collector) act(ctx context.Context, s *suspicion, step plan.Step) (again time.Duration, err error) {
	logger := klog.FromContext(ctx).WithValues("block", s.block.ID, "cidr", s.block.CIDR, "standing", s.standing)
	if step.Action == plan.Delete {
		s.deletion = true
		logger.Info("Deleting an unused IP block")
		err = c.config.Cloud.DeleteBlock(ctx, s.block.ID)
	} else {
		logger.Info("Unassigning an unused IP block", "network", step.Network)
		err = c.config.Cloud.UnassignBlock(ctx, step.Network, s.block.ID)
	}
	c.config.Account.Invalidate()
	inError := s.block.Status == plan.ErrorAssigning || s.block.Status == plan.ErrorUnassigning
	switch {
	case pnap.IsDryRun(err):
		s.deletion = false
		s.rest = rest{until: c.config.Now().Add(retell)}
		c.record(corev1.EventTypeNormal, eventDryRun, err.Error())
		return c.config.Interval, nil
	case err != nil:
		s.rest = s.rest.after(c.config.Now())
		return c.config.Interval, fmt.Errorf("give IP block %s back: %w", s.block.ID, err)
	case inError:
		s.rest = s.rest.after(c.config.Now())
	}
	return stepPause, nil
}

// recordError reports once what keeps a block from being released.
func (c *Collector) recordError(s *suspicion, eventType, reason, text string) {
	if s.problem != text {
		s.problem = text
		c.record(eventType, reason, text)
	}
}

func (c *Collector) collected(ctx context.Context, s *suspicion) {
	klog.FromContext(ctx).Info("Released an unused IP block", "block", s.block.ID, "cidr", s.block.CIDR, "standing",
		s.standing)
	c.config.Metrics.collected.Inc()
	c.record(corev1.EventTypeNormal, eventCollected,
		fmt.Sprintf("IP block %s (%s) was deleted: %s", s.block.ID, s.block.CIDR, accusation(s.standing, s.block)))
}

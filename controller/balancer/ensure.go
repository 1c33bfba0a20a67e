package balancer

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/ipblock"
)

// EnsureLoadBalancer takes the Service one step nearer to a published address: at most one change of
// the account, then the framework is asked to call again. It answers with the address only once the
// block is assigned and a node can carry its traffic.
func (b *Balancer) EnsureLoadBalancer(ctx context.Context, _ string, service *corev1.Service, _ []*corev1.Node) (*corev1.LoadBalancerStatus, error) {
	done, err := b.exclusive(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	status, err := b.ensure(ctx, service)
	if err != nil {
		return nil, b.pacing(err)
	}
	return status, nil
}

// ensuring is one Ensure: the live Service and what was seen of its blocks.
type ensuring struct {
	service  *corev1.Service
	owner    ipblock.Owner
	purchase *contract.Purchase
	seen     observation
	view     ipblock.View
	wish     ipblock.Wish
}

func (b *Balancer) ensure(ctx context.Context, service *corev1.Service) (*corev1.LoadBalancerStatus, error) {
	e, err := b.lookBeforeEnsuring(ctx, service)
	if err != nil {
		return nil, err
	}
	step := ipblock.Ensure(e.owner, e.wish, e.view)
	klog.FromContext(ctx).V(2).Info("Decided about a Service", "service", klog.KObj(service),
		"action", step.Action, "reason", step.Reason, "block", step.Block.ID)
	if e.service, err = b.markUnassigned(ctx, e.service, step); err != nil {
		return nil, err
	}
	switch step.Action {
	case ipblock.Done:
		return b.publish(ctx, e, step)
	case ipblock.Buy:
		return nil, b.buy(ctx, e)
	case ipblock.Refuse:
		return nil, b.refuse(ctx, e.service, step)
	case ipblock.Wait:
		return nil, b.wait(ctx, e.service, step.Reason)
	case ipblock.Assign, ipblock.Unassign, ipblock.Delete:
		if b.rests(step) {
			return nil, b.wait(ctx, e.service, reasonResting)
		}
		reason, err := b.act(ctx, e.service, step)
		if err != nil {
			return nil, err
		}
		return nil, b.wait(ctx, e.service, reason)
	default:
		return nil, fmt.Errorf("no way to carry out %q for Service %s/%s", step.Action, service.Namespace, service.Name)
	}
}

// lookBeforeEnsuring reads everything afresh. The informer's copy may be old, and money is at stake.
func (b *Balancer) lookBeforeEnsuring(ctx context.Context, service *corev1.Service) (ensuring, error) {
	live, err := b.current(ctx, service)
	if err != nil {
		return ensuring{}, err
	}
	if live == nil || !wantsBlock(live) {
		return ensuring{}, api.NewRetryError(words(reasonOutdated), b.config.Interval)
	}
	e := ensuring{service: live}
	if e.owner, err = b.owner(ctx, live); err != nil {
		return ensuring{}, err
	}
	if e.purchase, err = contract.ParsePurchase(live.Annotations[contract.ServiceIPPurchase]); err != nil {
		return ensuring{}, fmt.Errorf("%w; remove the annotation if no IP block was bought", err)
	}
	if e.seen, err = b.observe(ctx, e.owner, e.purchase); err != nil {
		return ensuring{}, fmt.Errorf("look for the IP block of Service %s/%s: %w", live.Namespace, live.Name, err)
	}
	e.view = b.view(e.seen, e.purchase)
	e.wish, err = b.wish(e.owner, live, e.seen)
	return e, err
}

// act carries out a step that changes the account and returns where that leaves the block.
func (b *Balancer) act(ctx context.Context, service *corev1.Service, step ipblock.Step) (ipblock.Reason, error) {
	var err error
	var reason ipblock.Reason
	switch step.Action {
	case ipblock.Assign:
		err, reason = b.config.Cloud.AssignBlock(ctx, step.Network, step.Block.ID), ipblock.BlockAssigning
	case ipblock.Unassign:
		err, reason = b.config.Cloud.UnassignBlock(ctx, step.Network, step.Block.ID), ipblock.BlockUnassigning
	case ipblock.Delete:
		err, reason = b.config.Cloud.DeleteBlock(ctx, step.Block.ID), ipblock.DeletionUnverified
	case ipblock.Wait, ipblock.Buy, ipblock.Refuse, ipblock.Done:
		return "", fmt.Errorf("%q changes nothing in the account", step.Action)
	default:
		return "", fmt.Errorf("%q is no known action", step.Action)
	}
	switch {
	case err == nil:
		b.tried(step)
		b.announce(ctx, service, step)
		return reason, nil
	case pnap.IsConflict(err) && step.Action != ipblock.Delete:
		return ipblock.NetworkChanging, nil
	case pnap.IsInaccessible(err) && step.Action == ipblock.Delete:
		// Somebody was faster, or the block may not be seen any more: the next look tells.
		return reason, nil
	default:
		return "", fmt.Errorf("%s IP block %s (%s) of Service %s/%s: %w",
			step.Action, step.Block.ID, step.Block.CIDR, service.Namespace, service.Name, err)
	}
}

// announce tells the log and the user what was done to the account.
func (b *Balancer) announce(ctx context.Context, service *corev1.Service, step ipblock.Step) {
	klog.FromContext(ctx).Info("Changed an IP block", "action", step.Action, "service", klog.KObj(service),
		"block", step.Block.ID, "cidr", step.Block.CIDR, "network", step.Network)
	block := step.Block.ID + " (" + step.Block.CIDR.String() + ")"
	switch step.Action {
	case ipblock.Assign:
		b.config.Events.Eventf(service, corev1.EventTypeNormal, eventAssigning, "Assigning IP block %s to public network %s", block, step.Network)
	case ipblock.Unassign:
		b.config.Events.Eventf(service, corev1.EventTypeNormal, eventUnassigned, "Unassigning IP block %s from public network %s", block, step.Network)
	case ipblock.Delete:
		b.config.Events.Eventf(service, corev1.EventTypeNormal, eventReleased, "Released IP block %s", block)
	case ipblock.Wait, ipblock.Buy, ipblock.Refuse, ipblock.Done:
	default:
	}
}

// wait notes why nothing more can be done now and asks the framework to call again.
func (b *Balancer) wait(ctx context.Context, service *corev1.Service, reason ipblock.Reason) error {
	b.noteQuietly(ctx, service, reason, words(reason))
	return api.NewRetryError(words(reason), b.config.Interval)
}

// refuse notes what a person has to change. The framework calls again, ever more seldom.
func (b *Balancer) refuse(ctx context.Context, service *corev1.Service, step ipblock.Step) error {
	if b.noteQuietly(ctx, service, step.Reason, step.Detail) {
		b.config.Events.Event(service, corev1.EventTypeWarning, eventRefused, step.Detail)
	}
	return errors.New(step.Detail)
}

// pacing turns an error after which the API wants a pause, or which time alone heals, into a request to
// call again.
func (b *Balancer) pacing(err error) error {
	var failure *pnap.Error
	if errors.As(err, &failure) && failure.RetryAfter > 0 {
		return api.NewRetryError(words(reasonPaused), failure.RetryAfter)
	}
	if errors.Is(err, errOutdated) {
		return api.NewRetryError(words(reasonOutdated), time.Second)
	}
	return err
}

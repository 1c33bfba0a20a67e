package balancer

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/pnap"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/ipblock"
)

// EnsureLoadBalancerDeleted takes the Service one step nearer to having no block: at most one change of
// the account, then an error until nothing is left. The framework backs off up to five minutes after
// such errors; Run wakes the Service when its block has moved on.
//
// It reads tags and the recorded purchase, and no wish of the user: nothing that can be written into a
// Service keeps it from being deleted.
func (b *Balancer) EnsureLoadBalancerDeleted(ctx context.Context, _ string, service *corev1.Service) error {
	done, err := b.exclusive(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := b.release(ctx, service); err != nil {
		return b.pacing(err)
	}
	return nil
}

func (b *Balancer) release(ctx context.Context, service *corev1.Service) error {
	live, err := b.byName(ctx, service)
	if err != nil {
		return err
	}
	known := service
	switch {
	case live == nil:
	case live.UID == service.UID:
		if live, err = b.withdraw(ctx, live); err != nil {
			return err
		}
		known = live
	case wantsBlock(live):
		// The Service was deleted and created again; the new one takes the block over, address and all.
		return nil
	default:
		live = nil
	}
	return b.releaseBlocks(ctx, known, live)
}

// withdraw takes our address off a Service that lives on as another type. A Service that is going keeps
// it: kube-vip stops announcing only when the object is gone, so there is nothing to wait for.
func (b *Balancer) withdraw(ctx context.Context, live *corev1.Service) (*corev1.Service, error) {
	if live.DeletionTimestamp != nil {
		return live, nil
	}
	nodes, err := b.config.Nodes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	return b.apply(ctx, live, withdrawal(live, commonInterface(nodes, b.config.NetworkID)))
}

// releaseBlocks decides and acts. live is the Service to write on; nil when it is gone.
func (b *Balancer) releaseBlocks(ctx context.Context, known, live *corev1.Service) error {
	steps, err := b.releaseSteps(ctx, known)
	if err != nil {
		b.noteLookupFailure(ctx, known)
		return fmt.Errorf("look for the IP block of Service %s/%s: %w", known.Namespace, known.Name, err)
	}
	acted, err := b.takeFirst(ctx, known, steps)
	if err != nil {
		b.noteQuietly(ctx, live, reasonReleaseFailed, words(reasonReleaseFailed))
		return err
	}
	if acted == ipblock.DeletionUnverified {
		// Deleting is done at once: look whether that was the last of it.
		if steps, err = b.releaseSteps(ctx, known); err != nil {
			return fmt.Errorf("verify the deletion of the IP block of Service %s/%s: %w", known.Namespace, known.Name, err)
		}
		acted = ""
	}
	return b.conclude(ctx, known, live, steps[0], acted)
}

// conclude says what the release waits for, or clears up after it.
func (b *Balancer) conclude(ctx context.Context, known, live *corev1.Service, step ipblock.Step, acted ipblock.Reason) error {
	switch {
	case acted != "":
		b.noteQuietly(ctx, live, acted, words(acted))
		return api.NewRetryError(words(acted), b.config.Interval)
	case step.Action == ipblock.Done:
		return b.clear(ctx, live)
	case step.Action == ipblock.Refuse:
		if b.noteQuietly(ctx, live, step.Reason, step.Detail) {
			b.config.Events.Event(known, corev1.EventTypeWarning, eventRefused, step.Detail)
		}
		return errors.New(step.Detail)
	default:
		reason := b.standing(step)
		b.noteQuietly(ctx, live, reason, words(reason))
		return api.NewRetryError(words(reason), b.config.Interval)
	}
}

// releaseSteps observes and decides.
func (b *Balancer) releaseSteps(ctx context.Context, service *corev1.Service) ([]ipblock.Step, error) {
	owner, err := b.owner(ctx, service)
	if err != nil {
		return nil, err
	}
	purchase := purchaseToRelease(ctx, service)
	seen, err := b.observe(ctx, owner, purchase)
	if err != nil {
		return nil, err
	}
	return ipblock.Release(owner, b.view(seen, purchase)), nil
}

// takeFirst takes the first of the steps that the API does not refuse: a block that is stuck must not
// keep others. It returns where the block stands now; empty when no step can be taken.
func (b *Balancer) takeFirst(ctx context.Context, service *corev1.Service, steps []ipblock.Step) (ipblock.Reason, error) {
	var refusals []error
	for _, step := range steps {
		if (step.Action != ipblock.Unassign && step.Action != ipblock.Delete) || b.rests(step) {
			continue
		}
		reason, err := b.act(ctx, service, step)
		if err == nil {
			return reason, nil
		}
		if !pnap.IsRefused(err) {
			return "", err
		}
		refusals = append(refusals, err)
	}
	return "", errors.Join(refusals...)
}

// clear removes what the controller wrote on the Service, now that no block is left.
func (b *Balancer) clear(ctx context.Context, live *corev1.Service) error {
	if live == nil {
		return nil
	}
	klog.FromContext(ctx).Info("No IP block is left", "service", klog.KObj(live))
	wanted := map[string]any{contract.ServiceIPPurchase: nil, contract.ServiceIPAddress: nil}
	if _, err := b.apply(ctx, live, patch{annotations: differing(live.Annotations, wanted)}); err != nil && !errors.Is(err, errOutdated) {
		return err
	}
	if meta.FindStatusCondition(live.Status.Conditions, contract.ServiceConditionBlockAssigned) == nil {
		return nil
	}
	err := b.patchStatus(ctx, live, false, map[string]any{"conditions": []map[string]string{{
		"$patch": "delete", "type": contract.ServiceConditionBlockAssigned,
	}}})
	if errors.Is(err, errOutdated) {
		return nil
	}
	return err
}

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cloud-provider/api"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
)

// Drifted returns the Services that have drifted without an event of Kubernetes: their block was changed by others,
// what blocked them, or their release, is gone, or agents report otherwise than their condition says. It is one look at
// the account for all of them. Then it sweeps, see Sweep.
func (b *Balancer) Drifted(ctx context.Context) ([]types.NamespacedName, error) {
	services, err := b.config.Services.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list Services: %w", err)
	}
	listing, err := b.ledgers.list(ctx, scope{})
	if err != nil {
		return nil, err
	}
	services = b.served(services, listing.All)
	now := b.config.Now()
	if _, err := b.config.Account.Blocks(ctx, now); err != nil {
		return nil, err
	}
	if _, err := b.config.Account.Network(ctx, b.config.Network.ID, now); err != nil {
		return nil, err
	}
	var found []types.NamespacedName
	var problems []error
	for _, service := range services {
		if b.mayEnd(ctx, service) {
			found = append(found, types.NamespacedName{Namespace: service.Namespace, Name: service.Name})
			continue
		}
		differs := b.drifted
		switch {
		case plan.WantsAddress(service):
		case plan.NeedsBlock(service):
			differs = b.resumes
		default:
			continue
		}
		drifted, err := differs(ctx, service)
		var again *api.RetryError
		switch {
		case errors.As(err, &again): // another network has it, as the next look shows
			continue
		case err != nil:
			problems = append(problems, lookupError(service, err))
		case drifted:
			found = append(found, types.NamespacedName{Namespace: service.Namespace, Name: service.Name})
		}
	}
	if err := b.Sweep(ctx); err != nil {
		problems = append(problems, err)
	}
	return found, errors.Join(problems...)
}

// mayEnd reports whether what the Service waits for may have ended: its network is not being changed. A list of blocks
// may lag behind; the network does not.
func (b *Balancer) mayEnd(ctx context.Context, service *corev1.Service) bool {
	w, waits := b.pace.waitsFor(service.UID)
	if !waits || !w.changesBlock() && w.reason != ipblock.NetworkChanging {
		return false
	}
	public, err := b.config.Account.Network(ctx, w.network, time.Time{})
	return err == nil && public.Status != network.StatusBusy
}

// drifted reports whether Ensure would change anything.
func (b *Balancer) drifted(ctx context.Context, service *corev1.Service) (bool, error) {
	o, err := b.observe(ctx, scopeOf(service))
	if err != nil {
		return false, err
	}
	p := plan.Decide(o)
	switch p.Step.Action {
	case ipblock.Done:
		ready, why := o.NodeReady()
		published := hasAddress(service, p.Step.Address.String())
		ready = ready || published
		_, unreported := o.Objects.ReportOf(b.config.SaidBy(service))
		return !p.UpToDate || unreported && !o.Options.DryRun || !b.publication(o, p.Step).empty() ||
			ready && !published || !hasConditions(service, publishedConditions(o, p, ready, why)), nil
	case ipblock.Wait:
		return o.Published.IsValid(), nil
	case ipblock.Refuse:
		published := len(service.Status.LoadBalancer.Ingress) > 0
		return !hasRefusal(service, p.Step) || p.Withdraw && published || p.Leave || len(p.Save) > 0, nil
	default: // the account must change
		return true, nil
	}
}

// resumes reports whether Release would change anything, or has something else to say. What it waits for it checks
// itself.
func (b *Balancer) resumes(ctx context.Context, service *corev1.Service) (bool, error) {
	s := scopeOf(service)
	s.Releasing = true
	o, err := b.observe(ctx, s)
	if err != nil {
		return false, err
	}
	switch step := plan.PlanRelease(o, service).Next(); step.Action {
	case ipblock.Wait:
		return false, nil
	case ipblock.Refuse:
		return !hasRefusal(service, step), nil
	default:
		return true, nil
	}
}

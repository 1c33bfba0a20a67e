package reconcile

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/contract"
)

// Drifted returns the Services that have drifted without an event of Kubernetes:
// their block was changed behind our back, what blocked them is gone, or agents report otherwise than
// their condition says. It is one look at the account for all of them. Then it sweeps, see Sweep.
func (b *Balancer) Drifted(ctx context.Context) ([]types.NamespacedName, error) {
	services, err := b.config.Services.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list Services: %w", err)
	}
	now := b.config.Now()
	if _, err := b.config.Account.Blocks(ctx, now); err != nil {
		return nil, err
	}
	if _, err := b.config.Account.Network(ctx, b.config.NetworkID, now); err != nil {
		return nil, err
	}
	var found []types.NamespacedName
	var problems []error
	for _, service := range services {
		if !contract.WantsAddress(service) {
			continue
		}
		drifted, err := b.drifted(ctx, service)
		if err != nil {
			problems = append(problems, fmt.Errorf("look for the IP block of Service %s/%s: %w", service.Namespace,
				service.Name, err))
			continue
		}
		if drifted {
			found = append(found, types.NamespacedName{Namespace: service.Namespace, Name: service.Name})
		}
	}
	if err := b.Sweep(ctx); err != nil {
		problems = append(problems, err)
	}
	return found, errors.Join(problems...)
}

// drifted reports whether Ensure would change anything.
func (b *Balancer) drifted(ctx context.Context, service *corev1.Service) (bool, error) {
	s, err := b.beginToEnsure(ctx, service)
	if err != nil {
		return false, err
	}
	if s, err = b.observe(ctx, s, depth{}); err != nil {
		return false, err
	}
	v := plan.Decide(s)
	switch v.Step.Action {
	case plan.Done:
		ready := hasAddress(service, v.Step.Address) || anyNodeReady(s.Nodes, s.NetworkID)
		return !v.UpToDate(s) || !publication(s, v.Step).empty() || ready && !hasAddress(service, v.Step.Address) ||
			len(differingConditions(service, publishedConditions(s, v, ready), s.Now)) > 0, nil
	case plan.Wait:
		return s.Published().IsValid(), nil
	case plan.Refuse:
		return !says(service, blockCondition(v.Step.Reason, v.Step.Detail)), nil
	case plan.Buy, plan.Assign, plan.Unassign, plan.Delete:
		return true, nil
	default:
		return true, nil
	}
}

// says reports whether the Service has the condition already.
func says(service *corev1.Service, condition metav1.Condition) bool {
	have := meta.FindStatusCondition(service.Status.Conditions, contract.ServiceConditionBlockAssigned)
	return have != nil && have.Reason == condition.Reason && have.Message == condition.Message
}

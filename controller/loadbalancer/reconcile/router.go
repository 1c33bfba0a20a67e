package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cloud-provider/api"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/ipblock"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
)

// Router has the Balancer of the public network that serves a Service do what is asked of it. It chooses by a copy of
// the objects: a Balancer that finds, in objects that it read live, that a Service has something in another network
// changes nothing, and the choice is made again. It is safe for concurrent use.
type Router struct {
	config Config
	of     func(network string) *Balancer
	copy   *ledgerCopy
}

// NewRouter returns a Router between the Balancers of the networks of config.Places, which of returns by name. It
// starts nothing and makes no calls.
func NewRouter(config Config, of func(network string) *Balancer) *Router {
	config = config.withDefaults()
	return &Router{config: config, of: of, copy: newLedgerCopy(config.Ledgers, config.Now)}
}

// Ensure takes the next step to a published address, see Balancer.Ensure.
func (r *Router) Ensure(ctx context.Context, d *Draft) (*corev1.LoadBalancerStatus, error) {
	places := r.config.Places()
	homes, err := r.homes(ctx, d.Service, places)
	if err != nil {
		return nil, err
	}
	name, instead := places.Choose(d.Service, homes)
	if name == "" {
		return nil, r.of(places.Served[0].Name).hold(d, instead)
	}
	if homes.Of(d.Service, places) == "" { // it is about to get something, which the next choice must see
		defer r.copy.forget()
	}
	return r.of(name).Ensure(ctx, d)
}

// Release takes the next step to a Service without anything of ours, see Balancer.Release. A Service that has something
// in several networks gives it up in one after the other.
func (r *Router) Release(ctx context.Context, d *Draft) error {
	places := r.config.Places()
	homes, err := r.homes(ctx, d.Service, places)
	if err != nil {
		return err
	}
	name, instead := places.ChooseForRelease(d.Service, homes)
	if name == "" {
		return r.of(places.Served[0].Name).hold(d, instead)
	}
	if err := r.of(name).Release(ctx, d); err != nil || places.Only() {
		return err
	}
	listing, err := r.config.Ledgers.In(name).List(ctx)
	if err != nil {
		return err
	}
	if listing.Elsewhere.Has(plan.HolderOf(d.Service)) {
		r.copy.forget()
		return elsewhere()
	}
	return nil
}

// elsewhere asks for another choice of a network.
func elsewhere() error { return api.NewRetryError(words(waitOutdated), leastPause) }

// Drifted returns the Services of all networks that have drifted, and those that are refused, or wait for a network,
// and do not say so. A network that cannot be read does not keep the others from being looked at.
func (r *Router) Drifted(ctx context.Context) ([]types.NamespacedName, error) {
	places := r.config.Places()
	found, err := r.unplaced(ctx, places)
	problems := []error{err, r.of(places.Served[0].Name).refuseElsewhere(ctx, places)}
	for _, place := range places.Served {
		drifted, err := r.of(place.Name).Drifted(ctx)
		if err != nil && !places.Only() {
			err = fmt.Errorf("public network %s: %w", place.Name, err)
		}
		problems = append(problems, err)
		found = append(found, drifted...)
	}
	return found, errors.Join(problems...)
}

// NetworkOf returns the public network that serves a Service; the zero Named while none does.
func (r *Router) NetworkOf(ctx context.Context, service *corev1.Service) network.Named {
	places := r.config.Places()
	homes, err := r.homes(ctx, service, places)
	if err != nil {
		return network.Named{}
	}
	name, _ := places.Choose(service, homes)
	if name == "" {
		return network.Named{}
	}
	return r.of(name).NetworkOf(ctx, service)
}

// unplaced are the Services without a network that do not say why.
func (r *Router) unplaced(ctx context.Context, places plan.Places) ([]types.NamespacedName, error) {
	services, err := r.config.Services.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list Services: %w", err)
	}
	var found []types.NamespacedName
	for _, service := range services {
		if !plan.WantsAddress(service) || places.Sole(service) {
			continue
		}
		homes, err := r.homes(ctx, service, places)
		if err != nil {
			return nil, err
		}
		if name, instead := places.Choose(service, homes); name == "" && !hasRefusal(service, instead) {
			found = append(found, types.NamespacedName{Namespace: service.Namespace, Name: service.Name})
		}
	}
	return found, nil
}

// homes are what the objects show of where Services are. Nothing is read for a Service for which there is one network.
func (r *Router) homes(ctx context.Context, service *corev1.Service, places plan.Places) (plan.Homes, error) {
	if places.Sole(service) {
		return plan.Homes{}, nil
	}
	listing, err := r.copy.list(ctx, scope{})
	if err != nil {
		return plan.Homes{}, err
	}
	return plan.HomesOf(listing.All), nil
}

// hold says on a Service why no network serves it.
func (b *Balancer) hold(d *Draft, step ipblock.Step) error {
	if step.Action == ipblock.Refuse {
		return b.refuse(d, step)
	}
	return b.waitUntil(d, step)
}

// served are those of the Services that the Balancer's network serves.
func (b *Balancer) served(all []*corev1.Service, records ipblock.Records) []*corev1.Service {
	if b.config.Places == nil {
		return all
	}
	places := b.config.Places()
	if !slices.ContainsFunc(all, func(s *corev1.Service) bool { return !places.Sole(s) }) {
		return all
	}
	return places.Serves(b.config.Network.Name, all, plan.HomesOf(records))
}

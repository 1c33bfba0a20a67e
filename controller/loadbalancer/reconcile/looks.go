package reconcile

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cloud-provider/api"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

const (
	// looksAtOnce is how often the account is read live for a Service as soon as someone changes it: enough to have it
	// retained, deleted and created again. After that there is one look in betweenLooks for all its changes together: a
	// look costs three to five requests, and all tenants share the limit of requests.
	looksAtOnce  = 7
	betweenLooks = 2 * time.Minute
	// mostOwed is how many looks a Service may owe before what it waits for is looked at later, too.
	mostOwed = 2
	// commonLook is how old a look at the account may be that Services without a trace of a block have in common.
	commonLook = 10 * time.Second
)

// looks bounds the live looks at the account that edits of each Service cause. Services are known by their names: an
// author may delete one and create it again.
type looks struct {
	mu     sync.Mutex
	byName map[types.NamespacedName]authored
}

// authored is what the author of a Service may cause.
type authored struct {
	budget *rate.Limiter
	// version is that of the Service as the last sync left it. Another one is an edit by someone else.
	version string
	// due is when the last sync asked to be called again; the zero Time when it did not.
	due time.Time
}

func newLooks() *looks { return &looks{byName: map[types.NamespacedName]authored{}} }

func nameOf(service *corev1.Service) types.NamespacedName {
	return types.NamespacedName{Namespace: service.Namespace, Name: service.Name}
}

// take takes one look out of the budget of a Service if an edit has caused it, and not what the last sync wrote or
// asked for. It returns how long the look has to wait; 0 if it need not.
func (l *looks) take(service *corev1.Service, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, found := l.byName[nameOf(service)]
	switch {
	case !found:
		known.budget = rate.NewLimiter(rate.Every(betweenLooks), looksAtOnce)
		l.forget(now)
	case known.version == service.ResourceVersion:
		return 0
	case !known.due.IsZero() && !now.Before(known.due): // edited meanwhile, but to see what became of a step
		owed := -known.budget.TokensAt(now) - mostOwed
		return time.Duration(max(owed, 0) * float64(betweenLooks))
	}
	l.byName[nameOf(service)] = known
	reserved := known.budget.ReserveN(now, 1)
	wait := reserved.DelayFrom(now)
	if wait > 0 {
		reserved.CancelAt(now)
	}
	return wait
}

// spend takes looks out of the budget, which may owe them, for a change of the account: it is read again after a
// purchase, a change of tags, or a step of a release, without a further edit.
func (l *looks) spend(service *corev1.Service, count int, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, found := l.byName[nameOf(service)]; found {
		known.budget.ReserveN(now, count)
	}
}

// forget forgets the Services that may have all their looks.
func (l *looks) forget(now time.Time) {
	maps.DeleteFunc(l.byName, func(_ types.NamespacedName, a authored) bool {
		return now.After(a.due) && a.budget.TokensAt(now) >= looksAtOnce
	})
}

// served records how a sync that was not held left a Service of which looks were counted.
func (l *looks) served(service *corev1.Service, due time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, found := l.byName[nameOf(service)]; found {
		known.version = service.ResourceVersion
		known.due = due
		l.byName[nameOf(service)] = known
	}
}

// limitLooks holds a sync that needs a live look only because of an edit, if there were too many. What is held is
// served with the next look, all edits together.
func (b *Balancer) limitLooks(_ context.Context, r *reconciliation) (bool, error) {
	if r.decided {
		return false, nil
	}
	if wait := b.looks.take(r.Service, b.config.Now()); wait > 0 {
		r.held = true
		return true, api.NewRetryError(words(waitChanges), wait)
	}
	return false, nil
}

// departures are the Services that are being deleted, and since when at the latest.
type departures struct {
	mu    sync.Mutex
	since map[types.UID]time.Time
}

// of returns since when a Service is being deleted: all that the informer shows as deleted were so when the first of
// them was seen, so that one look at the account after that serves all.
func (d *departures) of(service *corev1.Service, all []*corev1.Service, now time.Time) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if since, known := d.since[service.UID]; known {
		return since
	}
	before := d.since
	d.since = map[types.UID]time.Time{service.UID: now}
	for _, other := range all {
		if other.DeletionTimestamp == nil {
			continue
		}
		d.since[other.UID] = now
		if since, known := before[other.UID]; known {
			d.since[other.UID] = since
		}
	}
	return now
}

// enough is since when the account must have been read for a release that finds nothing to do. A Service that is being
// deleted, and on which nothing says that it ever had a block, shares a look with all others like it.
func (b *Balancer) enough(service *corev1.Service, now time.Time) (time.Time, error) {
	if service.DeletionTimestamp == nil || hasTrace(service) {
		return now, nil
	}
	all, err := b.config.Services.List(labels.Everything())
	if err != nil {
		return now, fmt.Errorf("list Services: %w", err)
	}
	since := b.leaving.of(service, all, now)
	if recent := now.Add(-commonLook); since.Before(recent) {
		return recent, nil
	}
	return since, nil
}

// hasTrace reports whether a Service shows that a block may have been bought for it, or that it had an address.
func hasTrace(service *corev1.Service) bool {
	return len(service.Status.LoadBalancer.Ingress) > 0 ||
		slices.ContainsFunc(contract.OwnedServiceAnnotations(), func(name string) bool {
			_, found := service.Annotations[name]
			return found
		})
}

// nothing reports whether a release finds nothing to do.
func nothing(p plan.ReleasePlan) bool {
	return !p.Answering && p.Next().Action == plan.Done && len(p.Save) == 0 && p.Tags == nil && len(p.Drop) == 0
}

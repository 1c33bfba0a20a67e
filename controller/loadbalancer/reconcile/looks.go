package reconcile

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cloud-provider/api"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/purchase"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

const (
	// looksAtOnce is how often the account is read live for a Service as soon as someone changes it. After that there
	// is one look in betweenLooks for all its changes together: a look costs three to five requests, and all tenants
	// share the limit of requests.
	looksAtOnce  = 6
	betweenLooks = time.Minute
	// costOfChange is what a purchase, a change of tags, or taking a block off the network counts: these are requests, and
	// all is to be read again after them.
	costOfChange = 2
	// mostOwed is how many looks a Service has to make up for at the most, beyond looksAtOnce.
	mostOwed = 2
	// commonLook is how old a look at the account may be that Services without a trace of a block have in common.
	commonLook = 10 * time.Second
)

// errHeld says that a Service was changed so often that its next change has to wait.
var errHeld = errors.New("the Service was changed many times")

// looks are the live looks at the account that changes of each Service cause. They are counted by its name: an author
// may delete a Service and create it again.
type looks struct {
	mu     sync.Mutex
	byName map[types.NamespacedName]allowance
}

// allowance is what one Service may have.
type allowance struct {
	// repaid is when its looks so far will have been made up for.
	repaid time.Time
	// due is when the balancer asked to be called again for it; the zero Time when it did not.
	due time.Time
	// versions are the resource versions of the Service that was last served, and of what the balancer itself wrote.
	versions []string
}

func (a allowance) owed(now time.Time) time.Duration { return max(a.repaid.Sub(now), 0) }

// asked reports whether no change of the Service causes this call: the balancer asked for it, to see what became of a
// step, or something else has changed.
func (a allowance) asked(service *corev1.Service, now time.Time) bool {
	return !a.due.IsZero() && !now.Before(a.due) || slices.Contains(a.versions, service.ResourceVersion)
}

// mostVersions is how many versions of a Service are known at the most: one sync writes a few.
const mostVersions = 8

// know notes that no change of its author made this version of a Service.
func (a *allowance) know(service *corev1.Service) {
	versions := append(slices.Clone(a.versions), service.ResourceVersion)
	a.versions = versions[max(0, len(versions)-mostVersions):]
}

// wrote records what the balancer itself wrote.
func (l *looks) wrote(service *corev1.Service) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a, known := l.byName[nameOf(service)]; known {
		a.know(service)
		l.byName[nameOf(service)] = a
	}
}

func newLooks() *looks { return &looks{byName: map[types.NamespacedName]allowance{}} }

func nameOf(service *corev1.Service) types.NamespacedName {
	return types.NamespacedName{Namespace: service.Namespace, Name: service.Name}
}

// wait returns how long the next live look has to wait; 0 if it need not.
func (l *looks) wait(service *corev1.Service, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.byName[nameOf(service)]
	wait := max(a.owed(now)-(looksAtOnce-1)*betweenLooks, 0)
	switch {
	case a.asked(service, now):
		return max(wait-mostOwed*betweenLooks, 0)
	case a.due.IsZero():
		return wait
	default:
		return min(wait, a.due.Sub(now))
	}
}

// held is the error of a call that has to wait.
func held(wait time.Duration) error {
	return fmt.Errorf("%w: %w", errHeld, api.NewRetryError(words(waitChanges), wait))
}

// spend counts a live look that a change of the Service causes.
func (l *looks) spend(service *corev1.Service, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.byName[nameOf(service)].asked(service, now) {
		l.owe(service, 1, now)
	}
}

// change counts a change of the account, whoever asked for the look before it.
func (l *looks) change(service *corev1.Service, cost int, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owe(service, cost, now)
}

// owe is called with the lock held. It forgets the Services that have made up for all their looks.
func (l *looks) owe(service *corev1.Service, count int, now time.Time) {
	maps.DeleteFunc(l.byName, func(_ types.NamespacedName, a allowance) bool {
		return now.After(a.repaid) && now.After(a.due)
	})
	a := l.byName[nameOf(service)]
	owed := a.owed(now) + time.Duration(count)*betweenLooks
	a.repaid = now.Add(min(owed, (looksAtOnce+mostOwed)*betweenLooks))
	l.byName[nameOf(service)] = a
}

// served records which version of the Service was served, and when the balancer asked to be called again; the zero Time
// when it did not.
func (l *looks) served(service *corev1.Service, due time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a, known := l.byName[nameOf(service)]; known {
		a.due = due
		a.know(service)
		l.byName[nameOf(service)] = a
	}
}

// ended ends a call for a Service: an error that goes away with time becomes a request to call again. One that met a
// change of the Service has asked for nothing.
func (b *Balancer) ended(service *corev1.Service, err error) error {
	result := b.pacing(service, err)
	if errors.Is(err, errHeld) {
		return result
	}
	var again *api.RetryError
	var due time.Time
	if errors.As(result, &again) && !errors.Is(err, errOutdated) && !errors.Is(err, purchase.ErrOutdated) {
		due = b.config.Now().Add(again.RetryAfter())
	}
	b.looks.served(service, due)
	return result
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
	since := b.departures.of(service, all, now)
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

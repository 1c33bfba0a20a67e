package reconcile

import (
	"context"
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/cloud-provider/api"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/plan"
)

const (
	// looksAtOnce is how often the account is read live for a Service as soon as someone changes it: enough to have it
	// retained, deleted and created again, and one to spare. After that there is one look in betweenLooks for all its
	// changes together: a look costs three to five requests, and all tenants share the limit of requests.
	looksAtOnce  = 9
	betweenLooks = 90 * time.Second
)

// looks bounds the live looks at the account that edits of each Service cause. Services are known by their names: an
// author may delete one and create it again.
type looks struct {
	mu     sync.Mutex
	byName map[cache.ObjectName]authored
}

// authored is what the author of a Service may cause.
type authored struct {
	budget *rate.Limiter
	// version is that of the Service as the last sync left it. Another one is an edit by someone else.
	version string
	// due is when the last sync asked to be called again, to see what became of what the author wanted then; the zero
	// Time when it did not.
	due   time.Time
	wants wants
}

// edited reports whether a sync is due to an edit, and not to what the last sync wrote or asked for.
func (a authored) edited(service *corev1.Service, wanted wants, now time.Time) bool {
	return a.version != service.ResourceVersion && (a.due.IsZero() || now.Before(a.due) || a.wants != wanted)
}

// wants is what an author wants of a Service, to be compared.
type wants struct {
	asked   plan.Asked
	address bool
}

func (b *Balancer) wantsOf(service *corev1.Service) wants {
	said := b.config.SaidBy(service)
	return wants{asked: said.Asked, address: said.Wants}
}

func newLooks() *looks { return &looks{byName: map[cache.ObjectName]authored{}} }

// take takes one look out of the budget of a Service if an edit has caused it. It returns how long the look has to
// wait; 0 if it need not.
func (l *looks) take(service *corev1.Service, wanted wants, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := cache.MetaObjectToName(service)
	known, found := l.byName[name]
	if !found {
		l.forget(now)
		known.budget = rate.NewLimiter(rate.Every(betweenLooks), looksAtOnce)
		l.byName[name] = known
	}
	if !known.edited(service, wanted, now) {
		return 0
	}
	reserved := known.budget.ReserveN(now, 1)
	wait := reserved.DelayFrom(now)
	if wait > 0 {
		reserved.CancelAt(now)
	}
	return wait
}

// edited reports whether a sync is due to an edit of a Service that has had looks lately.
func (l *looks) edited(service *corev1.Service, wanted wants, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, found := l.byName[cache.MetaObjectToName(service)]
	return found && known.edited(service, wanted, now)
}

// spend takes looks out of the budget for a change of the account: it is read again after that, without a further
// edit. A budget that owes looks is not charged again, so that no edit waits for long.
func (l *looks) spend(service *corev1.Service, looks int, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, found := l.byName[cache.MetaObjectToName(service)]; found && known.budget.TokensAt(now) >= 0 {
		known.budget.ReserveN(now, looks)
	}
}

// forget forgets the Services that may have all their looks.
func (l *looks) forget(now time.Time) {
	maps.DeleteFunc(l.byName, func(_ cache.ObjectName, a authored) bool {
		return now.After(a.due) && a.budget.TokensAt(now) >= looksAtOnce
	})
}

// served records how a sync that was not held left a Service of which looks were counted.
func (l *looks) served(service *corev1.Service, wanted wants, due time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := cache.MetaObjectToName(service)
	if known, found := l.byName[name]; found {
		l.byName[name] = authored{budget: known.budget, version: service.ResourceVersion, due: due, wants: wanted}
	}
}

// limitLooks holds a sync that needs a live look only because of an edit, if there were too many. What is held is
// served with the next look, all edits together.
func (b *Balancer) limitLooks(_ context.Context, r *reconciliation) (bool, error) {
	if r.decided {
		return false, nil
	}
	if wait := b.looks.take(r.Service, b.wantsOf(r.Service), b.config.Now()); wait > 0 {
		r.held = true
		return true, api.NewRetryError(words(waitChanges), wait)
	}
	return false, nil
}

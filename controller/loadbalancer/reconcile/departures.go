package reconcile

import (
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// commonLook is how old a look at the account may be that Services without a trace of a block have in common.
const commonLook = 10 * time.Second

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

// commonSince is since when the account must have been read for a release that finds nothing to do. A Service that is
// being deleted, and on which nothing says that it ever had a block, shares a look with all others like it.
func (b *Balancer) commonSince(service *corev1.Service, now time.Time) (time.Time, error) {
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

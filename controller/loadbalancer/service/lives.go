package service

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// life is what this process remembers of a Service from the first look at it until nothing of it is
// left. Losing it costs a repeated event, nothing more. Its fields belong to the worker that holds the
// Service's key, but for the first group, which lives guards.
type life struct {
	uid       types.UID
	published *corev1.LoadBalancerStatus // what is to stand in the status; nil while nothing is
	vanished  *corev1.Service            // the last known version of a Service that is gone without being released

	asked         time.Time // when the load balancer was asked for
	announced     bool      // users know of the address
	publishedAt   time.Time // when this process first saw the address published
	waitingSince  time.Time
	leaving       bool // users know that it is being released
	toldWaiting   bool
	toldNoNodes   bool
	toldIPv4Only  bool
	announcerSeen bool   // the announcer was judged
	toldRefusal   string // the last text about what cannot be served
	toldDryRun    string // the last text about what would be done
}

// lives are the lives of all Services by name. It is safe for concurrent use.
type lives struct {
	mu     sync.Mutex
	byName map[types.NamespacedName]*life
}

func newLives() *lives { return &lives{byName: map[types.NamespacedName]*life{}} }

func nameOf(service *corev1.Service) types.NamespacedName {
	return types.NamespacedName{Namespace: service.Namespace, Name: service.Name}
}

// of returns the life of a Service and begins it at the first look. A Service that has an address
// already was published by another process.
func (l *lives) of(service *corev1.Service) *life {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := nameOf(service)
	if found := l.byName[key]; found != nil && found.uid == service.UID {
		return found
	}
	begun := &life{uid: service.UID, asked: service.CreationTimestamp.Time,
		announced: len(service.Status.LoadBalancer.Ingress) > 0}
	l.byName[key] = begun
	return begun
}

// begin returns the life of a Service that must be served. One that comes back from being released starts
// again.
func (l *lives) begin(service *corev1.Service) *life {
	if found := l.of(service); !found.leaving {
		return found
	}
	l.ask(service, time.Now())
	return l.of(service)
}

// ask begins the life of a Service that has just become one of ours.
func (l *lives) ask(service *corev1.Service, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.byName[nameOf(service)] = &life{uid: service.UID, asked: now}
}

// knows reports whether there is something of this very Service that was not released.
func (l *lives) knows(service *corev1.Service) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := l.byName[nameOf(service)]
	return found != nil && found.uid == service.UID
}

// publish records what is to stand in the status.
func (l *lives) publish(service *corev1.Service, status *corev1.LoadBalancerStatus) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if found := l.byName[nameOf(service)]; found != nil {
		found.published = status.DeepCopy()
	}
}

// published returns what is to stand in the status of a Service; nil when that is not known.
func (l *lives) published(service *corev1.Service) *corev1.LoadBalancerStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	if found := l.byName[nameOf(service)]; found != nil {
		return found.published
	}
	return nil
}

// vanish records that a Service is gone. It reports whether something of it was not released.
func (l *lives) vanish(last *corev1.Service) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := l.byName[nameOf(last)]
	if found == nil || found.uid != last.UID {
		return false
	}
	found.vanished = last
	return true
}

// vanished returns the last known version of a Service that is gone without being released; nil when there is
// none.
func (l *lives) vanished(key types.NamespacedName) *corev1.Service {
	l.mu.Lock()
	defer l.mu.Unlock()
	if found := l.byName[key]; found != nil {
		return found.vanished
	}
	return nil
}

func (l *lives) forget(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.byName, key)
}

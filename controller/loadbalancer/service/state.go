package service

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// serviceState is what this process knows about a Service until nothing of it is left. If it is lost, an event is
// repeated, nothing more. Its fields belong to the worker that has the Service's key, except the first group.
type serviceState struct {
	uid       types.UID
	published *corev1.LoadBalancerStatus // what the status must be; nil while nothing is published
	vanished  *corev1.Service            // the last known version of a Service that is gone without being released

	requested        time.Time // when the load balancer was requested
	announced        bool      // users know the address
	publishedAt      time.Time // when this process first saw the address published
	waitingSince     time.Time
	leaving          bool // users know that it is being released
	recordedWaiting  bool
	recordedNoNodes  bool
	recordedIPv4Only bool
	announcerChecked bool
	recordedRefusal  string // the last text about what cannot be served
	recordedDryRun   string // the last text about what would be done
}

// stateCache has the states of all Services by name. It is safe for concurrent use.
type stateCache struct {
	mu     sync.Mutex
	byName map[types.NamespacedName]*serviceState
}

func newStateCache() *stateCache {
	return &stateCache{byName: map[types.NamespacedName]*serviceState{}}
}

func nameOf(service *corev1.Service) types.NamespacedName {
	return types.NamespacedName{Namespace: service.Namespace, Name: service.Name}
}

// of returns the state of a Service, a new one at the first sync: an existing address was published by another process.
func (s *stateCache) of(service *corev1.Service) *serviceState {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := nameOf(service)
	if found := s.byName[key]; found != nil && found.uid == service.UID {
		return found
	}
	s.byName[key] = &serviceState{uid: service.UID, requested: service.CreationTimestamp.Time,
		announced: len(service.Status.LoadBalancer.Ingress) > 0}
	return s.byName[key]
}

// ofServed returns the state of a Service that must be served. One that is no longer released starts again.
func (s *stateCache) ofServed(service *corev1.Service) *serviceState {
	if found := s.of(service); !found.leaving {
		return found
	}
	s.start(service, time.Now())
	return s.of(service)
}

// start begins the state of a Service that has just become one of ours.
func (s *stateCache) start(service *corev1.Service, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byName[nameOf(service)] = &serviceState{uid: service.UID, requested: now}
}

// knows reports whether something of exactly this Service was not released.
func (s *stateCache) knows(service *corev1.Service) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.byName[nameOf(service)]
	return found != nil && found.uid == service.UID
}

// publish records what the status must be.
func (s *stateCache) publish(service *corev1.Service, status *corev1.LoadBalancerStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.byName[nameOf(service)]; found != nil {
		found.published = status.DeepCopy()
	}
}

// published returns what the status of a Service must be; nil when that is not known.
func (s *stateCache) published(service *corev1.Service) *corev1.LoadBalancerStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.byName[nameOf(service)]; found != nil {
		return found.published
	}
	return nil
}

// vanish records that a Service is gone. It reports whether something of it was not released.
func (s *stateCache) vanish(last *corev1.Service) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.byName[nameOf(last)]
	if found == nil || found.uid != last.UID {
		return false
	}
	found.vanished = last
	return true
}

// vanished returns the last known version of a Service that is gone without being released; nil when there is none.
func (s *stateCache) vanished(key types.NamespacedName) *corev1.Service {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.byName[key]; found != nil {
		return found.vanished
	}
	return nil
}

func (s *stateCache) forget(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byName, key)
}

package service

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/cloud-provider/api"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/cloud/network"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/controller/loadbalancer/reconcile"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/contract"
)

// shop is a balancer in memory: it gives each Service an address after some waits and takes it back after others.
type shop struct {
	mu sync.Mutex
	// waits is how often a caller is asked to call again, pause how long after.
	waits int
	pause time.Duration
	// fail, when set, is asked first, with what is done and to which Service.
	fail func(verb string, name types.NamespacedName) error
	// stray are the Services that Drifted names.
	stray []types.NamespacedName

	last   netip.Addr
	begun  map[types.NamespacedName]int
	given  map[types.NamespacedName]netip.Addr
	calls  []call
	looked int
}

type call struct {
	verb string
	name types.NamespacedName
	at   time.Time
}

func newShop() *shop {
	return &shop{
		pause: 20 * time.Millisecond, last: netip.MustParseAddr("203.0.113.9"),
		begun: map[types.NamespacedName]int{}, given: map[types.NamespacedName]netip.Addr{},
	}
}

func (s *shop) Ensure(_ context.Context, d *reconcile.Draft) (*corev1.LoadBalancerStatus, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := nameOf(d.Service)
	if err := s.began("ensure", name); err != nil {
		return nil, err
	}
	address, has := s.given[name]
	if !has {
		if s.begun[name]++; s.begun[name] <= s.waits {
			return nil, api.NewRetryError("waiting for IP block to be created", s.pause)
		}
		s.last = s.last.Next()
		address = s.last
		s.given[name] = address
		delete(s.begun, name)
	}
	mode := corev1.LoadBalancerIPModeVIP
	ingress := corev1.LoadBalancerIngress{IP: address.String(), IPMode: &mode}
	for _, port := range d.Service.Spec.Ports {
		ingress.Ports = append(ingress.Ports, corev1.PortStatus{Port: port.Port, Protocol: port.Protocol})
	}
	return &corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{ingress}}, nil
}

func (s *shop) Release(_ context.Context, d *reconcile.Draft) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := nameOf(d.Service)
	if err := s.began("release", name); err != nil {
		return err
	}
	if _, has := s.given[name]; has {
		if s.begun[name]++; s.begun[name] <= s.waits {
			return api.NewRetryError("waiting for IP block to be unassigned from its network", s.pause)
		}
	}
	delete(s.given, name)
	delete(s.begun, name)
	for _, owned := range contract.OwnedServiceAnnotations() {
		delete(d.Service.Annotations, owned)
	}
	return nil
}

// NetworkOf has networks whose IDs are their names.
func (s *shop) NetworkOf(_ context.Context, service *corev1.Service) network.Named {
	name := cmp.Or(service.Annotations[contract.ServiceNetwork], "n")
	return network.Named{Name: name, ID: name}
}

func (s *shop) Drifted(context.Context) ([]types.NamespacedName, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looked++
	return slices.Clone(s.stray), nil
}

func (s *shop) began(verb string, name types.NamespacedName) error {
	s.calls = append(s.calls, call{verb: verb, name: name, at: time.Now()})
	if s.fail == nil {
		return nil
	}
	return s.fail(verb, name)
}

// times returns when a verb was called for Services of a name.
func (s *shop) times(verb, name string) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	var times []time.Time
	for _, c := range s.calls {
		if c.verb == verb && c.name.Name == name {
			times = append(times, c.at)
		}
	}
	return times
}

func (s *shop) count(verb, name string) int { return len(s.times(verb, name)) }

func (s *shop) holds(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.given {
		if key.Name == name {
			return true
		}
	}
	return false
}

// set changes the shop while it is in use.
func (s *shop) set(change func(*shop)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// eventLog collects the events for users, as "Type Reason Text".
type eventLog struct {
	recorder *record.FakeRecorder
	mu       sync.Mutex
	events   []string
}

func newEventLog() *eventLog { return &eventLog{recorder: record.NewFakeRecorder(10000)} }

// all returns the events so far.
func (e *eventLog) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	for {
		select {
		case event := <-e.recorder.Events:
			e.events = append(e.events, event)
		default:
			return slices.Clone(e.events)
		}
	}
}

// counts returns how often each type and reason was sent.
func (e *eventLog) counts() map[string]int {
	counts := map[string]int{}
	for _, event := range e.all() {
		var kind, reason string
		if _, err := fmt.Sscan(event, &kind, &reason); err == nil {
			counts[kind+" "+reason]++
		}
	}
	return counts
}

// addressOf returns the address of a Service of that name; empty when it has none.
func (s *shop) addressOf(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, address := range s.given {
		if key.Name == name {
			return address.String()
		}
	}
	return ""
}

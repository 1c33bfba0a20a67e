// Package localhealth asks kube-proxy on this node which Services with externalTrafficPolicy Local have an endpoint
// here: it serves a check on spec.healthCheckNodePort, meant for load balancers: 200 while the node has a ready one and
// 503 while it has none. That costs the API server nothing, and shows what kube-proxy has programmed already.
package localhealth

import (
	"context"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

const (
	// period is the time between two probes of a port, timeout bounds one.
	period  = 500 * time.Millisecond
	timeout = 400 * time.Millisecond
	// each is what one probe adds to the period where there are many ports: at most 250 are sent in a second.
	each = 4 * time.Millisecond
	// parallel bounds the probes at a time. kube-proxy answers in less than a millisecond; it bounds how long a round
	// takes when it answers none.
	parallel = 64
	// idle is the pause when there is nothing to probe, unless wake signals.
	idle = 30 * time.Second
	// patience is how long probes may fail, as when kube-proxy restarts, before endpoints count as gone.
	patience = 9 * period
)

// Prober probes kube-proxy.
type Prober struct {
	// ports returns the ports to probe.
	ports   func() []int32
	changed func()
	wake    loop.Wake
	// probe probes one port. An error means that there was no answer.
	probe  func(ctx context.Context, port int32) (ready bool, err error)
	client *client

	probes, failures atomic.Uint64

	mu    sync.Mutex
	ready map[int32]bool
	// failing is since when the probes of a port have failed.
	failing map[int32]time.Time
}

// New returns a Prober of ports, on the loopback interface and, without an answer there, on the Node's addresses; it
// starts nothing. changed, called at a new answer, must not block. wake signals that the ports may have changed.
func New(wake loop.Wake, ports func() []int32, addresses func() []netip.Addr, changed func()) *Prober {
	kept := newClient(timeout)
	return &Prober{
		ports: ports, changed: changed, wake: wake, ready: map[int32]bool{}, failing: map[int32]time.Time{},
		client: kept,
		probe: func(ctx context.Context, port int32) (bool, error) {
			return kept.probe(ctx, append([]netip.Addr{loopback}, addresses()...), port)
		},
	}
}

// Counters returns how many probes were sent so far, and how many of them had no answer.
func (p *Prober) Counters() (probes, failures uint64) { return p.probes.Load(), p.failures.Load() }

// Ready reports whether the node has a ready endpoint of the Service with that port; false before the first answer.
func (p *Prober) Ready(port int32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ready[port]
}

// Run probes until ctx ends.
func (p *Prober) Run(ctx context.Context) error {
	defer p.client.transport.CloseIdleConnections()
	for ctx.Err() == nil {
		began, ports := time.Now(), p.ports()
		p.probeAll(ctx, ports)
		if len(ports) == 0 {
			p.wake.Wait(ctx, idle)
		} else {
			// Frequent changes must not cause more frequent probes.
			loop.Sleep(ctx, periodOf(len(ports))-time.Since(began))
		}
	}
	return nil
}

// periodOf is the time between two probes of a port where there are that many ports.
func periodOf(ports int) time.Duration { return max(period, time.Duration(ports)*each) }

// answer is that of one probe.
type answer struct {
	ready bool
	err   error
}

// probeAll probes every port once, several at a time.
func (p *Prober) probeAll(ctx context.Context, ports []int32) {
	answers := make([]answer, len(ports))
	var group errgroup.Group
	group.SetLimit(parallel)
	for i, port := range ports {
		group.Go(func() error {
			answers[i].ready, answers[i].err = p.probe(ctx, port)
			return nil
		})
	}
	_ = group.Wait() // an error is part of its answer
	if ctx.Err() == nil && p.take(ports, answers, time.Now()) {
		p.changed()
	}
}

// take takes the answers of a round and reports whether something changed.
func (p *Prober) take(ports []int32, answers []answer, now time.Time) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ready := map[int32]bool{}
	failing := map[int32]time.Time{}
	for i, port := range ports {
		p.probes.Add(1)
		ready[port] = answers[i].ready
		if answers[i].err != nil {
			p.failures.Add(1)
			since, before := p.failing[port]
			if !before {
				since = now
			}
			failing[port] = since
			ready[port] = p.ready[port] && now.Sub(since) < patience
		}
	}
	changed = !maps.Equal(ready, p.ready)
	p.ready = ready
	p.failing = failing
	return changed
}

// loopback is where kube-proxy answers unless it is configured to use only the Node's addresses.
var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// Package localhealth asks kube-proxy on this node which Services with externalTrafficPolicy Local have an endpoint
// here: it serves a check on spec.healthCheckNodePort, meant for load balancers: 200 while the node has a ready one and
// 503 while it has none. That costs the API server nothing, and shows what kube-proxy has programmed already.
package localhealth

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/loop"
)

const (
	// period is the time between probes, timeout bounds one.
	period  = 500 * time.Millisecond
	timeout = 400 * time.Millisecond
	// idle is the pause when there is nothing to probe, unless wake signals.
	idle = 30 * time.Second
	// maxFailures is how many probes in a row may fail, as when kube-proxy restarts, before endpoints count as gone.
	maxFailures = 10
)

// Prober probes kube-proxy.
type Prober struct {
	// ports returns the ports to probe.
	ports   func() []int32
	changed func()
	wake    loop.Wake
	// probe probes one port. An error means that there was no answer.
	probe func(ctx context.Context, port int32) (ready bool, err error)

	mu       sync.Mutex
	ready    map[int32]bool
	failures map[int32]int
}

// New returns a Prober of ports, on the loopback interface and, without an answer there, on the Node's addresses; it
// starts nothing. changed, called at a new answer, must not block. wake signals that the ports may have changed.
func New(wake loop.Wake, ports func() []int32, addresses func() []netip.Addr, changed func()) *Prober {
	client := &http.Client{Timeout: timeout}
	return &Prober{
		ports: ports, changed: changed, wake: wake, ready: map[int32]bool{}, failures: map[int32]int{},
		probe: func(ctx context.Context, port int32) (bool, error) {
			return probeAny(ctx, client, append([]netip.Addr{loopback}, addresses()...), port)
		},
	}
}

// Ready reports whether the node has a ready endpoint of the Service with that port; false before the first answer.
func (p *Prober) Ready(port int32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ready[port]
}

// Run probes until ctx ends.
func (p *Prober) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		began, ports := time.Now(), p.ports()
		p.probeAll(ctx, ports)
		if len(ports) == 0 {
			p.wake.Wait(ctx, idle)
		} else {
			// Frequent changes must not cause more frequent probes.
			loop.Sleep(ctx, period-time.Since(began))
		}
	}
	return nil
}

// probeAll probes every port once, all at the same time.
func (p *Prober) probeAll(ctx context.Context, ports []int32) {
	type answer struct {
		ready bool
		err   error
	}
	answers := make([]answer, len(ports))
	var group sync.WaitGroup
	for i, port := range ports {
		group.Go(func() { answers[i].ready, answers[i].err = p.probe(ctx, port) })
	}
	group.Wait()
	if ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	ready := map[int32]bool{}
	failures := map[int32]int{}
	for i, port := range ports {
		ready[port] = answers[i].ready
		if answers[i].err != nil {
			failures[port] = p.failures[port] + 1
			ready[port] = p.ready[port] && failures[port] < maxFailures
		}
	}
	changed := !maps.Equal(ready, p.ready)
	p.ready = ready
	p.failures = failures
	p.mu.Unlock()
	if changed {
		p.changed()
	}
}

// loopback is where kube-proxy answers unless it is configured to use only the Node's addresses.
var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// probeAny probes the addresses in order until one answers.
func probeAny(ctx context.Context, client *http.Client, addresses []netip.Addr, port int32) (ready bool, err error) {
	var errs []error
	for _, address := range addresses {
		ready, err := probeAt(ctx, client, netip.AddrPortFrom(address, uint16(port))) //nolint:gosec // a TCP port
		if err == nil {
			return ready, nil
		}
		errs = append(errs, err)
	}
	return false, errors.Join(errs...)
}

func probeAt(ctx context.Context, client *http.Client, at netip.AddrPort) (bool, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/healthz", at), http.NoBody)
	if err != nil {
		return false, fmt.Errorf("ask kube-proxy at %s: %w", at, err)
	}
	response, err := client.Do(request)
	if err != nil {
		return false, fmt.Errorf("ask kube-proxy at %s: %w", at, err)
	}
	defer func() { _ = response.Body.Close() }()
	switch response.StatusCode {
	case http.StatusOK:
		return true, nil
	case http.StatusServiceUnavailable:
		return false, nil
	default:
		return false, fmt.Errorf("kube-proxy at %s answers %s: want 200 or 503", at, response.Status)
	}
}

// Package localhealth asks kube-proxy on this node which Services with externalTrafficPolicy Local have a ready endpoint here.
//
// For such a Service kube-proxy serves a check on spec.healthCheckNodePort, meant for load balancers: 200 while the node has
// a ready endpoint, 503 while it has none. To ask it costs the API server nothing, and it says what kube-proxy has made of
// the endpoints, not what it is about to.
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
	// every is the time between questions, timeout bounds one.
	every   = 500 * time.Millisecond
	timeout = 400 * time.Millisecond
	// idle is how long nothing is asked where there is nothing to ask, unless wake says that there is.
	idle = 30 * time.Second
	// patience is how many questions in a row go without an answer before the endpoints count as gone: kube-proxy may be
	// started anew.
	patience = 10
)

// Asker asks kube-proxy.
type Asker struct {
	// ports returns the ports to ask.
	ports   func() []int32
	changed func()
	wake    loop.Wake
	// ask puts one question. An error says that there was no answer.
	ask func(ctx context.Context, port int32) (ready bool, err error)

	mu      sync.Mutex
	ready   map[int32]bool
	silence map[int32]int
}

// New returns an asker of the ports that a function names, on the loopback interface and, where nobody answers there, on the
// addresses of the Node; it starts nothing. changed is called when an answer is another than before; it must not block. wake
// says that there may be other ports to ask.
func New(wake loop.Wake, ports func() []int32, addresses func() []netip.Addr, changed func()) *Asker {
	client := &http.Client{Timeout: timeout}
	return &Asker{
		ports: ports, changed: changed, wake: wake, ready: map[int32]bool{}, silence: map[int32]int{},
		ask: func(ctx context.Context, port int32) (bool, error) {
			return askAny(ctx, client, append([]netip.Addr{loopback}, addresses()...), port)
		},
	}
}

// Ready tells whether the node has a ready endpoint of the Service with that port. Before the first answer it has none.
func (a *Asker) Ready(port int32) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ready[port]
}

// Run asks until ctx ends.
func (a *Asker) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		began, ports := time.Now(), a.ports()
		a.round(ctx, ports)
		if len(ports) == 0 {
			a.wake.Wait(ctx, idle)
		} else {
			// However often something changes, nobody is asked more often for it.
			loop.Sleep(ctx, every-time.Since(began))
		}
	}
	return nil
}

// round asks every port once, all at a time.
func (a *Asker) round(ctx context.Context, ports []int32) {
	type answer struct {
		ready bool
		err   error
	}
	answers := make([]answer, len(ports))
	var group sync.WaitGroup
	for i, port := range ports {
		group.Go(func() { answers[i].ready, answers[i].err = a.ask(ctx, port) })
	}
	group.Wait()
	if ctx.Err() != nil {
		return
	}
	a.mu.Lock()
	ready, silence := map[int32]bool{}, map[int32]int{}
	for i, port := range ports {
		ready[port] = answers[i].ready
		if answers[i].err != nil {
			silence[port] = a.silence[port] + 1
			ready[port] = a.ready[port] && silence[port] < patience
		}
	}
	changed := !maps.Equal(ready, a.ready)
	a.ready, a.silence = ready, silence
	a.mu.Unlock()
	if changed {
		a.changed()
	}
}

// loopback is where kube-proxy answers unless it is told to keep to the Node's addresses.
var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// askAny asks at one address after the other until there is an answer.
func askAny(ctx context.Context, client *http.Client, addresses []netip.Addr, port int32) (ready bool, err error) {
	var errs []error
	for _, address := range addresses {
		ready, err := askAt(ctx, client, netip.AddrPortFrom(address, uint16(port))) //nolint:gosec // a TCP port
		if err == nil {
			return ready, nil
		}
		errs = append(errs, err)
	}
	return false, errors.Join(errs...)
}

func askAt(ctx context.Context, client *http.Client, at netip.AddrPort) (bool, error) {
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

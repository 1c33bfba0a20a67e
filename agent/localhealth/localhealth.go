// Package localhealth asks kube-proxy on this node which Services with externalTrafficPolicy Local have a ready endpoint here.
//
// For such a Service kube-proxy serves a check on spec.healthCheckNodePort, meant for load balancers: 200 while the node has
// a ready endpoint, 503 while it has none. To ask it costs the API server nothing, and it says what kube-proxy has made of
// the endpoints, not what it is about to.
package localhealth

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"
)

const (
	// every is the time between questions, timeout bounds one.
	every   = 500 * time.Millisecond
	timeout = 400 * time.Millisecond
	// patience is how many questions in a row go without an answer before the endpoints count as gone: kube-proxy may be
	// started anew.
	patience = 10
)

// Asker asks kube-proxy.
type Asker struct {
	// ports returns the ports to ask.
	ports   func() []int32
	changed func()
	// ask puts one question. An error says that there was no answer.
	ask func(ctx context.Context, port int32) (ready bool, err error)

	mu      sync.Mutex
	ready   map[int32]bool
	silence map[int32]int
}

// New returns an asker of the ports that a function names; it starts nothing. changed is called when an answer is another
// than before; it must not block.
func New(ports func() []int32, changed func()) *Asker {
	client := &http.Client{Timeout: timeout}
	return &Asker{
		ports: ports, changed: changed, ready: map[int32]bool{}, silence: map[int32]int{},
		ask: func(ctx context.Context, port int32) (bool, error) { return askLoopback(ctx, client, port) },
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
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		a.round(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// round asks every port once, all at a time.
func (a *Asker) round(ctx context.Context) {
	ports := a.ports()
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

func askLoopback(ctx context.Context, client *http.Client, port int32) (bool, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/healthz", port), nil)
	if err != nil {
		return false, fmt.Errorf("ask kube-proxy on port %d: %w", port, err)
	}
	response, err := client.Do(request)
	if err != nil {
		return false, fmt.Errorf("ask kube-proxy on port %d: %w", port, err)
	}
	defer func() { _ = response.Body.Close() }()
	switch response.StatusCode {
	case http.StatusOK:
		return true, nil
	case http.StatusServiceUnavailable:
		return false, nil
	default:
		return false, fmt.Errorf("kube-proxy on port %d answers %s: want 200 or 503", port, response.Status)
	}
}

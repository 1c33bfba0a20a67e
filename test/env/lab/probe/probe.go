// Package probe asks a server, by HTTP or by a datagram, again and again, on a new connection each time, and records
// every answer and every failure, so that an outage can be measured to the length of the interval.
package probe

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/env/lab/wire"
)

// Dial connects from where the probe is to run.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Prober runs one probe.
type Prober struct {
	spec wire.Probe
	ask  func(context.Context) (string, error)

	mu       sync.Mutex
	attempts []wire.Attempt
}

const (
	// bodyLimit is how much of an answer is kept, in bytes.
	bodyLimit = 256
	// attemptLimit bounds the memory of a probe that is never stopped: the oldest attempts are dropped.
	attemptLimit = 100_000
)

// New prepares a probe.
func New(spec wire.Probe, dial Dial) (*Prober, error) {
	if spec.Interval <= 0 || spec.Timeout <= 0 {
		return nil, fmt.Errorf("probe %s: interval %s and timeout %s must be more than 0", spec.URL, spec.Interval,
			spec.Timeout)
	}
	target, err := url.Parse(spec.URL)
	if err != nil {
		return nil, fmt.Errorf("probe %s: %w", spec.URL, err)
	}
	switch target.Scheme {
	case "http":
		transport := &http.Transport{DialContext: dial, DisableKeepAlives: true}
		return &Prober{spec: spec, ask: request{url: spec.URL,
			client: &http.Client{Transport: transport, Timeout: spec.Timeout}}.ask}, nil
	case "udp":
		return &Prober{spec: spec, ask: datagram{address: target.Host, timeout: spec.Timeout, dial: dial}.ask}, nil
	default:
		return nil, fmt.Errorf("probe %s: the scheme must be http or udp", spec.URL)
	}
}

// Run asks until the context ends, waits for the attempts under way and returns nil.
func (p *Prober) Run(ctx context.Context) error {
	var attempts sync.WaitGroup
	defer attempts.Wait()
	ticker := time.NewTicker(p.spec.Interval)
	defer ticker.Stop()
	for {
		attempts.Go(func() { p.attempt(ctx) })
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// attempt makes one request. One that only the end of the probe has cut short is no result.
func (p *Prober) attempt(ctx context.Context) {
	a := wire.Attempt{At: time.Now()}
	body, err := p.ask(ctx)
	if ctx.Err() != nil {
		return
	}
	a.Took = time.Since(a.At)
	a.OK = err == nil
	a.Body = body
	if err != nil {
		a.Error = err.Error()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.attempts = append(p.attempts, a)
	if len(p.attempts) > attemptLimit {
		p.attempts = slices.Delete(p.attempts, 0, attemptLimit/10)
	}
}

// Attempts returns what is known so far, in the order of beginning.
func (p *Prober) Attempts() []wire.Attempt {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := slices.Clone(p.attempts)
	slices.SortFunc(all, func(a, b wire.Attempt) int { return a.At.Compare(b.At) })
	return all
}

// Package probe asks an HTTP server again and again, on a new connection each time, and records every answer and
// every failure, so that an outage can be measured to the length of the interval.
package probe

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/test/lab/wire"
)

// Dial connects from where the probe is to run.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Prober runs one probe.
type Prober struct {
	spec   wire.Probe
	client *http.Client

	mu       sync.Mutex
	attempts []wire.Attempt
}

const (
	// bodyLimit is how much of an answer is kept, in bytes.
	bodyLimit = 256
	// attemptLimit bounds the memory of a probe that nobody stops: the oldest attempts are dropped.
	attemptLimit = 100_000
)

// New prepares a probe.
func New(spec wire.Probe, dial Dial) (*Prober, error) {
	if spec.Interval <= 0 || spec.Timeout <= 0 {
		return nil, fmt.Errorf("probe %s: interval %s and timeout %s must be more than 0", spec.URL, spec.Interval, spec.Timeout)
	}
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: true}
	return &Prober{spec: spec, client: &http.Client{Transport: transport, Timeout: spec.Timeout}}, nil
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
	a.Took, a.OK, a.Body = time.Since(a.At), err == nil, body
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

func (p *Prober) ask(ctx context.Context) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.spec.URL, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, bodyLimit))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("answer %s", resp.Status)
	}
	return string(body), err
}

// Attempts returns what is known so far, in the order of beginning.
func (p *Prober) Attempts() []wire.Attempt {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := slices.Clone(p.attempts)
	slices.SortFunc(all, func(a, b wire.Attempt) int { return a.At.Compare(b.At) })
	return all
}

//go:build linux

package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/wire"
)

// dialFunc connects from where the probe is to run.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// prober asks a server, by HTTP or by a datagram, again and again, on a new connection each time, and records every
// answer and every failure, so that an outage can be measured to the length of the interval.
type prober struct {
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

// newProber prepares a probe.
func newProber(spec wire.Probe, dial dialFunc) (*prober, error) {
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
		return &prober{spec: spec, ask: request{url: spec.URL,
			client: &http.Client{Transport: transport, Timeout: spec.Timeout}}.ask}, nil
	case "udp":
		return &prober{spec: spec, ask: datagram{address: target.Host, timeout: spec.Timeout, dial: dial}.ask}, nil
	default:
		return nil, fmt.Errorf("probe %s: the scheme must be http or udp", spec.URL)
	}
}

// Run asks until the context ends, waits for the attempts under way and returns nil.
func (p *prober) Run(ctx context.Context) error {
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
func (p *prober) attempt(ctx context.Context) {
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
func (p *prober) Attempts() []wire.Attempt {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := slices.Clone(p.attempts)
	slices.SortFunc(all, func(a, b wire.Attempt) int { return a.At.Compare(b.At) })
	return all
}

// request asks by HTTP.
type request struct {
	url    string
	client *http.Client
}

func (r request) ask(ctx context.Context) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := r.client.Do(req)
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

// datagram asks by one datagram, which is not repeated, and takes the first that comes back for the answer.
type datagram struct {
	address string
	timeout time.Duration
	dial    dialFunc
}

func (d datagram) ask(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	conn, err := d.dial(ctx, "udp", d.address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := conn.Write([]byte("?")); err != nil {
		return "", err
	}
	answer := make([]byte, bodyLimit)
	n, err := conn.Read(answer)
	var slow net.Error
	if errors.As(err, &slow) && slow.Timeout() {
		return "", fmt.Errorf("no answer from %s: %w", d.address, err)
	}
	return string(answer[:n]), err
}

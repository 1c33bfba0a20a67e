package main

import (
	"net/http"
	"sync"
	"time"
)

// clock is the clock of the API server, as its answers show it (RFC 9110, section 6.6.1). What is compared with it was
// written by programs of the cluster; the clock of the user's machine may differ, and a controller that works would
// seem to be gone. Without an answer it is the machine's.
type clock struct {
	mu     sync.Mutex
	behind time.Duration // how far the API server is behind this machine
}

// now returns the time of the API server, precise to some seconds.
func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(-c.behind)
}

// wrap returns a transport that reads the time of each answer.
func (c *clock) wrap(next http.RoundTripper) http.RoundTripper { return &dated{next, c} }

type dated struct {
	http.RoundTripper
	clock *clock
}

// RoundTrip implements http.RoundTripper.
func (d *dated) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := d.RoundTripper.RoundTrip(request)
	if err != nil {
		return answer, err
	}
	if at, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
		d.clock.mu.Lock()
		d.clock.behind = time.Since(at).Truncate(time.Second)
		d.clock.mu.Unlock()
	}
	return answer, nil
}

// WrappedRoundTripper returns the transport below, which client-go looks for.
func (d *dated) WrappedRoundTripper() http.RoundTripper { return d.RoundTripper }

//go:build linux

package daemon

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/lab/wire"
)

// server answers on in-memory connections while it is up; while it is down it takes connections and says nothing.
type server struct {
	up     atomic.Bool
	status string
}

func (s *server) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	go s.serve(far)
	return near, nil
}

func (s *server) serve(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		_ = req.Body.Close()
		if s.up.Load() {
			fmt.Fprintf(conn, "HTTP/1.1 %s\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok", s.status)
		}
	}
}

// probing runs a probe for a time while script changes the server.
func probing(t *testing.T, s *server, spec wire.Probe, script func()) []wire.Attempt {
	t.Helper()
	p, err := newProber(spec, s.dial)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	script()
	cancel()
	if err := <-done; err != nil {
		t.Fatalf("Run() = %v, want nil at the end of its context", err)
	}
	return p.Attempts()
}

var spec = wire.Probe{URL: "http://203.0.113.10/", Interval: 100 * time.Millisecond, Timeout: 300 * time.Millisecond}

func TestAnOutageIsMeasuredExactly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{status: "200 OK"}
		s.up.Store(true)
		attempts := probing(t, s, spec, func() {
			time.Sleep(1050 * time.Millisecond)
			s.up.Store(false)
			time.Sleep(2 * time.Second)
			s.up.Store(true)
			time.Sleep(time.Second)
		})
		outages := wire.Outages(attempts)
		if len(outages) != 1 {
			t.Fatalf("outages %+v, want one", outages)
		}
		// The last answered attempt began at 1.0 s, the first answered again at 3.1 s.
		if got, want := outages[0].Duration(), 2100*time.Millisecond; got != want {
			t.Errorf("outage of %v, want %v", got, want)
		}
		if got, want := outages[0].Failed, 20; got != want {
			t.Errorf("%d attempts failed, want %d", got, want)
		}
	})
}

func TestOtherStatusIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{status: "503 Service Unavailable"}
		s.up.Store(true)
		attempts := probing(t, s, spec, func() { time.Sleep(250 * time.Millisecond) })
		if len(attempts) != 3 || attempts[0].OK || attempts[0].Body != "ok" {
			t.Errorf("attempts %+v, want 3 failures with the body", attempts)
		}
	})
}

func TestAFailedConnectionIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := newProber(spec, func(context.Context, string, string) (net.Conn, error) {
			return nil,
				errors.New("no route to host")
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := p.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if got := p.Attempts(); len(got) != 1 || got[0].OK || got[0].Error == "" {
			t.Errorf("attempts %+v, want one failure with its reason", got)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	for name, spec := range map[string]wire.Probe{
		"no interval":      {URL: "http://203.0.113.10/", Timeout: time.Second},
		"no timeout":       {URL: "http://203.0.113.10/", Interval: time.Second},
		"no scheme":        {URL: "203.0.113.10", Interval: time.Second, Timeout: time.Second},
		"an unknown one":   {URL: "tcp://203.0.113.10:80", Interval: time.Second, Timeout: time.Second},
		"a misspelt URL":   {URL: "http://203.0.113.10:80:80", Interval: time.Second, Timeout: time.Second},
		"a URL like space": {URL: "http://203.0.113.10 /", Interval: time.Second, Timeout: time.Second},
	} {
		if _, err := newProber(spec, nil); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// answerOnce answers one datagram.
func answerOnce(conn net.Conn) {
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 10)); err == nil {
		_, _ = conn.Write([]byte("srv-a"))
	}
}

func TestLostDatagramsAreFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		p, err := newProber(
			wire.Probe{URL: "udp://203.0.113.10:53", Interval: time.Second, Timeout: 300 * time.Millisecond},
			func(_ context.Context, network, address string) (net.Conn, error) {
				if network != "udp" || address != "203.0.113.10:53" {
					t.Errorf("dialled %s %s", network, address)
				}
				near, far := net.Pipe()
				if asked++; asked == 3 {
					go func() { // takes it and says nothing
						defer far.Close()
						_, _ = io.Copy(io.Discard, far)
					}()
					return near, nil
				}
				go answerOnce(far)
				return near, nil
			})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 4500*time.Millisecond)
		defer cancel()
		if err := p.Run(ctx); err != nil {
			t.Fatal(err)
		}
		var answered []bool
		for _, a := range p.Attempts() {
			answered = append(answered, a.OK)
			if a.OK && a.Body != "srv-a" || !a.OK && (a.Error == "" || a.Took != 300*time.Millisecond) {
				t.Errorf("attempt %+v", a)
			}
		}
		if diff := cmp.Diff([]bool{true, true, false, true, true}, answered); diff != "" {
			t.Errorf("answered differs (-want +got):\n%s", diff)
		}
	})
}

func TestOutages(t *testing.T) {
	begin := time.Unix(1_000_000_000, 0)
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	attempts := func(pattern string) []wire.Attempt {
		var all []wire.Attempt
		for i, c := range pattern {
			all = append(all, wire.Attempt{At: at(i), OK: c == '+'})
		}
		return all
	}
	for pattern, want := range map[string][]wire.Outage{
		"":       nil,
		"+++":    nil,
		"--":     {{Failed: 2}},
		"-+":     {{To: at(1), Failed: 1}},
		"+--":    {{From: at(0), Failed: 2}},
		"+-+--+": {{From: at(0), To: at(2), Failed: 1}, {From: at(2), To: at(5), Failed: 2}},
	} {
		if diff := cmp.Diff(want, wire.Outages(attempts(pattern))); diff != "" {
			t.Errorf("Outages(%q) differs (-want +got):\n%s", pattern, diff)
		}
	}
}

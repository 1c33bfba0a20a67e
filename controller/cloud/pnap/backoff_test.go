package pnap

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

// clock is a clock that stands still between steps.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func frozen() *clock { return &clock{at: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func TestBackoffGrowsAndVaries(t *testing.T) {
	c := frozen()
	for _, jitter := range []float64{0, 0.5, 0.999} {
		b := newBackoff(c.now)
		b.jitter = func() float64 { return jitter }
		nominal := firstBackoff
		for range 12 {
			b.failed("x", "answer 500")
			pause, why := b.remaining("x")
			if pause < nominal*3/4 || pause > nominal*5/4 || why != "answer 500" {
				t.Fatalf("jitter %v: pause %v (%s), want %v give or take a quarter", jitter, pause, why, nominal)
			}
			nominal = min(2*nominal, longestBackoff)
		}
		if other, _ := b.remaining("y"); other != 0 {
			t.Errorf("another request waits for %v", other)
		}
		b.succeeded("x")
		if pause, _ := b.remaining("x"); pause != 0 {
			t.Errorf("after a success it waits for %v", pause)
		}
	}
}

func TestBackoffForgetsWhatIsNotRepeated(t *testing.T) {
	c := frozen()
	b := newBackoff(c.now)
	b.failed("old", "answer 500")
	c.at = c.at.Add(forgetFailure + time.Second)
	b.failed("new", "answer 500")
	if len(b.failures) != 1 {
		t.Errorf("%d failures are recorded, want 1", len(b.failures))
	}
}

// A request that failed is not sent again before its pause is over, others are, and success ends it.
//
//proves:known-bugs/no-pause-after-429
func TestFailedRequestsHaveToWait(t *testing.T) {
	failing := true
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		if failing && strings.HasSuffix(r.URL.Path, "/bad") {
			answer(w, http.StatusBadGateway, map[string]any{"message": "oops"})
			return
		}
		answer(w, http.StatusOK, map[string]any{"id": r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]})
	})
	c := frozen()
	client := clientOf(t, s, func(config *Config) { config.Now = c.now })
	ask := func(id string) error { _, err := client.Block(t.Context(), id); return err }

	if err := ask("bad"); !IsUnanswered(err) {
		t.Fatalf("got %v", err)
	}
	err := ask("bad")
	var e *Error
	if !errors.As(err, &e) || !IsRefused(err) || e.RetryAfter == 0 || e.RetryAfter > time.Second {
		t.Errorf("at once again: got %#v", err)
	}
	if want := "get IP block bad: not sent: the same request has just failed (answer 502)"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	if err := ask("good"); err != nil {
		t.Errorf("another block: %v", err)
	}
	if calls := s.calls.Load(); calls != 2 {
		t.Errorf("%d requests reached the API, want 2", calls)
	}
	c.at = c.at.Add(time.Second)
	if err := ask("bad"); !IsUnanswered(err) {
		t.Errorf("after the pause: %v", err)
	}
	failing = false
	c.at = c.at.Add(10 * time.Second)
	for range 2 {
		if err := ask("bad"); err != nil {
			t.Errorf("after the failure: %v", err)
		}
	}
}

func TestAConflictIsNotRepeatedAtOnce(t *testing.T) {
	s := newService(t, raw(409, "application/json", `{"message":"busy"}`))
	c := frozen()
	client := clientOf(t, s, func(config *Config) { config.Now = c.now })
	first := client.AssignBlock(t.Context(), "n1", "b1")
	second := client.AssignBlock(t.Context(), "n1", "b1")
	if !IsConflict(first) || IsConflict(second) || !IsRefused(second) {
		t.Errorf("got %v and %v", first, second)
	}
	if other := client.AssignBlock(t.Context(), "n1", "b2"); !IsConflict(other) {
		t.Errorf("another block: got %v", other)
	}
	c.at = c.at.Add(conflictPause)
	if third := client.AssignBlock(t.Context(), "n1", "b1"); !IsConflict(third) {
		t.Errorf("after the pause: got %v", third)
	}
}

// A caller that gives up does not count as a failure of the API.
func TestAnEndedContextIsNoFailure(t *testing.T) {
	var served atomic.Int32
	arrived := make(chan struct{})
	release := make(chan struct{})
	s := newService(t, func(w http.ResponseWriter, _ *http.Request) {
		if served.Add(1) == 1 {
			close(arrived)
			<-release
		}
		answer(w, http.StatusOK, []any{})
	})
	client := clientOf(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	if _, err := client.Servers(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	close(release)
	if client.Health().Failing() {
		t.Errorf("health %+v", client.Health())
	}
	if _, err := client.Servers(t.Context()); err != nil {
		t.Errorf("the next request: %v", err)
	}
}

func TestRetryAfterIsMissing(t *testing.T) {
	c := frozen()
	h := &holdOff{now: c.now}
	for _, want := range []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second} {
		h.start(http.Header{})
		if got := h.remaining(); got != want {
			t.Errorf("pause %v, want %v", got, want)
		}
		c.at = c.at.Add(want)
	}
	h.succeeded()
	h.start(http.Header{})
	if got := h.remaining(); got != defaultPause {
		t.Errorf("after a success: pause %v, want %v", got, defaultPause)
	}
}

// TestRetryAfterIsBounded: no header stops the client for more than ten minutes, and none makes it hurry.
func TestRetryAfterIsBounded(t *testing.T) {
	c := frozen()
	for value, want := range map[string]time.Duration{
		"30": 30 * time.Second, "2592000": longestPause, "99999999999999999999": 0, "-5": 0, "1.5": 0,
		"soon": 0, "": 0,
		c.at.Add(time.Minute).UTC().Format(http.TimeFormat):     time.Minute,
		c.at.AddDate(1, 0, 0).UTC().Format(http.TimeFormat):     longestPause,
		c.at.Add(-time.Minute).UTC().Format(http.TimeFormat):    0,
		time.Unix(1<<37, 0).UTC().Format("2006-01-02T15:04:05"): 0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {value}}, c.at); got != want {
			t.Errorf("Retry-After %q is read as %s, want %s", value, got, want)
		}
		h := &holdOff{now: c.now}
		h.start(http.Header{"Retry-After": {value}})
		if got := h.remaining(); got > longestPause || want > 0 && got != want {
			t.Errorf("Retry-After %q holds requests back for %s, want %s", value, got, want)
		}
	}
}

// roundTrip implements http.RoundTripper with a function.
type roundTrip func(*http.Request) (*http.Response, error)

func (r roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// The rate limit allows a burst and then one request each tenth of a second; a request that cannot wait fails.
//
//proves:known-bugs/no-pause-after-429
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := NewMetrics()
		sent := 0
		tr := newTransport(withDefaults(Config{RequestsPerSecond: 10, Metrics: metrics}), &tokenSource{
			Config: Config{Now: time.Now, Credentials: func() (string, string, error) { return "", "", nil }},
			token:  "t", renewAt: time.Now().Add(time.Hour), backoff: newBackoff(time.Now),
		}, &condition{now: time.Now})
		tr.base = roundTrip(func(*http.Request) (*http.Response, error) {
			sent++
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Header: http.Header{}}, nil
		})
		ask := func(ctx context.Context) error {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://pnap.example/x", nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := tr.RoundTrip(request)
			if err == nil {
				_ = response.Body.Close()
			}
			return err
		}
		began := time.Now()
		for range 50 {
			if err := ask(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took != 3*time.Second || sent != 50 {
			t.Errorf("%d requests in %v, want 50 in 3s: 20 at once, 30 more in tenths", sent, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := ask(ctx); !errors.Is(err, ErrUnsent) || !strings.Contains(err.Error(), "rate limit") || sent != 50 {
			t.Errorf("without time to wait: %v after %d requests", err, sent)
		}
	})
}

func TestNoBudget(t *testing.T) {
	if limit := newBudget(0).Limit(); limit != rate.Inf {
		t.Errorf("limit %v", limit)
	}
}

// Rejected credentials are not retried at once by every request, but changed ones are.
func TestRefusedCredentialsHaveToWait(t *testing.T) {
	s := newService(t, empty)
	secret := "wrong"
	asked := 0
	s.token = func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.FormValue("client_secret") != testSecret {
			answer(w, http.StatusUnauthorized, map[string]any{"error": "invalid_client"})
			return
		}
		s.serveTokenFor(w)
	}
	c := frozen()
	client := clientOf(t, s, func(config *Config) {
		config.Now = c.now
		config.Credentials = func() (string, string, error) { return testID, secret, nil }
	})
	for range 5 {
		if _, err := client.Servers(t.Context()); !IsRefused(err) ||
			!strings.Contains(err.Error(), "check the client ID") {
			t.Errorf("got %v", err)
		}
	}
	if asked != 1 {
		t.Errorf("%d requests for a token, want 1", asked)
	}
	secret = testSecret
	if _, err := client.Servers(t.Context()); err != nil || asked != 2 {
		t.Errorf("with the right secret: %v after %d requests for a token", err, asked)
	}
}

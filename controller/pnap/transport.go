package pnap

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	// maxBody bounds an answer. A list of a thousand servers has about 3 MB.
	maxBody = 64 << 20
	// defaultPause follows a 429 without Retry-After, longestPause caps what a Retry-After may ask for.
	defaultPause = 5 * time.Second
	longestPause = 10 * time.Minute
)

// unsentError is why a request never left.
type unsentError struct {
	cause      error
	retryAfter time.Duration
}

func (e *unsentError) Error() string {
	if e.cause != nil {
		return e.cause.Error()
	}
	return fmt.Sprintf("the API asked for a pause, %s of it remain", e.retryAfter.Round(time.Second))
}

func (e *unsentError) Unwrap() error { return e.cause }

// transport adds the token to a request, replaces it once when the API does not know it any more, and
// keeps the pause that a 429 asked for.
type transport struct {
	base      http.RoundTripper
	tokens    *tokenSource
	hold      *holdOff
	userAgent string
}

// RoundTrip implements http.RoundTripper. Sending again after a 401 is safe for any method: an
// unauthenticated request has done nothing.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if pause := t.hold.remaining(); pause > 0 {
		closeBody(request)
		return nil, &unsentError{retryAfter: pause}
	}
	token, err := t.tokens.get(request.Context())
	if err != nil {
		closeBody(request)
		return nil, &unsentError{cause: err}
	}
	response, err := t.send(request, request.Body, token)
	if err != nil || response.StatusCode != http.StatusUnauthorized {
		return response, err
	}
	return t.again(request, response, token)
}

// again repeats a request that was answered 401 with a fresh token. When that cannot be had, the
// first answer stands.
func (t *transport) again(request *http.Request, answered *http.Response, stale string) (*http.Response, error) {
	t.tokens.invalidate(stale)
	var body io.ReadCloser
	if request.Body != nil && request.Body != http.NoBody {
		if request.GetBody == nil {
			return answered, nil
		}
		var err error
		if body, err = request.GetBody(); err != nil {
			return answered, nil //nolint:nilerr // the 401 tells more
		}
	}
	token, err := t.tokens.get(request.Context())
	if err != nil {
		if body != nil {
			_ = body.Close() // a reader of bytes in memory
		}
		return answered, nil // the 401 tells more
	}
	_ = answered.Body.Close() // it is replaced by the second answer
	return t.send(request, body, token)
}

func (t *transport) send(request *http.Request, body io.ReadCloser, token string) (*http.Response, error) {
	outgoing := request.Clone(request.Context())
	outgoing.Body = body
	outgoing.Header.Set("Authorization", "Bearer "+token)
	if t.userAgent != "" {
		outgoing.Header.Set("User-Agent", t.userAgent)
	}
	response, err := t.base.RoundTrip(outgoing)
	if err != nil {
		return nil, err
	}
	response.Body = http.MaxBytesReader(nil, response.Body, maxBody)
	if response.StatusCode == http.StatusTooManyRequests {
		t.hold.start(response.Header)
	}
	return response, nil
}

func closeBody(request *http.Request) {
	if request.Body != nil {
		_ = request.Body.Close() // http.RoundTripper must close it; there is nobody to tell
	}
}

// baseTransport has connections of its own, so that closing them disturbs nobody else.
func baseTransport() http.RoundTripper {
	if shared, ok := http.DefaultTransport.(*http.Transport); ok {
		return shared.Clone()
	}
	return http.DefaultTransport
}

// refuseRedirect keeps the token from travelling to another host.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// holdOff remembers until when the API wants to be left alone.
type holdOff struct {
	now   func() time.Time
	mu    sync.Mutex
	until time.Time
}

func (h *holdOff) start(header http.Header) {
	h.mu.Lock()
	defer h.mu.Unlock()
	pause := retryAfter(header, h.now())
	if pause == 0 {
		pause = defaultPause
	}
	if until := h.now().Add(min(pause, longestPause)); until.After(h.until) {
		h.until = until
	}
}

func (h *holdOff) remaining() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(h.until.Sub(h.now()), 0)
}

// retryAfter reads the header of that name: seconds or a date (RFC 9110, section 10.2.3); 0 when it is
// absent, cannot be read or lies in the past.
func retryAfter(header http.Header, now time.Time) time.Duration {
	value := header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if date, err := http.ParseTime(value); err == nil {
		return max(date.Sub(now), 0)
	}
	return 0
}

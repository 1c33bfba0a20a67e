package pnap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/time/rate"
)

// maxBody bounds the size of an answer. A list of a thousand servers has about 3 MB.
const maxBody = 64 << 20

// ErrUnsent is part of the error, for errors.Is, of a request that was not sent. A RoundTripper of Config.Wrap also
// returns it for a request that it did not send.
var ErrUnsent = errors.New("the request was not sent")

// unsentError is why a request was not sent. Its text does not contain the pause: repeated ones are equal.
type unsentError struct {
	error
	retryAfter time.Duration
}

func (e *unsentError) Unwrap() error { return e.error }

// Is reports whether target is ErrUnsent.
func (e *unsentError) Is(target error) bool { return target == ErrUnsent }

// Why a request is held back.
var (
	errPaused   = errors.New("the API required a pause")
	errRepeated = errors.New("the same request has just failed")
)

// errDryRun is the error of every change in a dry run.
var errDryRun = errors.New("dry run")

// transport adds the token to a request, replaces it once when the API no longer accepts it, and enforces the client's
// limits: the rate limit, the pause of a 429, the backoff after failures, and in a dry run no change at all.
type transport struct {
	Config
	base    http.RoundTripper
	tokens  *tokenSource
	hold    *holdOff
	backoff *backoff
	budget  *rate.Limiter
	health  *condition
}

func newTransport(config Config, tokens *tokenSource, health *condition) *transport {
	base := fenced(config.Fence)
	if config.Wrap != nil {
		base = config.Wrap(base)
	}
	return &transport{
		Config:  config,
		base:    &loggingTransport{base: base, redact: tokens.redact, objects: true, now: config.Now},
		tokens:  tokens,
		hold:    &holdOff{now: config.Now},
		backoff: newBackoff(config.Now),
		budget:  newBudget(config.RequestsPerSecond),
		health:  health,
	}
}

// newBudget always uses the real clock, not Config.Now, because it protects the real API.
func newBudget(perSecond int) *rate.Limiter {
	if perSecond == 0 {
		return rate.NewLimiter(rate.Inf, 0)
	}
	return rate.NewLimiter(rate.Limit(perSecond), 2*perSecond)
}

// changes reports whether a request with that method changes something.
func changes(method string) bool { return method != http.MethodGet && method != http.MethodHead }

// RoundTrip implements http.RoundTripper. Sending again after a 401 is safe for any method: an
// unauthenticated request has done nothing.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	op := operationOf(request.Context())
	if t.DryRun && changes(request.Method) {
		closeBody(request)
		t.Metrics.request(op, codeDryRun)
		return nil, errDryRun
	}
	token, err := t.admit(request)
	if err != nil {
		closeBody(request)
		t.Metrics.request(op, codeUnsent)
		return nil, err
	}
	response, err := t.send(request, request.Body, token)
	if err != nil || response.StatusCode != http.StatusUnauthorized {
		return response, err
	}
	response, err = t.again(request, response, token)
	if err == nil && response.StatusCode == http.StatusUnauthorized {
		t.failed(request, response.StatusCode)
	}
	return response, err
}

// admit waits for the rate limit and returns the token, or the reason why the request must not be sent now.
func (t *transport) admit(request *http.Request) (string, error) {
	ctx := request.Context()
	if err := t.heldBack(request); err != nil {
		return "", err
	}
	if !t.budget.Allow() {
		t.Metrics.throttle(byBudget)
		if err := t.budget.Wait(ctx); err != nil {
			return "", &unsentError{error: fmt.Errorf("the request rate limit is exceeded: %w", err)}
		}
	}
	if err := t.heldBack(request); err != nil { // a pause may have begun in the meantime
		return "", err
	}
	token, err := t.tokens.get(ctx)
	if err != nil {
		t.health.failed(ctx, t.tokens.redact(withCertificateRemedy(err)))
		return "", &unsentError{error: err}
	}
	return token, nil
}

func (t *transport) heldBack(request *http.Request) error {
	if pause := t.hold.remaining(); pause > 0 {
		t.Metrics.throttle(byRetryAfter)
		return &unsentError{errPaused, pause}
	}
	if pause, why := t.backoff.remaining(keyOf(request)); pause > 0 {
		t.Metrics.throttle(byBackoff)
		return &unsentError{fmt.Errorf("%w (%s)", errRepeated, why), pause}
	}
	return nil
}

// again repeats a request that was answered 401 with a new token. If it gets no token, it returns the first answer.
func (t *transport) again(request *http.Request, answered *http.Response, stale string) (*http.Response, error) {
	t.tokens.invalidate(stale)
	var body io.ReadCloser
	if request.Body != nil && request.Body != http.NoBody {
		if request.GetBody == nil {
			return answered, nil
		}
		var err error
		if body, err = request.GetBody(); err != nil {
			return answered, nil //nolint:nilerr // the 401 is more informative
		}
	}
	token, err := t.tokens.get(request.Context())
	if err != nil {
		if body != nil {
			_ = body.Close() // a reader of bytes in memory
		}
		return answered, nil // the 401 is more informative
	}
	_ = answered.Body.Close() // it is replaced by the second answer
	return t.send(request, body, token)
}

func (t *transport) send(request *http.Request, body io.ReadCloser, token string) (*http.Response, error) {
	ctx := request.Context()
	outgoing := request.Clone(ctx)
	outgoing.Body = body
	outgoing.Header.Set("Authorization", "Bearer "+token)
	if t.UserAgent != "" {
		outgoing.Header.Set("User-Agent", t.UserAgent)
	}
	op := operationOf(ctx)
	began := t.Now()
	response, err := t.base.RoundTrip(outgoing)
	if errors.Is(err, ErrUnsent) {
		t.Metrics.request(op, codeUnsent)
		return nil, err
	}
	t.Metrics.duration(op, t.Now().Sub(began))
	if err != nil {
		t.lost(request, err)
		return nil, err
	}
	response.Body = http.MaxBytesReader(nil, response.Body, maxBody)
	t.answered(request, response)
	return response, nil
}

// lost records a missing answer. A caller that gave up does not count as a failure of the API.
func (t *transport) lost(request *http.Request, err error) {
	t.Metrics.request(operationOf(request.Context()), codeError)
	if errors.Is(request.Context().Err(), context.Canceled) {
		return
	}
	t.backoff.failed(keyOf(request), "no answer")
	t.health.failed(request.Context(), t.tokens.redact("no answer: "+withCertificateRemedy(err)))
}

// answered updates the API's health and the backoff from an answer.
func (t *transport) answered(request *http.Request, response *http.Response) {
	status := response.StatusCode
	t.Metrics.request(operationOf(request.Context()), strconv.Itoa(status))
	switch {
	case status == http.StatusUnauthorized:
		return // a new token may help, which RoundTrip fetches
	case status >= http.StatusInternalServerError:
		t.failed(request, status)
		return
	case status == http.StatusTooManyRequests:
		t.hold.start(response.Header)
		t.health.failed(request.Context(), describe(status))
		return
	case status == http.StatusConflict:
		t.backoff.conflict(keyOf(request))
	default:
		t.backoff.succeeded(keyOf(request))
	}
	t.hold.succeeded()
	t.health.succeeded(request.Context())
}

func (t *transport) failed(request *http.Request, status int) {
	t.backoff.failed(keyOf(request), "answer "+strconv.Itoa(status))
	t.health.failed(request.Context(), describe(status))
}

func describe(status int) string { return fmt.Sprintf("answer %d %s", status, http.StatusText(status)) }

func closeBody(request *http.Request) {
	if request.Body != nil {
		_ = request.Body.Close() // http.RoundTripper must close it; the error has no recipient
	}
}

// baseTransport has separate connections, so that closing them affects no other client.
func baseTransport() http.RoundTripper {
	if shared, ok := http.DefaultTransport.(*http.Transport); ok {
		return shared.Clone()
	}
	return http.DefaultTransport
}

// refuseRedirect prevents the token from being sent to another host.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// fencedTransport calls the fence before it sends a change. Changes have separate connections, which call the fence
// again before every write: in the meantime, as while they were established, the process can be suspended for any time.
type fencedTransport struct {
	fence          func() error
	reads, changes http.RoundTripper
}

// fenced returns the transport that sends requests; fence may be nil.
func fenced(fence func() error) http.RoundTripper {
	reads := baseTransport()
	if fence == nil {
		return reads
	}
	changes := baseTransport()
	if transport, ok := changes.(*http.Transport); ok {
		fenceWrites(transport, fence)
	}
	return &fencedTransport{fence: fence, reads: reads, changes: changes}
}

// RoundTrip implements http.RoundTripper.
func (t *fencedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if !changes(request.Method) {
		return t.reads.RoundTrip(request)
	}
	if err := t.fence(); err != nil {
		closeBody(request)
		return nil, &unsentError{error: err}
	}
	response, err := t.changes.RoundTrip(request)
	if err == nil {
		return response, nil
	}
	// What http.Transport returns after a rejected write may be only that the connection is closed.
	if _, rejected := errors.AsType[*rejectedError](err); !rejected {
		if closed := t.fence(); closed != nil {
			err = fmt.Errorf("%w: %w", closed, err)
		}
	}
	return nil, err
}

// fenceWrites makes the connections of a transport call the fence.
func fenceWrites(transport *http.Transport, fence func() error) {
	dial := transport.DialContext
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		connection, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &fencedConnection{Conn: connection, fence: fence}, nil
	}
}

// fencedConnection rejects writes when the fence is closed. Such a request does not count as not sent: the rejected
// write may be the rest of a request, or the answer to a ping while another request waits for its answer (HTTP/2).
type fencedConnection struct {
	net.Conn
	fence func() error
}

// Write implements net.Conn.
func (c *fencedConnection) Write(b []byte) (int, error) {
	if err := c.fence(); err != nil {
		return 0, &rejectedError{err}
	}
	return c.Conn.Write(b)
}

// rejectedError is why a connection rejected a write.
type rejectedError struct{ error }

// Unwrap is for errors.Is and errors.As.
func (e *rejectedError) Unwrap() error { return e.error }

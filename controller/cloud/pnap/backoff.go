package pnap

import (
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

const (
	// defaultPause follows the first 429 without Retry-After and doubles with each further one up to
	// longestDefaultPause; longestPause bounds a Retry-After where it is read: a mistake of the API, or of a proxy,
	// must not stop the controller for days.
	defaultPause        = 5 * time.Second
	longestDefaultPause = 2 * time.Minute
	longestPause        = 10 * time.Minute

	// firstBackoff follows the first failure of a request and doubles with each further one up to
	// longestBackoff. It has a random jitter of a quarter, so that many clients do not retry at the same time.
	firstBackoff   = 500 * time.Millisecond
	longestBackoff = 30 * time.Second
	// conflictPause follows a 409: the state behind it lasts for seconds.
	conflictPause = time.Second
	// forgetFailure is how long the failures of a request that is not retried are kept.
	forgetFailure = 10 * time.Minute
)

// holdOff records until when the API requires the client to wait.
type holdOff struct {
	now    func() time.Time
	mu     sync.Mutex
	until  time.Time
	inARow int // answers 429 without Retry-After
}

func (h *holdOff) start(header http.Header) {
	h.mu.Lock()
	defer h.mu.Unlock()
	pause := retryAfter(header, h.now())
	if pause == 0 {
		pause = loop.Backoff(defaultPause, longestDefaultPause, h.inARow)
		h.inARow++
	}
	if until := h.now().Add(pause); until.After(h.until) {
		h.until = until
	}
}

func (h *holdOff) succeeded() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.inARow = 0
}

func (h *holdOff) remaining() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(h.until.Sub(h.now()), 0)
}

// retryAfter reads the header of that name: seconds or a date (RFC 9110, section 10.2.3); at most longestPause, and 0
// when it is absent, cannot be read or lies in the past.
func retryAfter(header http.Header, now time.Time) time.Duration {
	value := header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, longestPause)
	}
	if date, err := http.ParseTime(value); err == nil {
		return min(max(date.Sub(now), 0), longestPause)
	}
	return 0
}

// backoff records failed requests separately: an object that the API cannot serve must not delay the others.
type backoff struct {
	now    func() time.Time
	jitter func() float64 // from 0 up to 1

	mu       sync.Mutex
	failures map[string]failureRecord
}

// failureRecord is the recent failure of a request.
type failureRecord struct {
	count int
	why   string
	at    time.Time
	until time.Time
}

func newBackoff(now func() time.Time) *backoff {
	return &backoff{now: now, jitter: rand.Float64, failures: map[string]failureRecord{}}
}

// keyOf identifies a request by method, address and body.
func keyOf(request *http.Request) string {
	key := request.Method + " " + request.URL.RequestURI()
	if request.GetBody == nil {
		return key
	}
	body, err := request.GetBody()
	if err != nil {
		return key
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, body); err != nil {
		return key
	}
	return key + " " + string(sum.Sum(nil))
}

// failed records a 5xx or a missing answer.
func (b *backoff) failed(key, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget()
	count := b.failures[key].count
	pause := float64(loop.Backoff(firstBackoff, longestBackoff, count)) * (0.75 + b.jitter()/2)
	b.failures[key] = failureRecord{count: count + 1, why: why, at: b.now(), until: b.now().Add(time.Duration(pause))}
}

// conflict records a 409.
func (b *backoff) conflict(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget()
	b.failures[key] = failureRecord{why: "answer " + strconv.Itoa(http.StatusConflict), at: b.now(),
		until: b.now().Add(conflictPause)}
}

func (b *backoff) succeeded(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.failures, key)
}

// remaining is how long the request has to wait, and for what.
func (b *backoff) remaining(key string) (time.Duration, string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.failures[key]
	return max(f.until.Sub(b.now()), 0), f.why
}

func (b *backoff) forget() {
	for key, f := range b.failures {
		if b.now().Sub(f.at) > forgetFailure {
			delete(b.failures, key)
		}
	}
}

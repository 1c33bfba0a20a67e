package pnap

import (
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/loop"
)

const (
	// defaultPause follows the first 429 without Retry-After and doubles with each further one up to
	// longestDefaultPause; longestPause caps what a Retry-After may ask for.
	defaultPause        = 5 * time.Second
	longestDefaultPause = 2 * time.Minute
	longestPause        = 10 * time.Minute

	// firstBackoff follows the first failure of a request and doubles with each further one up to
	// longestBackoff. A quarter more or less is left to chance, so that many do not come back together.
	firstBackoff   = 500 * time.Millisecond
	longestBackoff = 30 * time.Second
	// conflictPause follows a 409: the state that it speaks of lasts for seconds.
	conflictPause = time.Second
	// forgetFailure is when the failures of a request that nobody repeats are forgotten.
	forgetFailure = 10 * time.Minute
)

// holdOff remembers until when the API wants to be left alone.
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
	if until := h.now().Add(min(pause, longestPause)); until.After(h.until) {
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

// backoff remembers which requests failed, each by itself: an object that the API cannot serve must not
// keep others waiting.
type backoff struct {
	now    func() time.Time
	jitter func() float64 // from 0 up to 1

	mu    sync.Mutex
	fates map[string]failureRecord
}

// failureRecord is what became of a request lately.
type failureRecord struct {
	failures int
	why      string
	at       time.Time
	until    time.Time
}

func newBackoff(now func() time.Time) *backoff {
	return &backoff{now: now, jitter: rand.Float64, fates: map[string]failureRecord{}}
}

// keyOf tells requests apart by method, address and body.
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

// failed notes a 5xx or a missing answer.
func (b *backoff) failed(key, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget()
	failures := b.fates[key].failures
	pause := float64(loop.Backoff(firstBackoff, longestBackoff, failures)) * (0.75 + b.jitter()/2)
	b.fates[key] = failureRecord{failures: failures + 1, why: why, at: b.now(), until: b.now().Add(time.Duration(pause))}
}

// conflict notes a 409.
func (b *backoff) conflict(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget()
	b.fates[key] = failureRecord{why: "answer " + strconv.Itoa(http.StatusConflict), at: b.now(), until: b.now().Add(conflictPause)}
}

func (b *backoff) succeeded(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.fates, key)
}

// remaining is how long the request has to wait, and for what.
func (b *backoff) remaining(key string) (time.Duration, string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.fates[key]
	return max(f.until.Sub(b.now()), 0), f.why
}

func (b *backoff) forget() {
	for key, f := range b.fates {
		if b.now().Sub(f.at) > forgetFailure {
			delete(b.fates, key)
		}
	}
}

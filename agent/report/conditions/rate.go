package conditions

import (
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/pkg/loop"
)

const (
	// writeBurst writes may follow each other at once, and one more for each writePause that passes: every write of a
	// Node reaches every watcher of Nodes in the cluster, and another program may set our conditions to other values.
	writeBurst = 10
	writePause = 5 * time.Second
	// firstRetry and lastRetry bound the pause after a write that failed; it doubles in between. A tenth of it, more or
	// less, is chance, so that a thousand agents do not meet an API server that comes back all at once.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// rate limits how often the Node is written. Its zero value allows writeBurst writes.
type rate struct {
	// spent writes count against the burst; the oldest is forgiven at forgiven plus writePause.
	spent    int
	forgiven time.Time
	// failures counts those in a row, retryAt is when to try again.
	failures int
	retryAt  time.Time
}

// wait returns how long the next write has to wait, 0 when it may go at once.
func (p *rate) wait(now time.Time) time.Duration {
	if now.Before(p.retryAt) {
		return p.retryAt.Sub(now)
	}
	p.forgive(now)
	if p.spent < writeBurst {
		return 0
	}
	return p.forgiven.Add(writePause).Sub(now)
}

func (p *rate) forgive(now time.Time) {
	passed := int(now.Sub(p.forgiven) / writePause)
	if passed >= p.spent {
		p.spent = 0
		p.forgiven = now
		return
	}
	p.spent, p.forgiven = p.spent-passed, p.forgiven.Add(time.Duration(passed)*writePause)
}

// wrote notes a write that succeeded.
func (p *rate) wrote(now time.Time) {
	p.forgive(now)
	p.spent, p.failures, p.retryAt = p.spent+1, 0, time.Time{}
}

// failed notes a write that did not.
func (p *rate) failed(now time.Time) {
	p.retryAt = now.Add(loop.Jitter(loop.Backoff(firstRetry, lastRetry, p.failures), 10))
	p.failures++
}

// renew forgets failures: the Node is gone, and another one has its name.
func (p *rate) renew() {
	p.failures = 0
	p.retryAt = time.Time{}
}

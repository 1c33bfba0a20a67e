package account

import (
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

// Backoff is until when a block is not changed again after failed changes. Each change keeps the network BUSY: without
// pauses one block that is stuck would keep all others from being assigned or released.
type Backoff struct {
	Until    time.Time
	failures int
}

// After returns the Backoff after one more failure: one minute, and twice as long each time, up to 16 minutes.
func (b Backoff) After(now time.Time) Backoff {
	return Backoff{Until: now.Add(loop.Backoff(time.Minute, 16*time.Minute, b.failures)), failures: b.failures + 1}
}

//go:build !slowheartbeats

package election

import "time"

// HeartbeatInterval is the time between two heartbeats. The timeouts are multiples of it.
const HeartbeatInterval = 100 * time.Millisecond

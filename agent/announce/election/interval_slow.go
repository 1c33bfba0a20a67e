//go:build slowheartbeats

package election

import "time"

// HeartbeatInterval is the time between two heartbeats for tests on emulated machines, which share a processor and so
// may stand still for longer than three usual heartbeats take.
const HeartbeatInterval = time.Second

//go:build linux

// Package boottime reads the clock that never jumps and that continues while the machine sleeps.
package boottime

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the time since the machine was started (CLOCK_BOOTTIME, clock_gettime(2)). Unlike the monotonic clock,
// which Go's timers use, it counts the time that the machine slept; unlike the wall clock it is never set.
func Now() time.Duration {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return 0 // every kernel since 2.6.39 has it
	}
	return time.Duration(now.Nano())
}

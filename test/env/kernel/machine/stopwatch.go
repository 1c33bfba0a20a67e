//go:build linux

package machine

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// limitEvery is the time between two looks at a limit.
const limitEvery = 500 * time.Millisecond

// stopwatch measures for how long a program could have run: since it was started, without the time in which it waited
// for a processor. On a busy computer a machine needs many times as long as on an idle one, so a limit on the time of
// day would end one that makes progress.
type stopwatch struct {
	started time.Time
	// waited returns how long the program has waited for a processor until now, 0 once it has ended.
	waited func() time.Duration
}

// cancelAfter calls cancel with the cause when limit has elapsed, unless ctx ends before.
func (s stopwatch) cancelAfter(ctx context.Context, limit time.Duration, cancel context.CancelCauseFunc, cause error) {
	ticker := time.NewTicker(limitEvery)
	defer ticker.Stop()
	waited := time.Duration(0)
	for {
		waited = max(waited, s.waited())
		if time.Since(s.started)-waited >= limit {
			cancel(cause)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// processorWait is how long the thread of a process that waited longest has waited for a processor since it exists
// (https://docs.kernel.org/scheduler/sched-stats.html). It is 0 where the kernel does not count that, and once the
// process has ended.
func processorWait(pid int) time.Duration {
	files, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/schedstat") // the pattern is valid
	longest := time.Duration(0)
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		longest = max(longest, runDelay(string(raw)))
	}
	return longest
}

// runDelay is the second of the three numbers of a schedstat file: nanoseconds spent waiting on a run queue.
func runDelay(schedstat string) time.Duration {
	fields := strings.Fields(schedstat)
	if len(fields) < 2 {
		return 0
	}
	nanoseconds, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(nanoseconds)
}

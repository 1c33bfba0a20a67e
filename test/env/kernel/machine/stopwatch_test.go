//go:build linux

package machine

import (
	"context"
	"errors"
	"os/exec"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/limits"
	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/tools/subprocess"
)

// TestLimitCountsNoWaiting: a limit of two minutes ends a machine that has every processor after two minutes, and one
// that gets a quarter of one after eight.
func TestLimitCountsNoWaiting(t *testing.T) {
	for name, tc := range map[string]struct {
		waiting float64 // the share of the time in which it waits for a processor
		want    time.Duration
	}{
		"idle computer":  {0, 2 * time.Minute},
		"busy computer":  {0.75, 8 * time.Minute},
		"loaded forever": {1, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				limited, stop := context.WithTimeout(ctx, time.Hour)
				defer stop()
				started := time.Now()
				w := stopwatch{started: started, waited: func() time.Duration {
					return time.Duration(tc.waiting * float64(time.Since(started)))
				}}
				w.cancelAfter(limited, 2*time.Minute, cancel, ErrTimeLimit)
				if took := time.Since(started); took < tc.want || took > tc.want+limitEvery {
					t.Errorf("it ended after %s, want %s", took, tc.want)
				}
				if ended := errors.Is(context.Cause(ctx), ErrTimeLimit); ended != (tc.waiting < 1) {
					t.Errorf("cause %v", context.Cause(ctx))
				}
			})
		})
	}
}

// TestProcessorWaitIsSeen: of two programs on one processor each waits while the other one runs.
func TestProcessorWaitIsSeen(t *testing.T) {
	var usable, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &usable); err != nil {
		t.Fatal(err)
	}
	processor := 0
	for !usable.IsSet(processor) {
		processor++
	}
	one.Set(processor)
	var loops []*subprocess.Process
	for range 2 {
		p, err := subprocess.Start(exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Stop(limits.Wait) })
		if err := unix.SchedSetaffinity(p.PID(), &one); err != nil {
			t.Fatal(err)
		}
		loops = append(loops, p)
	}
	deadline := time.Now().Add(limits.Wait)
	for _, p := range loops {
		for processorWait(p.PID()) < 100*time.Millisecond {
			if time.Now().After(deadline) {
				t.Fatalf("process %d has waited for %s, want 100 ms", p.PID(), processorWait(p.PID()))
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

func TestRunDelay(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"5745945 59069593 3\n": 59069593, "": 0, "1": 0, "1 x 3": 0,
	} {
		if got := runDelay(text); got != want {
			t.Errorf("runDelay(%q) = %s, want %s", text, got, want)
		}
	}
}

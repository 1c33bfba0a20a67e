//go:build linux

package responder

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/wire/packet"
)

func TestNow(t *testing.T) {
	// The other clock is read first: a test that is interrupted between the two readings sees more time pass, not less.
	monotonic := time.Now()
	before := Now()
	for Now() < before+20*time.Millisecond {
		if time.Since(monotonic) > time.Minute {
			t.Fatal("the clock stands still")
		}
	}
	if elapsed := time.Since(monotonic); elapsed < 20*time.Millisecond {
		t.Errorf("20 ms took %s", elapsed)
	}
}

// TestNothingIsAnnouncedAfterTheLease: what was due when the lease ended, or was handed over since, is announced no
// more. The port has no socket: a frame to send would be a panic.
func TestNothingIsAnnouncedAfterTheLease(t *testing.T) {
	out := packet.NewBatch(batch, frameLength)
	for name, table := range map[string]*Table{
		"ended": NewTable(Now(), held, other), "ended long ago": NewTable(time.Nanosecond, held, other),
		"never had one": nil, "no address left": NewTable(Now() + time.Hour),
	} {
		r := New(Config{})
		r.Grant(table)
		if err := r.announce(&packet.Port{}, out, []netip.Addr{held, other}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := r.Counters().Announced; n != 0 || out.Len() != 0 {
			t.Errorf("%s: %d announcements, %d frames", name, n, out.Len())
		}
	}
}

// TestGrantAnnouncesOnlyOtherAddresses: a table that is only prolonged wakes nothing.
func TestGrantAnnouncesOnlyOtherAddresses(t *testing.T) {
	r := New(Config{})
	for i, step := range []struct {
		table *Table
		want  bool
	}{
		{NewTable(1, held), true}, {NewTable(2, held), false}, {NewTable(2, held, requester), true}, {nil, true},
		{nil, false},
	} {
		r.Grant(step.table)
		select {
		case <-r.granted:
			if !step.want {
				t.Errorf("step %d announces again", i)
			}
		default:
			if step.want {
				t.Errorf("step %d announces nothing", i)
			}
		}
	}
}

// TestRun: a failing interface is opened again, and so is the watch on interfaces, which ends nothing else.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened := 0
		watched := 0
		r := New(Config{
			Interface: func() string { return "bond0.100" },
			Open:      func(string) (*packet.Port, error) { opened++; return nil, errors.New("network is down") },
			Watch:     func(context.Context, func()) error { watched++; return errors.New("no more events") },
		})
		bounded, end := context.WithTimeout(t.Context(), 100*reopenPause+reopenPause/2)
		defer end()
		if err := r.Run(bounded); err != nil || opened != 101 || watched < 3 || watched > 10 {
			t.Errorf("ended with %v after %d attempts to open the interface and %d to watch, want 101 and a few", err,
				opened, watched)
		}
		ctx, cancel := context.WithTimeout(t.Context(), reopenPause/2)
		defer cancel()
		r.Watch = nil
		if err := r.Run(ctx); err != nil {
			t.Errorf("without a watch: %v", err)
		}
	})
}

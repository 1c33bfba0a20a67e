//go:build linux

package responder

import (
	"net/netip"
	"testing"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/agent/wire/packet"
)

func TestNow(t *testing.T) {
	before := Now()
	monotonic := time.Now()
	for Now() < before+20*time.Millisecond {
		if time.Since(monotonic) > time.Minute {
			t.Fatal("the clock stands still")
		}
	}
	if elapsed := time.Since(monotonic); elapsed < 19*time.Millisecond {
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

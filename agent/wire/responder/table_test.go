//go:build linux

package responder

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestTable(t *testing.T) {
	const now = time.Hour
	table := NewTable(now+time.Second, other, held, netip.MustParseAddr("2001:db8::1"),
		netip.MustParseAddr("::ffff:203.0.113.4"))
	if diff := cmp.Diff([]netip.Addr{held, other}, table.Addresses(),
		cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	for name, tc := range map[string]struct {
		at   time.Duration
		want bool
	}{
		"at once":  {now, true},
		"in time":  {now + time.Second - 1, true},
		"too late": {now + time.Second, false},
	} {
		if got := table.Holds(held, tc.at); got != tc.want {
			t.Errorf("%s: holds %t, want %t", name, got, tc.want)
		}
	}
	if table.Holds(requester, now) || (*Table)(nil).Holds(held, now) || (&Table{}).Holds(held, now) {
		t.Error("an address is held that is in no table")
	}
}

// at returns the addresses that a schedule announces up to a time, with the times counted from its start.
func announced(s *schedule, start time.Time, until time.Duration) map[netip.Addr][]time.Duration {
	all := map[netip.Addr][]time.Duration{}
	for now := start; !now.After(start.Add(until)); {
		due, next := s.take(now)
		for _, a := range due {
			all[a] = append(all[a], now.Sub(start))
		}
		now = next
	}
	return all
}

func TestSchedule(t *testing.T) {
	const seconds = time.Second
	start := time.Now()
	s := newSchedule(rand.Uint64())
	s.follow(NewTable(time.Hour, held, other), start)
	took := announced(s, start, 10*time.Minute)
	for a, at := range took {
		if want := []time.Duration{0, 1100 * time.Millisecond, 2200 * time.Millisecond,
			4 * seconds}; !slices.Equal(want, at[:4]) {
			t.Errorf("%s is announced after %s, want %s first", a, at, want)
		}
		for i := 4; i < len(at); i++ {
			if pause := at[i] - at[i-1]; pause < 30*seconds || pause > 60*seconds {
				t.Errorf("%s: %s between two announcements, want 30 s to 60 s", a, pause)
			}
		}
		if len(at) < 4+9 {
			t.Errorf("%s is announced %d times in ten minutes", a, len(at))
		}
	}
	if len(took) != 2 || slices.Equal(took[held], took[other]) {
		t.Errorf("announced %v, want two addresses at different times", took)
	}
}

func TestScheduleFollowsTheTable(t *testing.T) {
	start := time.Now()
	s := newSchedule(1)
	s.follow(NewTable(time.Hour, held), start)
	announced(s, start, 20*time.Second)
	later := start.Add(30 * time.Second)
	s.follow(NewTable(time.Hour, other), later)
	if took := announced(s, later, time.Second); len(took) != 1 || len(took[other]) != 1 {
		t.Errorf("after the table changed %v is announced, want only %s", took, other)
	}
	later = later.Add(time.Minute)
	s.follow(NewTable(time.Hour, held, other), later)
	s.beginAll(later)
	if took := announced(s, later, 3*time.Second); len(took[other]) != 3 || len(took[held]) != 3 {
		t.Errorf("after beginAll %v is announced, want both three times within 3 s", took)
	}
	s.follow(nil, later)
	if took := announced(s, later, time.Minute); len(took) != 0 {
		t.Errorf("without a table %v is announced", took)
	}
}

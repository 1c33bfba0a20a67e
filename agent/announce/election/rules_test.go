package election

import (
	"testing"
	"time"
)

// TestPaced: another interval changes the times but not their proportions.
func TestPaced(t *testing.T) {
	standard := standardRules()
	if standardRules().withInterval(0).suspectTimeout != standard.suspectTimeout ||
		standard.withInterval(StandardInterval).lease != standard.lease {
		t.Error("the standard interval changes something")
	}
	for _, factor := range []int{2, 5, 50} {
		slower := func(d time.Duration) time.Duration { return time.Duration(factor) * d }
		r := standard.withInterval(slower(StandardInterval))
		if r.interval != slower(standard.interval) || r.suspectTimeout != slower(standard.suspectTimeout) ||
			r.lease != slower(standard.lease) || r.cold != slower(standard.cold) {
			t.Errorf("%d times as slow: %+v", factor, r)
		}
		if r.lease >= r.suspectTimeout || r.holdDown < r.suspectTimeout || r.holdDownMax < r.holdDown {
			t.Errorf("%d times as slow, and the order is lost: %+v", factor, r)
		}
	}
}

package announcer

import (
	"testing"
	"time"
)

// TestPaced: another interval changes the times and not what they are to each other.
func TestPaced(t *testing.T) {
	standard := standardRules()
	if standardRules().paced(0).silence != standard.silence || standard.paced(StandardInterval).lease != standard.lease {
		t.Error("the standard interval changes something")
	}
	for _, factor := range []time.Duration{2, 5, 50} {
		r := standard.paced(factor * StandardInterval)
		if r.interval != factor*standard.interval || r.silence != factor*standard.silence || r.lease != factor*standard.lease || r.cold != factor*standard.cold {
			t.Errorf("%d times as slow: %+v", factor, r)
		}
		if r.lease >= r.silence || r.hold < r.silence || r.holdMost < r.hold {
			t.Errorf("%d times as slow, and the order is lost: %+v", factor, r)
		}
	}
}

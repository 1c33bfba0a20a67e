//go:build linux

package responder

import (
	"testing"
	"time"
)

func TestNow(t *testing.T) {
	before := Now()
	monotonic := time.Now()
	for Now() < before+20*time.Millisecond {
		if time.Since(monotonic) > 10*time.Second {
			t.Fatal("the clock stands still")
		}
	}
	if elapsed := time.Since(monotonic); elapsed < 19*time.Millisecond {
		t.Errorf("20 ms took %s", elapsed)
	}
}

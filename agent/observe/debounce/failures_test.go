package debounce

import (
	"testing"
	"time"
)

func TestHoldGrowsAndIsForgotten(t *testing.T) {
	var f Failures
	now := time.Now()
	want := []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second,
		64 * time.Second, 128 * time.Second, 256 * time.Second, LastHold, LastHold}
	for i := range Patience + 200 {
		f.Note(now)
		expected := time.Duration(0)
		if beyond := i - Patience; beyond >= 0 {
			expected = want[min(beyond, len(want)-1)]
		}
		if got := f.Hold(now); got != expected {
			t.Errorf("after %d failures: %s, want %s", i+1, got, expected)
		}
	}
	if got := f.Hold(now.Add(memory)); got != 0 {
		t.Errorf("an hour later: %s, want none", got)
	}
}

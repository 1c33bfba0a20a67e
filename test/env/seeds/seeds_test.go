package seeds

import "testing"

func TestCount(t *testing.T) {
	for raw, want := range map[string]int{"": 40, "1": 40, "50": 2000} {
		t.Setenv(Variable, raw)
		if got := count(t, 40, false); got != want {
			t.Errorf("%s=%q: %d random starts, want %d", Variable, raw, got, want)
		}
	}
}

func TestShort(t *testing.T) {
	t.Setenv(Variable, "")
	for usual, want := range map[int]int{40: 10, 3: 1} {
		if got := count(t, usual, true); got != want {
			t.Errorf("%d random starts in place of %d, want %d", got, usual, want)
		}
	}
}

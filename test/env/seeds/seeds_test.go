package seeds

import "testing"

func TestCount(t *testing.T) {
	for raw, want := range map[string]int{"": 40, "1": 40, "50": 2000} {
		t.Setenv(Variable, raw)
		if got := Count(t, 40); got != want {
			t.Errorf("%s=%q: %d random starts, want %d", Variable, raw, got, want)
		}
	}
}

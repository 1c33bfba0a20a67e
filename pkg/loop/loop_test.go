package loop_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

func TestSleep(t *testing.T) {
	for name, tc := range map[string]struct {
		sleep, limit, took time.Duration
		whole              bool
	}{
		"it waits":           {sleep: time.Minute, limit: time.Hour, took: time.Minute, whole: true},
		"the context ends":   {sleep: time.Hour, limit: time.Minute, took: time.Minute},
		"no time":            {limit: time.Hour, whole: true},
		"less than no time":  {sleep: -time.Minute, limit: time.Hour, whole: true},
		"it ended long ago":  {sleep: time.Hour, limit: -time.Second},
		"it ends at no time": {sleep: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tc.limit)
				defer cancel()
				began := time.Now()
				if whole := loop.Sleep(ctx, tc.sleep); whole != tc.whole {
					t.Errorf("Sleep reports %t, want %t", whole, tc.whole)
				}
				if took := time.Since(began); took != tc.took {
					t.Errorf("Sleep took %s, want %s", took, tc.took)
				}
			})
		})
	}
}

// recorder notes when a step was called.
type recorder struct {
	began  time.Time
	called []time.Duration
}

func newRecorder() *recorder { return &recorder{began: time.Now()} }

func (r *recorder) step(pause time.Duration) func(context.Context) time.Duration {
	return func(context.Context) time.Duration {
		r.called = append(r.called, time.Since(r.began))
		return pause
	}
}

func (r *recorder) want(t *testing.T, want ...time.Duration) {
	t.Helper()
	if !slices.Equal(r.called, want) {
		t.Errorf("it was called after %v, want %v", r.called, want)
	}
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
		defer cancel()
		r := newRecorder()
		if err := loop.Run(ctx, r.step(10*time.Second)); err != nil {
			t.Error(err)
		}
		r.want(t, 0, 10*time.Second, 20*time.Second)
		if took := time.Since(r.began); took != 25*time.Second {
			t.Errorf("Run ended after %s, want 25s, with its context", took)
		}
	})
}

// TestRunAfterTheEnd: a loop that is started too late does nothing.
func TestRunAfterTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := loop.Run(ctx, func(context.Context) time.Duration {
		t.Error("a step was called")
		return time.Hour
	})
	if err != nil {
		t.Error(err)
	}
}

func TestJitter(t *testing.T) {
	least := time.Hour
	most := time.Duration(0)
	for range 10_000 {
		d := loop.Jitter(10*time.Second, 20)
		least = min(least, d)
		most = max(most, d)
	}
	if least < 9500*time.Millisecond || most >= 10500*time.Millisecond {
		t.Errorf("10 s, give or take a twentieth, were between %s and %s", least, most)
	}
	if least > 9600*time.Millisecond || most < 10400*time.Millisecond {
		t.Errorf("10 s, give or take a twentieth, were always between %s and %s", least, most)
	}
}

func TestBackoff(t *testing.T) {
	for name, tc := range map[string]struct {
		first, last time.Duration
		want        []time.Duration
	}{
		"it doubles up to the last": {
			first: 200 * time.Millisecond, last: time.Second,
			want: []time.Duration{200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, time.Second,
				time.Second},
		},
		"the last is a power": {first: time.Second, last: 4 * time.Second,
			want: []time.Duration{1e9, 2e9, 4e9, 4e9}},
		"there is only one":        {first: time.Second, last: time.Second, want: []time.Duration{1e9, 1e9}},
		"the last is the earliest": {first: time.Minute, last: time.Second, want: []time.Duration{1e9, 1e9}},
	} {
		t.Run(name, func(t *testing.T) {
			for failures, want := range tc.want {
				if got := loop.Backoff(tc.first, tc.last, failures); got != want {
					t.Errorf("after %d failures before it the pause is %s, want %s", failures, got, want)
				}
			}
			if got := loop.Backoff(tc.first, tc.last, 1_000_000); got != tc.last {
				t.Errorf("after a million failures the pause is %s, want %s", got, tc.last)
			}
		})
	}
}

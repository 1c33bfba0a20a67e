package loop_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

func TestWait(t *testing.T) {
	for name, tc := range map[string]struct {
		signalled          bool
		signalAt           time.Duration
		most, limit, took  time.Duration
		want               loop.Event
		withoutWake, again bool
	}{
		"the time is up":          {most: time.Minute, limit: time.Hour, took: time.Minute, want: loop.Due},
		"the context ends":        {most: time.Hour, limit: time.Minute, took: time.Minute, want: loop.Ended},
		"it was signalled before": {signalled: true, most: time.Hour, limit: time.Hour, want: loop.Woken},
		"it is signalled meanwhile": {signalAt: time.Second, most: time.Minute, limit: time.Hour, took: time.Second,
			want: loop.Woken},
		"nil is never signalled": {withoutWake: true, signalAt: time.Second, most: time.Minute, limit: time.Hour,
			took: time.Minute, want: loop.Due},
		"nil ends with its context": {withoutWake: true, most: time.Hour, limit: time.Minute, took: time.Minute,
			want: loop.Ended},
		"no time is over at once": {limit: time.Hour, want: loop.Due},
		"signals are one, used once": {signalled: true, again: true, most: time.Minute, limit: time.Hour,
			took: time.Minute, want: loop.Due},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				wake := loop.NewWake()
				if tc.withoutWake {
					wake = nil
				}
				ctx, cancel := context.WithTimeout(t.Context(), tc.limit)
				defer cancel()
				if tc.signalled {
					wake.Signal()
					wake.Signal()
				}
				if tc.again && wake.Wait(ctx, time.Hour) != loop.Woken {
					t.Fatal("a signal did not wake")
				}
				if tc.signalAt > 0 {
					time.AfterFunc(tc.signalAt, wake.Signal)
				}
				began := time.Now()
				if got := wake.Wait(ctx, tc.most); got != tc.want {
					t.Errorf("Wait returns %d, want %d", got, tc.want)
				}
				if took := time.Since(began); took != tc.took {
					t.Errorf("Wait took %s, want %s", took, tc.took)
				}
				time.Sleep(2 * time.Hour) // until the timer of the signal has fired
			})
		})
	}
}

func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		wake := loop.NewWake()
		time.AfterFunc(time.Second, wake.Signal)
		began := time.Now()
		if !wake.Await(ctx) || time.Since(began) != time.Second {
			t.Errorf("Await did not report the signal, or only after %s, want 1s", time.Since(began))
		}
		if wake.Await(ctx) || time.Since(began) != time.Minute {
			t.Errorf("Await did not report the end, or only after %s, want 1m", time.Since(began))
		}
	})
}

// TestDebounce: signals of one burst wake once, one that comes later wakes again.
func TestDebounce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		wake := loop.NewWake()
		began := time.Now()
		for _, at := range []int{1000, 1010, 1050, 1099, 1200} {
			time.AfterFunc(time.Duration(at)*time.Millisecond, wake.Signal)
		}
		for _, want := range []time.Duration{1100 * time.Millisecond, 1300 * time.Millisecond} {
			if wake.Wait(ctx, time.Hour) != loop.Woken || !wake.Debounce(ctx, 100*time.Millisecond) {
				t.Fatal("it was not woken")
			}
			if took := time.Since(began); took != want {
				t.Errorf("it was woken after %s, want %s", took, want)
			}
		}
		if got := wake.Wait(ctx, time.Hour); got != loop.Ended {
			t.Errorf("after the burst Wait returns %d, want %d", got, loop.Ended)
		}
		if wake.Debounce(ctx, time.Second) {
			t.Error("Debounce does not report that its context ended")
		}
	})
}

// TestWakeRun: a signal brings the next step forward, but never delays it.
func TestWakeRun(t *testing.T) {
	for name, tc := range map[string]struct {
		signals, want []int // seconds
	}{
		"without a signal":                {want: []int{0, 10, 20}},
		"a signal":                        {signals: []int{3}, want: []int{0, 5, 15, 25}},
		"signals of a burst":              {signals: []int{3, 4, 4}, want: []int{0, 5, 15, 25}},
		"a signal shortly before it":      {signals: []int{9}, want: []int{0, 10, 20}},
		"a signal for each of many steps": {signals: []int{1, 4, 21}, want: []int{0, 3, 6, 16, 23}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 26*time.Second)
				defer cancel()
				wake := loop.NewWake()
				r := newRecorder()
				for _, at := range tc.signals {
					time.AfterFunc(time.Duration(at)*time.Second, wake.Signal)
				}
				if err := wake.Run(ctx, 2*time.Second, r.step(10*time.Second)); err != nil {
					t.Error(err)
				}
				var want []time.Duration
				for _, at := range tc.want {
					want = append(want, time.Duration(at)*time.Second)
				}
				r.want(t, want...)
			})
		})
	}
}

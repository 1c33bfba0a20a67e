package diagnose

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/agent/verify/check"
)

func TestChanges(t *testing.T) {
	noisy := healthy()
	noisy.Time, noisy.Findings[1].Observed = noisy.Time.Add(time.Hour), "bond0 after 0.7 ms"
	silenced := healthy()
	silenced.APIServer = "connection refused"
	another := healthy()
	another.Network = "VLAN 7"
	for name, tc := range map[string]struct {
		before, after Document
		want          []string
	}{
		"nothing":       {healthy(), healthy(), nil},
		"evidence only": {healthy(), noisy, nil},
		"fixed": {undetermined(), healthy(), []string{
			"the network is now public network 6104105e6b7c9a0012345678 (VLAN 100), blocks 192.0.2.0/28, " +
				"203.0.113.0/29",
			"the API server is reached", "PN000 UNKNOWN -> OK", "PN101 new -> OK", "PN404 new -> SKIP",
			"PN601 new -> OK"}},
		"a new warning": {healthy(), warned(),
			[]string{"PN501 new -> WARN: replies from 192.0.2.2 to clients outside leave by bond0.11 instead of " +
				"leaving by bond0.100"}},
		"gone":            {warned(), healthy(), []string{"PN501 gone: replies leave by the VLAN interface"}},
		"API server lost": {healthy(), silenced, []string{"the API server is not reached"}},
		"another network": {healthy(), another, []string{"the network is now VLAN 7"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Changes(tc.before, tc.after)); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWatch: what differs is shown once, at the interval or when the kernel calls, and the last diagnosis is the
// result.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		changed := make(chan struct{})
		status := check.OK
		looks := 0
		shown := []check.Status(nil)
		w := Watcher{Interval: 10 * time.Second, Changed: changed,
			Look: func(context.Context) (Document, error) { looks++; return documentOf(status), nil },
			Show: func(d Document, changes []string) error {
				if (len(shown) == 0) != (len(changes) == 0) {
					t.Errorf("diagnosis %d comes with changes %v", len(shown)+1, changes)
				}
				shown = append(shown, d.Findings[0].Status)
				return nil
			}}
		done := make(chan Document, 1)
		go func() {
			last, err := w.Run(ctx)
			if err != nil {
				t.Error(err)
			}
			done <- last
		}()
		time.Sleep(35 * time.Second)
		synctest.Wait()
		if looks != 4 || len(shown) != 1 {
			t.Errorf("%d looks, %d shown after 35 s without a change, want 4 and 1", looks, len(shown))
		}
		status = check.Fail
		changed <- struct{}{}
		synctest.Wait()
		if diff := cmp.Diff([]check.Status{check.OK, check.Fail}, shown); diff != "" {
			t.Errorf("shown at the kernel's call (-want +got):\n%s", diff)
		}
		cancel()
		if last := <-done; last.ExitCode(false) != ExitFailed {
			t.Errorf("exit code of the last diagnosis %d, want 1", last.ExitCode(false))
		}
	})
}

// TestWatchForgetsWhatWasCutShort: an interrupted diagnosis finds nothing.
func TestWatchForgetsWhatWasCutShort(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	last, err := Watcher{Look: func(context.Context) (Document, error) {
		cancel()
		return documentOf(check.Fail), errors.New("interrupted")
	}}.Run(ctx)
	if err != nil || last.ExitCode(false) != ExitOK {
		t.Errorf("ended with %v and %+v", err, last)
	}
}

func TestWatchEndsWithAnError(t *testing.T) {
	broken := errors.New("no netlink")
	if _, err := (Watcher{Look: func(context.Context) (Document, error) {
		return Document{},
			broken
	}}).Run(t.Context()); !errors.Is(err, broken) {
		t.Errorf("ended with %v, want %v", err, broken)
	}
}

package netstate

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/test/env/testlog"
)

// TestFollow: a subscription that breaks is renewed, after growing pauses if it breaks at once; each time everything
// may have changed.
func TestFollow(t *testing.T) {
	for name, tc := range map[string]struct {
		holds    time.Duration
		min, max int
	}{
		"breaks at once":         {0, 20, 30},
		"breaks every minute":    {time.Minute, 9, 10},
		"breaks after 5 seconds": {5 * time.Second, 15, 25},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(testlog.Context(t), 10*time.Minute)
				defer cancel()
				renewed := 0
				changes := 0
				err := Follow(ctx, func(ctx context.Context, changed func()) error {
					renewed++
					changed()
					select {
					case <-ctx.Done():
						return nil
					case <-time.After(tc.holds):
						return errors.New("no buffer space available")
					}
				}, func() { changes++ })
				if err != nil || renewed < tc.min || renewed > tc.max || changes != renewed {
					t.Errorf("renewed %d times, %d changes (%v), want %d to %d", renewed, changes, err, tc.min, tc.max)
				}
			})
		})
	}
}

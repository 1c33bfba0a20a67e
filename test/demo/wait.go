package demo

import (
	"context"
	"fmt"
	"time"
)

// poll is how often the story looks again.
const poll = 200 * time.Millisecond

// until polls until look reports true, and returns when that was. What look last saw goes into the
// error when the time is over.
func until(ctx context.Context, limit time.Duration, what string,
	look func(context.Context) (ok bool, seen string, err error)) (time.Time, error) {
	parent := ctx
	ctx, cancel := context.WithTimeout(parent, limit)
	defer cancel()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	last := "nothing yet"
	for {
		ok, seen, err := look(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			last = err.Error()
		case ok:
			return time.Now(), nil
		case err == nil:
			last = seen
		}
		select {
		case <-ctx.Done():
			if parent.Err() != nil {
				return time.Time{}, fmt.Errorf("%s: %w", what, context.Cause(parent))
			}
			return time.Time{}, fmt.Errorf("%s: not within %s; last seen: %s", what, limit, last)
		case <-ticker.C:
		}
	}
}

package tools

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// lockPoll is how often a lock that another process holds is tried again; the system can wait by itself, but not until
// a context ends.
const lockPoll = 100 * time.Millisecond

// lockSay is how many tries go by before the wait is worth a line.
const lockSay = 5

// lock takes the cache's lock of that name, so that two runs side by side do a thing once, one after the other.
// The kernel releases it when the process ends, however it ends.
func (b *Toolbox) lock(ctx context.Context, name string) (release func(), err error) {
	dir := filepath.Join(b.Cache, "locks")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the cache (set %s to choose another directory): %w", CacheVariable, err)
	}
	file, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the cache: %w", err)
	}
	if err := b.waitForLock(ctx, file, name); err != nil {
		_ = file.Close()
		return nil, err
	}
	return func() { _ = file.Close() }, nil
}

func (b *Toolbox) waitForLock(ctx context.Context, file *os.File, name string) error {
	try := 0
	err := wait.PollUntilContextCancel(ctx, lockPoll, true, func(context.Context) (bool, error) {
		if try++; try == lockSay {
			b.say("waiting for another run that prepares %s", name)
		}
		return tryLock(file)
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("wait for another run that holds %s: %w", file.Name(), context.Cause(ctx))
	default:
		return fmt.Errorf("lock %s: %w", file.Name(), err)
	}
}

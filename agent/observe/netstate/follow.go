// Package netstate reads the state of a node's network from the kernel, over netlink and /proc/sys, into the values
// that package check evaluates.
package netstate

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/phoenixnap/k8s-cloud-provider-bmc/v2/pkg/loop"
)

const (
	// watchPause is the pause before a broken subscription to the kernel's events is renewed, doubled up to
	// maxWatchPause for one that breaks again and again.
	watchPause    = time.Second
	maxWatchPause = 30 * time.Second
)

// Follow keeps a subscription to the kernel's events until ctx ends; watch, such as Watch, calls changed when it has
// subscribed and with each change, until the subscription breaks. The error is always nil, which suits an errgroup.
func Follow(ctx context.Context, watch func(ctx context.Context, changed func()) error, changed func()) error {
	for failures := 0; ; failures++ {
		began := time.Now()
		err := watch(ctx, changed)
		if time.Since(began) > maxWatchPause {
			failures = 0
		}
		pause := loop.Backoff(watchPause, maxWatchPause, failures)
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to watch the kernel's network events, retrying", "after", pause)
		}
		if !loop.Sleep(ctx, pause) {
			return nil
		}
	}
}
